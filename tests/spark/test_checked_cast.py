"""Expressions of a merge or an update whose values do not fit their column, in any session."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from zero_rename.committer import InvalidInputError, Table
from zero_rename.spark import merge, save, update

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("planned_once")]
ROW = "1 n, 5 q, cast(1.5 as decimal(4,1)) price, date'2013-01-01' day, array(1) some"


@pytest.fixture
def legacy(spark: Any) -> Iterator[None]:
    """A session as Spark 3.5 has it by default: its casts make null of what does not fit."""
    spark.conf.set("spark.sql.ansi.enabled", "false")
    yield
    spark.conf.unset("spark.sql.ansi.enabled")


@pytest.fixture
def saved(spark: Any, url: str) -> str:
    save(spark.sql(f"select {ROW}"), url)
    return url


def held(url: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in Table(url).to_arrow().to_pylist()]


@pytest.mark.usefixtures("legacy")
def test_value_that_does_not_fit_is_refused_where_spark_makes_another_of_it(
    spark: Any, saved: str
) -> None:
    before = held(saved)
    for column, text, message in (
        ("q", "3000000000", "gives 3000000000, which is no int"),
        ("q", "q * 1000000000000L -- too much", "gives 5000000000000, which is no int"),
        ("q", "'it''s'", "gives it's, which is no int|gives its, which is no int"),
        ("price", "12345.6", r"gives 12345.6, which is no decimal\(4,1\)"),
        ("day", "'some day'", "gives some day, which is no date"),
        ("some", "array('x')", "is array<string>, whose values may not fit the column"),
    ):
        with pytest.raises(InvalidInputError, match=message) as refused:
            update(saved, set={column: text}, where="n = 1", spark=spark)
        assert "Nothing was changed" in str(refused.value)
        assert saved in str(refused.value)
    source, sets = spark.sql(f"select {ROW}"), {"q": "source.q * 1000000000000L -- too much"}
    with pytest.raises(InvalidInputError, match="gives 5000000000000, which is no int"):
        merge(source, saved, on=["n"], when_matched=sets)
    assert held(saved) == before


@pytest.mark.usefixtures("legacy")
def test_value_that_fits_is_cast_where_spark_casts_in_silence(spark: Any, saved: str) -> None:
    values = {
        "q": "cast(rand() as bigint) + 7 -- of another type",
        "price": "price * 1.1",
        "day": "'2013-1-2'",
        "some": "array(cast('8' as int), null)",
    }
    update(saved, set=values, where="n = 1", spark=spark)
    day = dt.date(2013, 1, 2)
    assert held(saved) == [(1, 7, Decimal("1.7"), day, [8, None])]
    update(saved, set={"q": "null", "price": "3", "day": "null"}, where="n = 1", spark=spark)
    assert held(saved) == [(1, None, Decimal("3.0"), None, [8, None])]


def test_ansi_session_by_default_casts_parts_as_spark_does(spark: Any, saved: str) -> None:
    update(saved, set={"some": "array('8')"}, where="n = 1", spark=spark)
    assert held(saved)[0][-1] == [8]
    with pytest.raises(Exception, match="CAST_INVALID_INPUT"):
        update(saved, set={"some": "array('x')"}, where="n = 1", spark=spark)
