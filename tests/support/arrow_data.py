"""Arrow values for tests: samples of every type, and strategies for partition values."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

_MOMENT = dt.datetime(2013, 1, 2, 3, 4, 5, 678900)

#: Types a table can have, each with values of it.
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [True, False, None]),
    "int8": (pa.int8(), [-128, 127, None]),
    "int16": (pa.int16(), [-(2**15), 2**15 - 1, None]),
    "int32": (pa.int32(), [-(2**31), 2**31 - 1, None]),
    "int64": (pa.int64(), [-(2**63), 2**63 - 1, None]),
    "uint8": (pa.uint8(), [0, 255, None]),
    "uint16": (pa.uint16(), [0, 2**16 - 1, None]),
    "uint32": (pa.uint32(), [0, 2**32 - 1, None]),
    "uint64": (pa.uint64(), [0, 2**64 - 1, None]),
    "float32": (pa.float32(), [1.5, -math.inf, None]),
    "float64": (pa.float64(), [5e-324, math.inf, None]),
    "decimal": (pa.decimal128(38, 10), [Decimal("1.5"), Decimal("-0.0000000001"), None]),
    "string": (pa.string(), ["", "é😀\n", None]),
    "binary": (pa.binary(), [b"", b"\xff\x00", None]),
    "fixed": (pa.binary(3), [b"abc", b"\x00\x01\x02", None]),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
    "time": (pa.time64("us"), [dt.time(0), dt.time(23, 59, 59, 999999), None]),
    "timestamp": (pa.timestamp("us", "UTC"), [_MOMENT.replace(tzinfo=dt.UTC), None, None]),
    "timestamp_ntz": (pa.timestamp("us"), [_MOMENT, dt.datetime(1, 1, 1), None]),
    "duration": (pa.duration("us"), [dt.timedelta(days=1, microseconds=1), None, None]),
    "null": (pa.null(), [None, None, None]),
    "list": (pa.list_(pa.field("element", pa.int32())), [[1, None], [], None]),
    "struct": (
        pa.struct([("a", pa.int8()), ("b", pa.string())]),
        [{"a": 1, "b": None}, None, None],
    ),
    "map": (pa.map_(pa.string(), pa.int16()), [[("k", 1), ("l", None)], [], None]),
    "nested": (
        pa.list_(pa.field("element", pa.struct([("x", pa.map_(pa.string(), pa.date32()))]))),
        [[{"x": [("k", dt.date(2013, 1, 1))]}, None], None, []],
    ),
}

_TEXT = st.text(
    st.characters(exclude_categories=("Cs",), exclude_characters="\ufffe\uffff"), min_size=1
) | st.sampled_from(
    ["a b", "x/y", "k=v", "100%", "%41", ".", "..", " ", "NULL", "\t", "é", "😀", "a+b", "}"]
)


def _moments(zone: dt.tzinfo | None) -> st.SearchStrategy[dt.datetime]:
    return st.datetimes(timezones=st.none()).map(lambda moment: moment.replace(tzinfo=zone))


#: Partition types, each with a strategy for its values (null aside).
PARTITION_VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "string": (
        pa.string(),
        _TEXT.filter(
            lambda text: text != "__HIVE_DEFAULT_PARTITION__" and not text.endswith("._COPYING_")
        ),
    ),
    "bool": (pa.bool_(), st.booleans()),
    "int8": (pa.int8(), st.integers(-128, 127)),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "float32": (pa.float32(), st.floats(width=32)),
    "float64": (pa.float64(), st.floats()),
    "decimal": (pa.decimal128(20, 5), st.decimals(-(10**14), 10**14, places=5)),
    "date": (pa.date32(), st.dates()),
    "time": (pa.time64("us"), st.times()),
    "timestamp": (pa.timestamp("us", "UTC"), _moments(dt.UTC)),
    "timestamp_ntz": (pa.timestamp("us"), _moments(None)),
}


def table_of(columns: dict[str, tuple[pa.DataType, list[Any]]]) -> pa.Table:
    return pa.table({name: pa.array(values, kind) for name, (kind, values) in columns.items()})


def rows_of(*tables: pa.Table) -> list[str]:
    """The tables' rows, ordered, comparable also where they hold NaN."""
    return sorted(repr(sorted(row.items())) for table in tables for row in table.to_pylist())
