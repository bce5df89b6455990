"""Conditions in words: compared as Spark compares."""

from __future__ import annotations

import datetime as dt
import io
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from zero_rename.committer import InvalidInputError
from zero_rename.spark.reading.filters import Condition, Selected, parse_filter, row_filter

SCHEMA = pa.schema(
    {
        "n": pa.int32(),
        "s": pa.string(),
        "day": pa.date32(),
        "at": pa.timestamp("us", "UTC"),
        "local": pa.timestamp("us"),
        "price": pa.decimal128(10, 2),
        "ok": pa.bool_(),
        "x": pa.float64(),
        "other": pa.int32(),
    }
)
BY = tuple(name for name in SCHEMA.names if name != "other")
UTC_NOON = dt.datetime(2013, 1, 1, 12, tzinfo=dt.UTC)


NAN = float("nan")


@pytest.mark.parametrize(
    ("text", "true", "false"),
    [
        ("n = 10", [10], [9, None]),
        ("n != 10", [9], [10, None]),
        ("n > 9", [10], [9, None]),  # as numbers, not as text
        ("n <= 9", [9, -1], [10, None]),
        ("s >= 'b'", ["b", "ba"], ["a", "B", None]),
        ("price < 1.5", [Decimal("1.49")], [Decimal("1.50"), None]),
        ("ok = true", [True], [False, None]),
        ("x = nan", [NAN], [1.0, None]),
        ("x > 1e300", [NAN, float("inf")], [1e300, None]),
        ("x < 0", [-1.0], [-0.0, 0.0, NAN, None]),
        ("n = __HIVE_DEFAULT_PARTITION__", [], [1, None]),
    ],
)
def test_comparisons_by_sql_s_three_values(text, true, false):
    [condition] = parse_filter(text, SCHEMA)
    assert all(condition.holds({condition.column: value}) for value in true)
    assert not any(condition.holds({condition.column: value}) for value in false)


@pytest.mark.parametrize(
    ("text", "conditions"),
    [
        ("n = 1", [Condition("n", "=", 1)]),
        ("n<>-1", [Condition("n", "!=", -1)]),
        (
            "day >= 2013-01-01 AND day < '2013-02-01'",
            [
                Condition("day", ">=", dt.date(2013, 1, 1)),
                Condition("day", "<", dt.date(2013, 2, 1)),
            ],
        ),
        ("s = 'it''s = and % /'", [Condition("s", "=", "it's = and % /")]),
        ("`s` != sandy", [Condition("s", "!=", "sandy")]),
        ("at = '2013-01-01 12:00:00'", [Condition("at", "=", UTC_NOON)]),
    ],
)
def test_comparisons_as_text(text, conditions):
    assert parse_filter(text, SCHEMA) == conditions


@pytest.mark.parametrize(
    "text",
    [
        "",
        "n",
        "n = ",
        "n = 1 and",
        "n = 1 or n = 2",
        "n = 1 n = 2",
        "missing = 1",
        "n = ''",
        "n = x",
        "n like 1",
    ],
)
def test_a_bad_one_is_refused(text):
    with pytest.raises(InvalidInputError):
        parse_filter(text, SCHEMA)


def test_selected_partitions():
    conditions = [Condition("n", ">", 9)]
    selected = Selected(conditions, SCHEMA, ("n",))
    assert "n=10" in selected
    assert "n=9" not in selected
    assert "n=__HIVE_DEFAULT_PARTITION__" not in selected
    named = Selected(conditions, SCHEMA, ("n",), ("n=10", "n=9", "n=11"))
    assert sorted(named) == ["n=10", "n=11"]
    assert "n=12" not in named
    assert "n=12" in Selected((), SCHEMA, ("n",))


VALUES = {
    "n": [1, 2, None],
    "s": ["", "a", "é", None],
    "at": [UTC_NOON, None],
    "local": [dt.datetime(2013, 1, 1), None],
    "price": [Decimal("1.50"), Decimal("-1.00"), None],
    "ok": [True, False, None],
    "x": [NAN, -0.0, 0.0, 1.5, float("inf"), None],
}


@pytest.mark.parametrize("symbol", ["=", "!=", "<", "<=", ">", ">="])
@pytest.mark.parametrize("column", VALUES)
def test_rows_are_compared_as_partitions_are(column, symbol):
    """Arrow's own order of NaN, for one, is another."""
    batch = pa.record_batch({column: pa.array(VALUES[column], SCHEMA.field(column).type)})
    schema, values = batch.schema, batch.column(0).to_pylist()
    for value in values:
        condition = Condition(column, symbol, value)
        found = row_filter([condition], schema)
        assert found is not None
        kept = found.keep(batch).column(0).to_pylist()
        assert repr(kept) == repr([one for one in values if condition.holds({column: one})])


def test_row_groups_that_may_hold_nan_are_read():
    """Statistics leave NaN out, so that any of floating point may."""
    schema = pa.schema([("x", pa.float64())])
    body = io.BytesIO()
    pq.write_table(pa.table({"x": [1.0, NAN, 0.5, 0.25]}, schema), body, row_group_size=2)
    file = pq.ParquetFile(io.BytesIO(body.getvalue()))
    for text, groups in {"x > 9": [0, 1], "x = nan": [0, 1], "x < 0.5": [1]}.items():
        found = row_filter(parse_filter(text, schema), schema)
        assert found is not None
        assert found.row_groups(file, {}) == groups
