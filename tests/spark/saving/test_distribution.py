"""``distribute="partition"``: few files a partition, and sorted frames as they are. Runs on other
Sparks too, as ``test_save.py`` does."""

from __future__ import annotations

from typing import Any

import pytest

from zero_rename import Table
from zero_rename.committer import InvalidInputError
from zero_rename.spark import load, save
from zero_rename.spark.saving.distribution import distributed

pytestmark = pytest.mark.spark
LOG = "zero_rename.spark.saving.distribution"


@pytest.fixture
def url(s3_bucket: Any) -> str:
    return f"s3://{s3_bucket.name}/lake/table"


@pytest.fixture
def scattered(spark: Any) -> Any:
    """60 rows of 3 days, of each some in every one of 4 tasks."""
    return spark.range(0, 60, 1, 4).selectExpr("id", "id % 3 as `d``ay`").repartition(4)


def saved(frame: Any, url: str, **given: Any) -> int:
    """Files that a write leaves, once all rows are seen to be there."""
    report = save(frame, url, mode="overwrite", **given)
    assert report is not None
    assert sorted(Table(url).to_arrow()["id"].to_pylist()) == list(range(60))
    return report.files


def test_rows_of_a_partition_come_together(scattered: Any, url: str) -> None:
    by = {"partition_by": ["d`ay"]}
    assert saved(scattered, url, **by) == 4 * 3
    assert saved(scattered, url, **by, distribute="partition") == 3
    assert saved(scattered, url, options={"distribute": "partition"}) == 3, "the table's columns"


def test_the_operator_says_so(scattered: Any, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZERO_RENAME_DISTRIBUTE", "partition")
    assert saved(scattered, url, partition_by=["d`ay"]) == 3
    assert saved(scattered, url, distribute="none") == 4 * 3


def test_a_table_without_partitions_gets_few_files(scattered: Any, url: str) -> None:
    assert saved(scattered, url) == 4
    assert saved(scattered, url, distribute="partition") == 1


@pytest.mark.parametrize("order", ["sort", "sortWithinPartitions", "repartitionByRange"])
def test_a_frame_with_an_order_of_its_own_keeps_it(
    spark: Any, scattered: Any, url: str, order: str, caplog: pytest.LogCaptureFixture
) -> None:
    getattr(scattered, order)("id").where("id >= 0").createOrReplaceTempView("ordered")
    ordered = spark.table("ordered").withColumnRenamed("d`ay", "day")
    with caplog.at_level("WARNING", logger=LOG):
        saved(ordered, url, partition_by=["day"], distribute="partition")
    [said] = [it.getMessage() for it in caplog.records if it.name == LOG]
    assert said.startswith(f"{url}: the rows are not distributed by partition")
    assert distributed(ordered, ["day"], None, url) is ordered


@pytest.mark.parametrize(
    "query",
    [
        "WITH c AS (SELECT * FROM scattered), d AS (SELECT id FROM c) "
        "SELECT c.* FROM c JOIN d USING (id) ORDER BY id",
        "SELECT * FROM ordered WHERE id < (SELECT max(id) + 1 FROM scattered)",
        "SELECT * FROM ordered OFFSET 1",
        "SELECT id, explode(array(1, 2)) AS twice FROM ordered",
    ],
)
def test_order_is_seen_below_what_keeps_it(
    spark: Any, scattered: Any, url: str, query: str
) -> None:
    scattered.createOrReplaceTempView("scattered")
    scattered.sort("id").createOrReplaceTempView("ordered")
    frame = spark.sql(query)
    assert distributed(frame, ["id"], None, url) is frame
    unordered = spark.sql("WITH c AS (SELECT * FROM ordered) SELECT id FROM c GROUP BY id")
    assert distributed(unordered, ["id"], None, url) is not unordered


def test_rows_that_this_package_reads_come_together(scattered: Any, url: str) -> None:
    by = {"partition_by": ["d`ay"]}
    assert saved(scattered, url, **by, options={"rowsPerFile": "1"}) == 60, "two tasks read them"
    frame = load(scattered.sparkSession, url, by="zero_rename")
    assert distributed(frame, ["d`ay"], None, url) is not frame
    assert saved(frame, f"{url}-2", distribute="partition", **by) == 3


@pytest.mark.parametrize("columns", [["d`ay"], []])
def test_a_session_without_adaptive_execution(
    spark: Any, scattered: Any, url: str, columns: list[str]
) -> None:
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        files = saved(scattered, url, partition_by=columns, distribute="partition")
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")
    assert files == (3 if columns else 4)


def test_a_large_partition_is_of_several_tasks(spark: Any) -> None:
    """By the bytes that are asked for, and the session's setting is left alone."""
    rows = spark.range(0, 100_000, 1, 12).selectExpr("id", "1 as day")
    sizes = [None, 20_000, 2**40]
    found = [distributed(rows, ["day"], size, "s3://b/t") for size in sizes]
    tasks = [frame.rdd.getNumPartitions() for frame in found]
    assert tasks[0] == tasks[2] == 1
    assert tasks[1] > 5


def test_no_such_word(scattered: Any, s3_bucket: Any, url: str) -> None:
    with pytest.raises(InvalidInputError, match="distribute is 'hash'"):
        save(scattered, url, distribute="hash")
    assert s3_bucket.keys() == []
