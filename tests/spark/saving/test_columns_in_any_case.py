"""Names of columns that differ from the table's by case alone."""

from __future__ import annotations

from typing import Any

import pytest

from support.spark_tables import rows, write
from zero_rename import Table
from zero_rename.committer import TableMismatchError
from zero_rename.spark import load, save

pytestmark = pytest.mark.spark


def test_columns_are_the_table_s(spark: Any, url: str, frame: Any) -> None:
    save(frame, url, partition_by=["P"])
    assert (Table(url).schema.names, Table(url).partition_by) == (["n", "p"], ("p",))
    other = spark.createDataFrame([(4, "z"), (5, "x")], "N int, P string")
    save(other, url)
    save(other.where("n = 5"), url, mode="overwrite", partition_by=["P"], partitions=["P=x", "P=y"])
    write(other.where("n = 4"), url, partitionBy="P", onlyPartitions="P=z")
    assert rows(load(spark, url)) == [{"n": n, "p": p} for n, p in ((4, "z"), (4, "z"), (5, "x"))]
    assert load(spark, url).columns == ["n", "p"]
    assert sorted(Table(url).snapshot().versions) == ["p=x", "p=y", "p=z"]


def test_new_columns_beside(spark: Any, url: str, frame: Any) -> None:
    save(frame, url, partition_by=["p"])
    wider = spark.sql("select 4L N, 'z' P, parse_json('[1]') More")
    save(wider, url, options={"mergeSchema": "true"})
    found = load(spark, url)
    assert dict(found.dtypes) == {"n": "bigint", "p": "string", "More": "variant"}
    assert found.where("more is not null").select("n", "p").collect() == [(4, "z")]


@pytest.mark.parametrize("on", ["true", "True"])
def test_a_session_that_tells_them_apart(spark: Any, url: str, frame: Any, on: str) -> None:
    save(frame, url)
    spark.conf.set("spark.sql.caseSensitive", on)
    try:
        with pytest.raises(TableMismatchError, match=r"N is not in the table .is 'n' meant"):
            save(frame.toDF("N", "p"), url)
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    assert load(spark, url).count() == 3
