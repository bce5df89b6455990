"""Bounds of a file's columns as a text: short, read back, and true of every row."""

from __future__ import annotations

import datetime as dt
import io
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.conditions import TYPES, conditions
from zero_rename.committer.format.parquet.column_bounds import (
    MOST_COLUMNS,
    recorded_bounds,
    sort_order,
    summarise,
)
from zero_rename.committer.format.parquet.row_filter import RowFilter
from zero_rename.committer.format.records.data_file import DataFile


def summary_of(rows: pa.Table, *sorted_by: str) -> str:
    """As a file of row groups of two rows has it."""
    body = io.BytesIO()
    pq.write_table(rows, body, row_group_size=2)
    return summarise(pq.read_metadata(pa.BufferReader(body.getvalue())), rows.schema, sorted_by)


def may_hold(summary: str, rows: int, schema: pa.Schema, condition: pc.Expression) -> bool:
    file = DataFile("k", "_unpartitioned", 1, rows, "", "zr1-x", summary)
    return RowFilter([condition], schema).may_be_in(file, {})


@pytest.mark.parametrize("name", TYPES)
@settings(max_examples=50)
@given(st.data())
def test_no_file_with_a_wanted_row_is_left_out(name: str, data: st.DataObject) -> None:
    kind, values = TYPES[name]
    column = data.draw(st.lists(st.none() | values, min_size=1, max_size=5))
    rows = pa.table({name: pa.array(column, kind)})
    condition = data.draw(conditions(name))
    wanted = rows.filter(condition).num_rows
    assert may_hold(summary_of(rows), len(column), rows.schema, condition) or not wanted


def test_a_comparison_with_nan_leaves_no_file_out() -> None:
    """Arrow takes it for true of all values up to a bound; it is true of none."""
    rows, y = pa.table({"y": [-1.0]}), pc.field("y")
    condition = ~((y != -1) | (y < math.nan))
    assert rows.filter(condition).num_rows
    assert may_hold(summary_of(rows), 1, rows.schema, condition)


@pytest.mark.parametrize("name", [name for name in TYPES if name != "b"])
@settings(max_examples=5)
@given(st.data())
def test_bounds_of_a_column_that_is_of_another_kind_by_now_say_nothing(
    name: str, data: st.DataObject
) -> None:
    kind, values = TYPES[name]
    text = summary_of(pa.table({"c": pa.array([data.draw(values)], kind)}))
    for other, (now, _) in TYPES.items():
        read = recorded_bounds(text, pa.schema([("c", now)]), ["c"])
        alike = other == name or {name, other} in ({"i", "u"}, {"x", "y"})
        assert alike or all(bounds.low is None for bounds in read.values())


class TestTheText:
    def test_has_what_is_needed_and_no_more(self) -> None:
        rows = pa.table(
            {
                "id": pa.array([3, 1, 2], pa.int32()),
                "origin": ["JFK", None, "EWR, Newark"],
                "price": pa.array([Decimal("-1.50"), Decimal("0"), None], pa.decimal128(9, 2)),
                "day": pa.array([dt.date(1970, 1, 2), dt.date(1970, 1, 1), None], pa.date32()),
                "at": pa.array([5, 7, 6], pa.timestamp("us", "UTC")),
                "ratio": [0.5, math.nan, math.inf],
                "raw": [b"a", b"b", b"c"],
                "empty": pa.array([None, None, None], pa.int64()),
            }
        )
        assert summary_of(rows).split("&") == [
            "id=i1,3",
            "origin=sEWR%2C Newark,JFK,1",
            "price=d-1.50,0.00,1",
            "day=y0,1,1",
            "at=z5,7",
            "ratio=f0.5,inf",
            "empty=n3",
        ]

    def test_has_the_first_columns_alone_but_those_that_rows_are_sorted_by_first(self) -> None:
        names = [f"c{number}" for number in range(20)]
        rows = pa.table({name: [1] for name in names})
        first = [part.split("=")[0] for part in summary_of(rows).split("&")]
        assert first == names[:MOST_COLUMNS]
        by, *parts = summary_of(rows, "c17", "c3").split("&")
        assert by == "c17,c3"
        assert [part.split("=")[0] for part in parts] == ["c17", "c3", *names[:3], *names[4:7]]

    def test_knows_a_column_from_one_inside_another(self) -> None:
        """Parquet calls both ``a.b``."""
        inner = pa.array([{"b": 100}, {"b": 200}])
        assert summary_of(pa.table({"a": inner, "a.b": [1, 2]})) == "a.b=i1,2"
        assert summary_of(pa.table({"a": inner})) == ""

    def test_says_nothing_of_a_column_with_a_group_without_bounds(self) -> None:
        """Of one whose values are all NaN, that is; of one without values it may."""
        assert summary_of(pa.table({"x": [1.0, 2.0, math.nan, math.nan]})) == ""
        assert summary_of(pa.table({"x": [1.0, 2.0, None, None]})) == "x=f1.0,2.0,2"

    @pytest.mark.parametrize(
        ("text", "high"),
        [
            ("a" * 32, "a" * 32),
            ("a" * 33, "a" * 31 + "b"),
            ("a" * 31 + "\U0010ffff" * 2, "a" * 30 + "b"),
            ("a" * 31 + "\ud7ffz", "a" * 31 + "\ue000"),
        ],
    )
    def test_rounds_up_the_greatest_of_long_texts(self, text: str, high: str) -> None:
        rows = pa.table({"s": [text]})
        bounds = recorded_bounds(summary_of(rows), rows.schema, ["s"])["s"]
        assert (bounds.low.as_py(), bounds.high.as_py()) == (text[:32], high)

    def test_has_no_bounds_of_texts_that_nothing_is_greater_than(self) -> None:
        assert summary_of(pa.table({"s": ["\U0010ffff" * 33]})) == ""

    @pytest.mark.parametrize(
        "text",
        ["id", "id=", "id=i", "id=i1", "id=ix,2", "id=i1,2,3,4", "id=n", "id=i1,99e9", "=&="],
    )
    def test_that_cannot_be_read_leaves_nothing_out(self, text: str) -> None:
        schema = pa.schema([("id", pa.int8())])
        assert may_hold(text, 5, schema, pc.field("id") == 100)

    def test_tells_the_order_of_the_rows(self) -> None:
        rows = pa.table({"a,b": [1], "c&d": [2]})
        assert sort_order(summary_of(rows, "c&d", "a,b")) == ("c&d", "a,b")
        assert sort_order(summary_of(rows)) == ()
        assert sort_order("") == ()


def condition_on_all(kind: pa.DataType, value: Any) -> pc.Expression:
    return pc.field("c") == pa.scalar(value, kind)


@pytest.mark.parametrize(
    ("stored", "now", "values"),
    [
        (pa.int8(), pa.int64(), [-128, 127]),
        (pa.uint32(), pa.int64(), [0, 2**32 - 1]),
        (pa.float32(), pa.float64(), [0.5, 1.5]),
        (pa.decimal128(4, 2), pa.decimal128(12, 4), [Decimal("-99.99"), Decimal("99.99")]),
    ],
    ids=str,
)
def test_bounds_of_a_column_that_is_wider_by_now_hold(
    stored: pa.DataType, now: pa.DataType, values: list[Any]
) -> None:
    text = summary_of(pa.table({"c": pa.array(values, stored)}))
    schema = pa.schema([("c", now)])
    for value in values:
        assert may_hold(text, 2, schema, condition_on_all(now, value))
    assert not may_hold(text, 2, schema, pc.field("c") > pa.scalar(values[1], now))
