"""``replaceWhere``: the partitions that go are those whose rows Spark selects by the condition."""

from __future__ import annotations

from typing import Any

import pytest

from zero_rename.committer import InvalidInputError
from zero_rename.spark import save
from zero_rename.tables.table_at_root import find_at_root

pytestmark = pytest.mark.spark


@pytest.fixture(params=["directory", "delta"])
def layout(request: pytest.FixtureRequest) -> str:
    return request.param


def empty(frame: Any, url: str, layout: str, where: str) -> None:
    """Empty the partitions that fit."""
    options = {"replaceWhere": where}
    save(frame.where("false"), url, mode="overwrite", layout=layout, options=options)


def numbers(url: str) -> list[int]:
    return sorted(find_at_root(url).table.scan(columns=["n"]).to_arrow()["n"].to_pylist())


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
    assert numbers(url) == [1, 2]
    empty(midnights, url, layout, "at = '2013-01-02T00:00:00Z'")
    assert numbers(url) == [1]


@pytest.mark.parametrize("where", ["p = 1", "f = 0.1"])
def test_value_that_spark_takes_for_others_is_refused(
    spark: Any, url: str, layout: str, where: str
) -> None:
    """``p = 1`` is true of the texts 1 and 01, and no 32-bit float is 0.1."""
    rows = spark.sql("select 1 n, '1' p, float(0.1) f union all select 2, '01', float(0.5)")
    save(rows, url, partition_by=[where[0]], layout=layout)
    with pytest.raises(InvalidInputError, match="does not say for certain which partitions"):
        empty(rows, url, layout, where)
    assert numbers(url) == [1, 2]


def test_name_of_the_partition_of_nulls_empties_nothing(spark: Any, url: str, layout: str) -> None:
    """No row has that text, so that Spark selects none."""
    rows = spark.sql("select 1 n, 'x' p union all select 2, null")
    save(rows, url, partition_by=["p"], layout=layout)
    empty(rows, url, layout, "p = '__HIVE_DEFAULT_PARTITION__'")
    assert numbers(url) == [1, 2]
    empty(rows, url, layout, "p is null")
    assert numbers(url) == [1]


def test_partition_is_named_by_its_value(spark: Any, url: str) -> None:
    """Each row but one lies in a partition that fits all conditions but one."""
    by = {
        "i": ("7", "I = '07'"),
        "d": ("date'2013-01-02'", "d = '2013-1-2'"),
        "b": ("true", "b = 'TRUE'"),
        "m": ("cast(1.5 as decimal(5,2))", "m = '1.5'"),
        "t": ("timestamp_ntz'2013-01-02 00:00:00'", "t = '2013-01-02 00:00:00'"),
    }
    columns = [f"if(n = {n}, null, {by[name][0]}) {name}" for n, name in enumerate(by)]
    rows = spark.range(6).withColumnRenamed("id", "n").selectExpr("n", *columns)
    save(rows, url, partition_by=list(by))
    empty(rows, url, "directory", " and ".join(where for _, where in by.values()))
    assert numbers(url) == [0, 1, 2, 3, 4]


def test_partition_of_a_number_is_found_by_its_value(spark: Any, url: str) -> None:
    rows = spark.sql("select 1 n, 7 i, 1.5D x union all select 2, 7, null union all select 3, 8, 2")
    save(rows, url, partition_by=["i", "x"])
    empty(rows, url, "directory", "i = 7 and x = 1.5")
    assert numbers(url) == [2, 3]


def test_frame_without_a_partition_column_is_refused_by_its_name(spark: Any, url: str) -> None:
    rows = spark.sql("select 1 n, 'a' p, 'x' q")
    save(rows, url, partition_by=["p", "q"])
    for where in ("p = 'a'", "p = 'a' and q like 'x%'", "q = 'x'"):
        with pytest.raises(InvalidInputError, match="The partition column 'q' is not among the"):
            empty(rows.drop("q"), url, "directory", where)
    assert numbers(url) == [1]
