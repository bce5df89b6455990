"""Values that engines have read wrong somewhere, for Delta tables that several of them share."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa

#: Texts that are syntax in a path, in a URL or to a shell; a null, and the empty text that is one.
ODD_NAMES = (
    *("plain", "a b", "a/b", "a%b", "a=b", "a:b", "ünïcödé ☃", "a+b", "a#b?c&d", "quote'\"x"),
    *("100%25", "{x}[y]^|~", "tr.", "a\\b", "comma,semi;", "__HIVE", None, "", "new\nline"),
    *("tab\tx", "*star<>", "null", " "),
)
#: Values of each type that have been read wrong somewhere.
VALUES = {
    "text": pa.array(["a" * 40, "", None, "ü"]),
    "whole": pa.array([2**62, -(2**62), None, 0], pa.int64()),
    "byte": pa.array([-128, 127, None, 0], pa.int8()),
    "float": pa.array([float("nan"), float("inf"), None, -0.0], pa.float64()),
    "money": pa.array(
        [Decimal("12345678901234567.89"), Decimal("-0.01"), None, Decimal("0.00")],
        pa.decimal128(19, 2),
    ),
    "date": pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31), None, dt.date(1582, 10, 4)]),
    "at": pa.array(
        [
            dt.datetime(1969, 12, 31, 23, 59, 59, 999_999),
            dt.datetime(2262, 1, 1),
            None,
            dt.datetime(1500, 1, 1),
        ],
        pa.timestamp("us", "UTC"),
    ),
    "local": pa.array([dt.datetime(2020, 2, 29, 1, 2, 3, 4), None, None, None], pa.timestamp("us")),
    "flag": pa.array([True, False, None, True]),
    "raw": pa.array([b"\x00\xff", b"", None, b"a"], pa.binary()),
    "short": pa.array([-(2**15), 2**15 - 1, None, 0], pa.int16()),
    "real": pa.array([1.5, float("-inf"), None, -0.0], pa.float32()),
    "many": pa.array([[1, None], [], None, [3]], pa.list_(pa.int64())),
    "parts": pa.array([{"a": 1, "b": "x"}, {"a": None, "b": None}, None, {"a": 2, "b": ""}]),
}
#: Conditions that a maximum which ignores NaN, a float in a decimal's place, or a cut text gets
#: wrong; and the rows that fit.
CONDITIONS = {
    "money > 12345678901234567": [0],
    "text > 'aaaa'": [0, 3],
    "whole >= 4611686018427387904": [0],
    "date = '1582-10-04'": [3],
    "text is null": [2],
    '"float" > 1': [0, 1],
    "\"float\" = 'NaN'": [0],
}
#: Two rows each, the second of null.
PARTITIONS = {
    "p_date": pa.array([dt.date(2013, 1, 1), None]),
    "p_whole": pa.array([-5, None], pa.int32()),
    "p_money": pa.array([Decimal("1.50"), None], pa.decimal128(5, 2)),
    "p_flag": pa.array([True, None]),
    "p_at": pa.array([dt.datetime(2013, 1, 1, 5), None], pa.timestamp("us", "UTC")),
}


def days(*pairs: tuple[str | None, int]) -> pa.Table:
    names, delays = zip(*pairs, strict=True)
    return pa.table({"day": pa.array(names, pa.string()), "delay": pa.array(delays, pa.int64())})
