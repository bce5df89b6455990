"""Filters on partition columns: claimed exactly or not at all."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from zero_rename.committer import InvalidInputError
from zero_rename.spark.filters import Condition, Selected, claim, parse_filter

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


def holds(pushed, **values):
    condition = claim(pushed, SCHEMA, BY)
    assert condition is not None
    return condition.holds(values)


@pytest.mark.parametrize(
    ("pushed", "true", "false"),
    [
        (EqualTo(("n",), 10), [10], [9, None]),
        (Not(EqualTo(("n",), 10)), [9], [10, None]),
        (EqualNullSafe(("n",), 10), [10], [9, None]),
        (Not(EqualNullSafe(("n",), 10)), [9, None], [10]),
        (EqualNullSafe(("n",), None), [None], [9]),
        (GreaterThan(("n",), 9), [10], [9, None]),
        (GreaterThanOrEqual(("n",), 9), [9, 10], [8, None]),
        (LessThan(("n",), 9), [8, -10], [9, 10, None]),
        (LessThanOrEqual(("n",), 9), [9], [10, None]),
        (Not(LessThanOrEqual(("n",), 9)), [10], [9, None]),
        (In(("n",), (1, 2)), [1, 2], [3, None]),
        (Not(In(("n",), (1, 2))), [3], [1, None]),
        (In(("n",), (1, None)), [1], [3, None]),
        (Not(In(("n",), (1, None))), [], [1, 3, None]),
        (IsNull(("n",)), [None], [1]),
        (IsNotNull(("n",)), [1], [None]),
        (Not(IsNull(("n",))), [1], [None]),
    ],
)
def test_comparisons_by_sql_s_three_values(pushed, true, false):
    assert all(holds(pushed, n=value) for value in true)
    assert not any(holds(pushed, n=value) for value in false)


def test_values_are_compared_as_what_they_are():
    assert holds(GreaterThan(("n",), 9), n=10)  # as text, "10" < "9"
    assert holds(GreaterThan(("day",), dt.date(2013, 9, 30)), day=dt.date(2013, 10, 1))
    assert holds(EqualTo(("price",), Decimal("1.5")), price=Decimal("1.50"))
    assert holds(EqualTo(("at",), dt.datetime.fromisoformat("2013-01-01T07:00-05:00")), at=UTC_NOON)
    assert holds(LessThan(("local",), dt.datetime(2014, 1, 1)), local=dt.datetime(2013, 1, 1))
    assert holds(EqualTo(("ok",), True), ok=True)


def test_texts():
    assert holds(StringStartsWith(("s",), "ab"), s="abc")
    assert not holds(StringStartsWith(("s",), "ab"), s="xab")
    assert holds(StringEndsWith(("s",), "bc"), s="abc")
    assert holds(StringContains(("s",), "b"), s="abc")
    assert not holds(StringContains(("s",), "b"), s=None)
    # Spark orders by UTF-8 bytes; UTF-16 would have it the other way round.
    assert holds(GreaterThan(("s",), "\uffef"), s="\U0001f600")


@pytest.mark.parametrize(
    "pushed",
    [
        EqualTo(("other",), 1),  # no partition column
        EqualTo(("s", "inner"), "x"),  # nested
        EqualTo(("x",), 1.0),  # NaN is another thing in Spark
        EqualTo(("n",), 1.5),
        EqualTo(("n",), True),
        EqualTo(("n",), "1"),
        EqualTo(("s",), 1),
        EqualTo(("day",), UTC_NOON),
        EqualTo(("at",), dt.datetime(2013, 1, 1)),
        EqualTo(("local",), UTC_NOON),
        EqualTo(("n",), None),
        In(("n",), (1, "2")),
        StringStartsWith(("n",), "1"),
        Not(Not(EqualTo(("n",), 1))),
    ],
)
def test_anything_else_is_left_to_spark(pushed):
    assert claim(pushed, SCHEMA, BY) is None


@pytest.mark.parametrize(
    ("text", "conditions"),
    [
        ("n = 1", [Condition("n", "EqualTo", 1)]),
        ("n<>-1", [Condition("n", "EqualTo", -1, negated=True)]),
        (
            "day >= 2013-01-01 AND day < '2013-02-01'",
            [
                Condition("day", "GreaterThanOrEqual", dt.date(2013, 1, 1)),
                Condition("day", "LessThan", dt.date(2013, 2, 1)),
            ],
        ),
        ("s = 'it''s = and % /'", [Condition("s", "EqualTo", "it's = and % /")]),
        ("`s` != sandy", [Condition("s", "EqualTo", "sandy", negated=True)]),
        ("at = '2013-01-01 12:00:00'", [Condition("at", "EqualTo", UTC_NOON)]),
    ],
)
def test_the_option_partition_filter(text, conditions):
    assert parse_filter(text, SCHEMA, BY) == conditions


@pytest.mark.parametrize(
    "text",
    [
        "",
        "n",
        "n = ",
        "n = 1 and",
        "n = 1 or n = 2",
        "n = 1 n = 2",
        "other = 1",
        "n = x",
        "n like 1",
    ],
)
def test_a_bad_partition_filter_is_refused(text):
    with pytest.raises(InvalidInputError):
        parse_filter(text, SCHEMA, BY)


def test_selected_partitions():
    conditions = [Condition("n", "GreaterThan", 9)]
    selected = Selected(conditions, SCHEMA, ("n",))
    assert "n=10" in selected
    assert "n=9" not in selected
    assert "n=__HIVE_DEFAULT_PARTITION__" not in selected
    named = Selected(conditions, SCHEMA, ("n",), ("n=10", "n=9", "n=11"))
    assert sorted(named) == ["n=10", "n=11"]
    assert "n=12" not in named
    assert "n=12" in Selected((), SCHEMA, ("n",))
