"""``replaceWhere``: the partitions that go are those whose rows Spark selects by the condition."""

from __future__ import annotations

from typing import Any

import pytest

from zero_rename.committer import InvalidInputError
from zero_rename.spark import load, save

pytestmark = pytest.mark.spark


@pytest.fixture(params=["directory", "delta"])
def layout(request: pytest.FixtureRequest) -> str:
    return request.param


def empty(frame: Any, url: str, layout: str, where: str) -> None:
    """Empty the partitions that fit."""
    options = {"replaceWhere": where}
    save(frame.where("false"), url, mode="overwrite", layout=layout, options=options)


def numbers(spark: Any, url: str) -> list[int]:
    return sorted(row["n"] for row in load(spark, url).collect())


def test_time_without_a_zone_empties_no_other_partition(spark: Any, url: str, layout: str) -> None:
    """The session's zone is New York's, and directories are named in UTC."""
    midnights = spark.sql(
        "select 1 n, timestamp'2013-01-02 00:00:00' at"
        " union all select 2, timestamp'2013-01-01 19:00:00'"
    )
    save(midnights, url, partition_by=["at"], layout=layout)
    for at in ("'2013-01-02 00:00:00'", "'2013-01-02'", "timestamp'2013-01-02 00:00:00'"):
        with pytest.raises(InvalidInputError, match="has no zone") as refused:
            empty(midnights, url, layout, f"at = {at}")
        assert "times with their zone" in (refused.value.remedy or "")
    assert numbers(spark, url) == [1, 2]
    empty(midnights, url, layout, "at = '2013-01-02T00:00:00Z'")
    assert numbers(spark, url) == [1]


@pytest.mark.parametrize("where", ["p = 1", "f = 0.1"])
def test_value_that_spark_takes_for_others_is_refused(
    spark: Any, url: str, layout: str, where: str
) -> None:
    """``p = 1`` is true of the texts 1 and 01, and no 32-bit float is 0.1."""
    rows = spark.sql("select 1 n, '1' p, float(0.1) f union all select 2, '01', float(0.5)")
    save(rows, url, partition_by=[where[0]], layout=layout)
    with pytest.raises(InvalidInputError, match="does not say for certain which partitions"):
        empty(rows, url, layout, where)
    assert numbers(spark, url) == [1, 2]


def test_name_of_the_partition_of_nulls_empties_nothing(spark: Any, url: str, layout: str) -> None:
    """No row has that text, so that Spark selects none."""
    rows = spark.sql("select 1 n, 'x' p union all select 2, null")
    save(rows, url, partition_by=["p"], layout=layout)
    empty(rows, url, layout, "p = '__HIVE_DEFAULT_PARTITION__'")
    assert numbers(spark, url) == [1, 2]
    empty(rows, url, layout, "p is null")
    assert numbers(spark, url) == [1]


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ("7", "P = '07'"),
        ("7", "p = 7"),
        ("date'2013-01-02'", "p = '2013-1-2'"),
        ("true", "p = 'TRUE'"),
        ("cast(1.5 as decimal(5,2))", "p = '1.5'"),
        ("timestamp_ntz'2013-01-02 00:00:00'", "p = '2013-01-02 00:00:00'"),
        ("1.5D", "p = 1.5"),
    ],
)
def test_partition_is_named_by_its_value(spark: Any, url: str, value: str, where: str) -> None:
    rows = spark.sql(f"select 1 n, {value} p union all select 2, null")
    save(rows, url, partition_by=["p"])
    empty(rows, url, "directory", where)
    assert numbers(spark, url) == [2]


@pytest.mark.parametrize("where", ["p = 'a'", "p = 'a' and q like 'x%'", "q = 'x'"])
def test_frame_without_a_partition_column_is_refused_by_its_name(
    spark: Any, url: str, where: str
) -> None:
    rows = spark.sql("select 1 n, 'a' p, 'x' q")
    save(rows, url, partition_by=["p", "q"])
    with pytest.raises(InvalidInputError, match="The partition column 'q' is not among the col"):
        empty(rows.drop("q"), url, "directory", where)
    assert numbers(spark, url) == [1]
