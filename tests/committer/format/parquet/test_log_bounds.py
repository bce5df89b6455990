"""Bounds of columns as a Delta log states them: only those that engines write right."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from zero_rename.committer.format.parquet.column_bounds import ColumnBounds
from zero_rename.committer.format.parquet.log_bounds import logged_bounds

AT = dt.datetime(2013, 1, 1, 5, 0, 0, 123_000)
MILLISECOND = dt.timedelta(milliseconds=1)


def bounds(kind: pa.DataType, text: str) -> tuple[Any, Any, int | None]:
    """Of the column c in a file's statistics."""
    found: ColumnBounds = logged_bounds(text, pa.schema([("c", kind)]), ["c"])["c"]
    low, high = (None if it is None else it.as_py() for it in (found.low, found.high))
    return low, high, found.nulls


def stated(low: str, high: str) -> str:
    return f'{{"minValues":{{"c":{low}}},"maxValues":{{"c":{high}}},"nullCount":{{"c":2}}}}'


@pytest.mark.parametrize(
    ("kind", "low", "high", "expected"),
    [
        (pa.int64(), str(-(2**62)), str(2**62), (-(2**62), 2**62)),
        (pa.int8(), "1", "2", (1, 2)),
        (pa.string(), '"a"', '"ü"', ("a", "ü")),
        (pa.date32(), '"0001-01-01"', '"2013-01-02"', (dt.date(1, 1, 1), dt.date(2013, 1, 2))),
        (pa.decimal128(15, 2), "1.5", "3", (Decimal("1.50"), Decimal("3.00"))),
    ],
)
def test_bounds_are_those_of_the_log(
    kind: pa.DataType, low: str, high: str, expected: tuple[Any, Any]
) -> None:
    assert bounds(kind, stated(low, high)) == (*expected, 2)


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_bounds_of_times_are_a_millisecond_wider(zone: str | None) -> None:
    text = AT.isoformat(timespec="milliseconds") + ("" if zone is None else "Z")
    at = AT if zone is None else AT.replace(tzinfo=dt.UTC)
    found = bounds(pa.timestamp("us", zone), stated(json.dumps(text), json.dumps(text)))
    assert found == (at - MILLISECOND, at + MILLISECOND, 2)


def test_bounds_of_times_in_another_zone_are_instants() -> None:
    text = json.dumps("2013-01-01T00:00:00.123-05:00")
    low, high, _ = bounds(pa.timestamp("us", "UTC"), stated(text, text))
    at = AT.replace(tzinfo=dt.UTC)
    assert (low, high) == (at - MILLISECOND, at + MILLISECOND)


@pytest.mark.parametrize(
    ("zone", "text"),
    [
        ("Europe/Paris", "1900-01-01T00:00:00.000+00:09"),
        ("America/Los_Angeles", "1880-01-01T00:00:00.000-07:52"),
        ("Africa/Monrovia", "1972-01-01T00:00:00.000-00:44"),
        ("Africa/Abidjan", "1900-01-01T00:00:00.000-00:16"),
        ("Africa/Accra", "1800-01-01T00:00:00.000Z"),
    ],
)
def test_bounds_of_an_instant_hold_although_spark_cuts_the_seconds_off_its_offset(
    zone: str, text: str
) -> None:
    """A formatter of Java with the pattern XXX writes an offset in hours and minutes."""
    at = dt.datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone))
    low, high, _ = bounds(pa.timestamp("us", "UTC"), stated(json.dumps(text), json.dumps(text)))
    assert low <= at <= high


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *((pa.float64(), "1.5"), (pa.bool_(), "true"), (pa.decimal128(16, 2), "1.50")),
        *((pa.int8(), "300"), (pa.int8(), "true"), (pa.int8(), '"1"'), (pa.int8(), "1.0")),
        *((pa.string(), "1"), (pa.date32(), '"10000-01-01"'), (pa.date32(), "5")),
        *((pa.decimal128(5, 2), "0.123"), (pa.decimal128(5, 2), "12345.00")),
        *((pa.timestamp("us"), '"2013-01-01T00:00:00Z"'), (pa.timestamp("us"), '"soon"')),
        *((pa.timestamp("us", "UTC"), '"2013-01-01T00:00:00"'), (pa.int8(), "null")),
        (pa.timestamp("us"), '"9999-12-31T23:59:59.999"'),
        (pa.list_(pa.int8()), "1"),
    ],
)
def test_bound_that_may_be_wrong_says_nothing(kind: pa.DataType, value: str) -> None:
    low, high, nulls = bounds(kind, stated(value, value))
    assert None in (low, high)
    assert nulls == 2


@pytest.mark.parametrize("text", ["{", "[" * 100_000, "[]", "1", "null", '{"minValues": 1}'])
def test_text_that_cannot_be_read_says_nothing(text: str) -> None:
    found = logged_bounds(text, pa.schema([("c", pa.int64())]), ["c"])
    assert set(found.values()) <= {ColumnBounds(None, None, None)}


def test_nulls_of_wide_bounds_are_not_counted() -> None:
    text = stated("1", "2").replace("{", '{"tightBounds":false,', 1)
    assert bounds(pa.int64(), text) == (1, 2, None)


@pytest.mark.parametrize("count", ["-1", "1.0", "true", '"1"'])
def test_count_of_nulls_that_cannot_be_is_not_known(count: str) -> None:
    """A file whose rows are not counted has -1 of them: it is not one of nulls alone."""
    text = stated("1", "2").replace('"c":2}}', f'"c":{count}}}}}')
    assert bounds(pa.int64(), text) == (1, 2, None)


def test_column_without_statistics_is_not_known() -> None:
    assert bounds(pa.int64(), '{"numRecords":3}') == (None, None, None)
    assert logged_bounds("", pa.schema([("c", pa.int64())]), ["c"]) == {}
