"""Columns of the type CHAR, of a table of Spark's catalog: values are filled up with blanks."""

from __future__ import annotations

from typing import Any

import pytest

from zero_rename.spark import delete, load, merge, save, update

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("planned_once")]


@pytest.fixture
def codes(spark: Any) -> Any:
    """A frame of a catalog's table."""
    frame = spark.createDataFrame([(1, "ab   "), (2, None)], "n int, code string")
    return frame.withMetadata("code", {"__CHAR_VARCHAR_TYPE_STRING": "char(5)"})


@pytest.fixture
def saved(spark: Any, url: str, codes: Any) -> str:
    save(codes, url)
    save(spark.sql("select 3 n, 'cd' code"), url)  # Not filled up, as an expression writes it.
    return url


def found(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def test_shorter_value_is_found_by_the_conditions_that_spark_fills_up(
    spark: Any, saved: str
) -> None:
    every = load(spark, saved)
    assert found(every) == [(1, "ab   "), (2, None), (3, "cd   ")]
    assert found(every.where("code = 'cd'")) == [(3, "cd   ")]
    assert found(load(spark, saved, where="code in ('cd', 'x')")) == [(3, "cd   ")]
    assert every.schema["code"].metadata == {"__CHAR_VARCHAR_TYPE_STRING": "char(5)"}
    assert found(load(spark, saved, columns=["code"], where="n = 3")) == [("cd   ",)]


def test_merge_matches_a_key_of_another_length(spark: Any, saved: str) -> None:
    done = merge(spark.sql("select 7 n, 'ab' code union all select 8, 'cd   '"), saved, on=["code"])
    assert (done.rows.updated, done.rows.inserted) == (2, 0)
    assert found(load(spark, saved)) == [(2, None), (7, "ab   "), (8, "cd   ")]


def test_update_and_deletion_of_a_shorter_value(spark: Any, saved: str) -> None:
    assert update(saved, set={"code": "'ef'"}, where="code = 'cd'").rows.updated == 1
    assert update(saved, set={"code": "'ef'"}, where="code = 'ef'").committed is None
    assert delete(saved, where="code = 'ef'").rows.deleted == 1
