"""Modes, partitions, options and repeats of ``df.write.format("zero_rename")``."""

from __future__ import annotations

import datetime as dt
import json

import duckdb
import pyarrow.parquet as pq
import pytest

from support.spark_tables import (
    data_keys,
    download,
    open_records,
    read,
    rows,
    worker_environment,
    write,
)
from zero_rename.committer import JobState, Table

pytestmark = pytest.mark.spark


@pytest.fixture
def frame(spark):
    values = [(1, "a", "x"), (2, "b", "y"), (3, "c", "x")]
    return spark.createDataFrame(values, "n int, s string, p string")


def count(spark, url):
    return dict(read(spark, url).groupBy("p").count().collect())


def test_append_then_overwrite_what_receives_rows(spark, s3_bucket, url, frame):
    write(frame, url, partitionBy="p")
    write(frame, url)  # the table's own partition columns
    assert count(spark, url) == {"x": 4, "y": 2}
    write(frame.where("p = 'x'"), url, "overwrite")
    assert count(spark, url) == {"x": 2, "y": 2}
    keys = data_keys(s3_bucket, "lake/table/")
    assert {key.split("/")[2] for key in keys} == {"p=x", "p=y"}
    assert all("zr1-" in key for key in keys)
    assert s3_bucket.uploads() == []
    assert open_records(s3_bucket, "lake/table") == []
    marker = Table(url).marker("p=x")
    assert marker is not None
    assert marker.committer == "zero_rename"
    assert Table(url).job_state(marker.job) is JobState.COMMITTED


def test_unpartitioned(spark, url, frame):
    write(frame, url)
    write(frame, url, "overwrite")
    assert rows(read(spark, url)) == rows(frame)


def test_fail_if_exists(url, frame):
    write(frame.where("p = 'x'"), url, partitionBy="p", failIfExists="true")
    write(frame.where("p = 'y'"), url, failIfExists="true")
    with pytest.raises(Exception, match="DestinationExistsError: The partition p=x already holds"):
        write(frame, url, failIfExists="true")
    assert Table(url).to_arrow().num_rows == 3


def test_named_partitions_are_emptied_even_without_rows(spark, url, frame):
    write(frame, url, partitionBy="p")
    write(frame.where("false"), url, "overwrite", replacePartitions="p=x")
    assert count(spark, url) == {"y": 1}
    marker = Table(url).marker("p=x")
    assert marker is not None
    assert marker.manifest is not None
    assert marker.manifest.rows == 0
    with pytest.raises(Exception, match="p=y") as caught:
        write(frame, url, "overwrite", replacePartitions='["p=x", "p=z"]')
    assert "InvalidInputError" in str(caught.value)
    assert count(spark, url) == {"y": 1}


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_rows_for_other_partitions_than_the_only_ones(spark, url, frame, mode):
    with pytest.raises(Exception, match="p=y") as caught:
        write(frame, url, mode, partitionBy="p", onlyPartitions="p=x")
    assert "InvalidInputError" in str(caught.value)
    assert "not among the partitions that this job may write (" in str(caught.value)
    assert not Table(url).exists()
    write(frame.where("p = 'x'"), url, mode, partitionBy="p", onlyPartitions="p=x")
    assert list(count(spark, url)) == ["x"]


def test_partitions_are_named_by_value_not_by_spelling(spark, url):
    frame = spark.sql("select 1 n, 2 month, date'2013-01-02' day")
    write(frame, url, partitionBy="month,day")
    write(frame.where("false"), url, "overwrite", replacePartitions="month=02/day=2013-1-2/")
    assert read(spark, url).count() == 0
    write(frame, url)
    write(frame, url, "overwrite", replaceWhere="day = '2013-1-2' and month = 02")
    assert read(spark, url).count() == 1


def test_partitions_are_replaced_by_a_condition(spark, url):
    days = spark.sql(
        "select cast(id as int) n, date_add(date'2013-01-01', cast(id as int)) day, "
        "if(id % 2 = 0, 'AA', 'UA') p from range(6)"
    )
    write(days, url, partitionBy="day,p")
    some = days.where("n in (2, 4)").selectExpr("n * 10 n", "day", "p").repartition(1)
    where = "Day between '2013-01-02' and '2013-01-05' and p like 'A%'"
    with pytest.raises(Exception, match="not among the partitions that this job may write"):
        write(days, url, "overwrite", replaceWhere=where)
    write(some.where("n = 20"), url, "overwrite", replaceWhere=where)
    assert sorted(row["n"] for row in read(spark, url).collect()) == [0, 1, 3, 5, 20]
    new = spark.sql("select 7 n, date'2013-01-04' day, 'AA' p")
    write(new, url, "overwrite", replaceWhere="not (p = 'UA' or day < '2013-01-02')")
    assert sorted(row["n"] for row in read(spark, url).collect()) == [0, 1, 3, 5, 7]
    for text in ("day >= 2013-01-01", "n = 1", "upper(p) = 'AA'", "p =", "p = 'AA' and n > 1"):
        with pytest.raises(Exception, match="does not say for certain which partitions"):
            write(days, url, "overwrite", replaceWhere=text)
    assert sorted(row["n"] for row in read(spark, url).collect()) == [0, 1, 3, 5, 7]


def test_the_whole_table_is_replaced(spark, url, frame):
    write(frame, url, partitionBy="p")
    write(frame.where("p = 'y'"), url, "overwrite", replaceTable="true")
    assert count(spark, url) == {"y": 1}


@pytest.mark.parametrize(
    "empty", ["where false", "no row survives", "no partition", "created empty"]
)
def test_empty_frames(spark, s3_bucket, url, frame, empty):
    nothing = {
        "where false": lambda: frame.where("false"),
        "no row survives": lambda: frame.where("n > 10").repartition(3),
        "no partition": lambda: spark.createDataFrame(spark.sparkContext.emptyRDD(), frame.schema),
        "created empty": lambda: spark.createDataFrame([], frame.schema),
    }[empty]()
    write(nothing, url, partitionBy="p")
    assert rows(read(spark, url)) == []
    assert read(spark, url).schema.simpleString() == frame.schema.simpleString()
    assert data_keys(s3_bucket, "lake/") == []
    assert open_records(s3_bucket, "lake/table") == []


VALUES = [
    "plain", "two words", "a/b", "a=b", "100%", "%2F", "ünï ☃ 😀", "c:\\d", "x#y?z", "[1]{2}^*'\"",
    " padded ", "+plus+", ".dot", "_underscore", "a,b;c", "tab\there", None,
]  # fmt: skip


def test_partition_values(spark, s3_bucket, tmp_path, url):
    values = [(n, value, dt.date(2013, 1, n + 1)) for n, value in enumerate(VALUES)]
    frame = spark.createDataFrame(values, "n int, _p string, day date")
    write(frame, url, partitionBy="_p,day")
    assert rows(read(spark, url)) == rows(frame)

    folder = download(s3_bucket, "lake/table", tmp_path)
    spark.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    try:
        plain = spark.read.parquet(str(folder)).selectExpr("n", "_p", "to_date(day) as day")
        assert rows(plain) == rows(frame)
    finally:
        spark.conf.unset("spark.sql.sources.partitionColumnTypeInference.enabled")
    with duckdb.connect() as duck:
        found = duck.execute(
            "select n, nullif(_p, '__HIVE_DEFAULT_PARTITION__') from read_parquet("
            f"'{folder}/**/*.parquet', hive_partitioning = true, hive_types_autocast = false)"
        ).fetchall()
        assert sorted(found) == [(n, value) for n, value, _ in values]
    assert data_keys(s3_bucket, "lake/table/_p=a%2Fb/day=2013-01-03/")
    assert data_keys(s3_bucket, "lake/table/_p=%252F/day=2013-01-06/")


def test_options_of_files(s3_bucket, tmp_path, spark, url):
    write(
        spark.range(1000).coalesce(1),
        url,
        compression="gzip",
        maxRecordsPerFile="400",
        rowGroupRows="100",
        tags="team=air,env=test",
        metadata="origin=unit",
        storageClass="STANDARD_IA",
        successMarkers="none",
    )
    keys = data_keys(s3_bucket, "lake/")
    assert len(keys) == 3
    folder = download(s3_bucket, "lake/table", tmp_path)
    footers = [pq.read_metadata(path) for path in sorted(folder.glob("*.parquet"))]
    assert [footer.num_rows for footer in footers] == [400, 400, 200]
    assert footers[0].num_row_groups == 4
    assert footers[0].row_group(0).column(0).compression == "GZIP"
    head = s3_bucket.client.head_object(Bucket=s3_bucket.name, Key=keys[0])
    assert head["Metadata"]["origin"] == "unit"
    assert any(value.startswith("zr1-") for value in head["Metadata"].values())
    assert head["StorageClass"] == "STANDARD_IA"
    tags = s3_bucket.client.get_object_tagging(Bucket=s3_bucket.name, Key=keys[0])["TagSet"]
    assert {tag["Key"]: tag["Value"] for tag in tags} == {"team": "air", "env": "test"}
    assert not [key for key in s3_bucket.keys("lake/") if key.endswith("_SUCCESS")]


def test_spark_lets_no_data_source_distribute_rows(s3_bucket, spark, url, frame):
    with pytest.raises(Exception, match=r"(?s)no Python data source.*save\(\)"):
        write(frame, url, distribute="partition")
    assert s3_bucket.keys() == []
    write(frame, url, distribute="none")


def test_once_per_run(spark, url, frame):
    run = {"idempotency_key": "dag/run/task", "partitionBy": "p"}
    write(frame, url, **run)
    first = Table(url).job_of_key("dag/run/task")
    write(frame, url, **run)
    assert count(spark, url) == {"x": 2, "y": 1}
    assert Table(url).job_of_key("dag/run/task") == first
    write(frame.where("p = 'x'"), url, onRepeat="replace_own", **run)
    assert count(spark, url) == {"x": 2}
    write(frame, url, onRepeat="append", **run)
    assert count(spark, url) == {"x": 4, "y": 1}


def test_the_operator_s_environment(spark, s3_bucket, url, frame):
    variables = {
        "ZERO_RENAME_IDEMPOTENCY_KEY": "dag/run/task",
        "ZERO_RENAME_DAG": "dag",
        "ZERO_RENAME_RUN": "run",
        "ZERO_RENAME_TRY_NUMBER": "2",
    }
    with worker_environment(spark, **variables):
        write(frame, url, partitionBy="p")
        job = Table(url).job_of_key("dag/run/task")
        decision = json.loads(s3_bucket.read(f"lake/table/_zero_rename/jobs/{job}.json"))
        assert "run" in json.dumps(decision["owner"])
        # Another write of this application would be skipped as if it were the same.
        there = data_keys(s3_bucket, "lake/")
        for policy in ("skip", "replace_own"):
            with pytest.raises(
                Exception, match=r"second one was not begun.*give it a key of its own"
            ):
                write(frame, url, onRepeat=policy)
        assert open_records(s3_bucket, "lake/table") == []
        assert data_keys(s3_bucket, "lake/") == there
        write(frame, url, idempotency_key="dag/run/task/2")
    assert count(spark, url) == {"x": 4, "y": 2}


def test_columns_may_come_in_another_order_and_not_null(spark, url, frame):
    write(frame, url, partitionBy="p")
    write(spark.sql("select 'x' p, 'c' s, 9 n"), url)
    assert rows(read(spark, url).where("n = 9")) == [{"n": 9, "s": "c", "p": "x"}]


def test_requests_stay_within_the_budget(spark, s3_bucket, url):
    """One file appended to an existing unpartitioned table: at most 15, though planning, task
    and commit are three processes, and one for the task's look at whether its job goes on."""
    frame = spark.sql("select 1 n").coalesce(1)
    write(frame, url)
    s3_bucket.counter.reset()
    write(frame, url)
    assert s3_bucket.counter.total() <= 16, s3_bucket.counter.log()
    s3_bucket.counter.reset()
    assert read(spark, url).count() == 2
    # table.json twice (schema and state), heads twice, one head, two decisions, two files
    assert s3_bucket.counter.total() <= 9, s3_bucket.counter.log()
