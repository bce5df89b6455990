"""``load()`` and ``create_view()`` by this package's own reader: the session has no S3A."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from support.spark_tables import (
    data_keys,
    of_all_types,
    partitioned_by_all_types,
    put,
    read,
    rows,
    write,
)
from zero_rename.committer import CommitConflictError, InvalidInputError
from zero_rename.spark import create_view, load, save

pytestmark = pytest.mark.spark


@pytest.fixture
def url(s3_bucket):
    return f"s3://{s3_bucket.name}/lake/flights"


append = partial(put, schema=pa.schema([("n", pa.int64()), ("p", pa.string())]))


def numbers(frame):
    return sorted(row["n"] for row in frame.collect())


@pytest.mark.parametrize("frame", [of_all_types, partitioned_by_all_types])
def test_all_types(spark, url, frame):
    written = frame(spark)
    by = written.columns[1:] if frame is partitioned_by_all_types else []
    save(written, url, partition_by=by)
    ours = load(spark, url)
    assert ours.schema == read(spark, url).schema
    assert repr(rows(ours)) == repr(rows(read(spark, url)))


def test_what_is_asked_for(spark, s3_bucket, url):
    append(url, (1, "x"), (2, "x"), (3, "y"), (4, "z/%"), (5, None))
    assert numbers(load(spark, url)) == [1, 2, 3, 4, 5]
    assert numbers(load(spark, url, partitions=["p=y", "p=z%2F%25"])) == [3, 4]
    assert load(spark, url, columns=["p", "n"], where="n > 1 and p = 'x'").collect() == [("x", 2)]
    assert load(spark, url, columns=["p"], where="n = 3").collect() == [("y",)]
    assert numbers(load(spark, url, where="p = ''")) == []
    s3_bucket.counter.reset()
    assert numbers(load(spark, url, where="p != 'x' and n <= 3")) == [3]
    asked = [key for name, key in s3_bucket.counter.log() if name == "GetObject"]
    # That of p=z has no such number, as the table has on record.
    wanted = [key for key in data_keys(s3_bucket) if "p=y" in key]
    assert sorted(key for key in asked if key.endswith(".parquet")) == wanted


@pytest.mark.parametrize(("threshold", "sent"), [("32kb", False), ("10mb", True)])
def test_a_join_sends_a_table_to_all_executors_if_it_is_small(spark, url, threshold, sent):
    numbers = Random(1).sample(range(2**40), 10_000)  # 80 kB that no encoding makes smaller
    append(url, *((n, "x") for n in numbers))
    wanted = spark.range(0, 1000, 1, 2).withColumnRenamed("id", "n")
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", threshold)
    try:
        joined: Any = load(spark, url).join(wanted, "n", "right").groupBy().count()
        assert joined.collect() == [(1000,)]
        plan = joined._jdf.queryExecution().executedPlan().toString()
    finally:
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")
    final = plan.split("== Initial Plan")[0]
    assert ("BroadcastHashJoin" in final, "SortMergeJoin" in final) == (sent, not sent)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"columns": ["m"]}, "no column 'm'"),
        ({"columns": "n"}, "Give columns="),
        ({"partitions": ["n=1"]}, "is no partition of this table"),
        ({"partitions": "p=1"}, "Give partitions="),
        ({"by": "us"}, "by is 'us'"),
        ({"by": "spark"}, "cannot read the table by itself: .*S3AFileSystem is not there"),
    ],
)
def test_what_cannot_be_right(spark, url, given, message):
    append(url, (1, "x"))
    with pytest.raises(InvalidInputError, match=message):
        load(spark, url, **given)


def test_a_condition_that_spark_does_not_take(spark, url):
    from pyspark.errors import AnalysisException

    append(url, (1, "x"))
    for text in ("m = 1", "p = x", "n >", "n = 'x' or struct(n) > 1"):
        for partitions in (None, ["p=z"]):
            with pytest.raises(AnalysisException):
                load(spark, url, where=text, partitions=partitions)


#: Times and numbers whose comparison depends on the session or on types, and columns in any case.
_OF_TIMES = (
    *("at >= '2013-01-02 00:00:00'", "at < '2013-01-02'", "AT = timestamp'2013-01-01 23:00:00'"),
    *("pat >= '2013-01-02'", "not Pat < '2013-01-02 00:00:00'", "pat = '2013-01-02T05:00:00Z'"),
)
_OTHERS = (
    *("f = 0.3", "f <> 0.3", "f > 0.3 or F is null", "f * 2 > 0.5"),
    *("p like 'a%' and n in (1, 5)", "p = 'A' or N between 7 and 9", 'p = "a"', "upper(p) = 'A'"),
)


def test_the_rows_are_those_that_spark_selects(spark, url):
    written = spark.sql(
        "select cast(id as int) n, if(id % 5 = 0, null, cast(id % 4 / 10 as float)) f,"
        " timestamp_seconds(1356998400 + id * 5400) at,"
        " timestamp_seconds(1356998400 + id % 8 * 10800) pat, substr('aAbB', id % 4 + 1, 1) p"
        " from range(24)"
    )
    save(written, url, partition_by=["pat", "p"])
    name = "spark.sql.session.timeZone"
    before = spark.conf.get(name)
    try:
        for zone, conditions in ((before, _OF_TIMES + _OTHERS), ("Asia/Kolkata", _OF_TIMES)):
            spark.conf.set(name, zone)
            fit = written.selectExpr("n", *(f"{text} as `{text}`" for text in conditions)).collect()
            for text in conditions:
                found = load(spark, url, where=text, columns=["N"]).collect()
                wanted = [row["n"] for row in fit if row[text]]
                assert sorted(row[0] for row in found) == wanted, (zone, text)
    finally:
        spark.conf.set(name, before)


@pytest.mark.parametrize("by", [["p"], []])
def test_rows_without_columns_are_counted(spark, url, by):
    put(url, (1, "x"), (2, "y"), (3, "y"), schema=append.keywords["schema"], by=by)
    found = load(spark, url, columns=[])
    assert (found.columns, found.count()) == ([], 3)
    assert load(spark, url, columns=[], where="n > 1").count() == 2


def test_columns_in_any_case_where_the_session_says_so(spark, url):
    append(url, (1, "x"), (2, "y"))
    found = load(spark, url, columns=["N"], where="`P` = 'x' or p = 'z'", partitions=["P=x", "p=y"])
    assert (found.columns, found.collect()) == (["N"], [(1,)])
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        with pytest.raises(Exception, match="UNRESOLVED_COLUMN"):
            load(spark, url, columns=["N"])
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_an_empty_table(spark, url):
    write(spark.sql("select 1 n, 'x' p").where("false"), url, partitionBy="p")
    found = load(spark, url, where="p = 'x'", columns=["p"])
    assert (found.collect(), found.dtypes) == ([], [("p", "string")])


def test_the_state_is_the_one_that_was_there_at_the_call(spark, url):
    append(url, (1, "x"))
    early = load(spark, url)
    append(url, (2, "y"))
    assert numbers(early) == [1]
    append(url, (3, "x"), mode="overwrite")
    assert numbers(load(spark, url)) == [2, 3]
    with pytest.raises(Exception, match="SnapshotGoneError") as caught:
        early.collect()
    assert "Load the table anew" in str(caught.value)


def test_an_overwrite_is_held_against_what_was_loaded(spark, url):
    append(url, (1, "x"), (2, "y"))
    old = load(spark, url, where="p >= 'x'")
    append(url, (3, "z"))
    new = old.selectExpr("n * 10 n", "if(p = 'y', 'z', p) p").repartition(1)
    with pytest.raises(CommitConflictError, match="p=z"):
        save(new, url, mode="overwrite")
    assert numbers(load(spark, url)) == [1, 2, 3]
    save(load(spark, url).selectExpr("n * 10 n", "p"), url, mode="overwrite")
    assert numbers(load(spark, url)) == [10, 20, 30]


def test_an_overwrite_is_held_against_files_that_a_condition_left_out(spark, url):
    append(url, (1, "x"), (2, "y"))
    old = load(spark, url, where="n = 2")
    append(url, (3, "x"))
    with pytest.raises(CommitConflictError, match="p=x"):
        save(old.selectExpr("n", "'x' p"), url, mode="overwrite")
    assert numbers(load(spark, url)) == [1, 2, 3]


def test_a_view_shows_the_state_of_its_making(spark, url):
    append(url, (1, "x"), (2, "y"))
    create_view(spark, "flights", url, where="p = 'x'")
    append(url, (3, "x"))
    assert spark.sql("select sum(n) from flights").collect() == [(1,)]
    spark.sql("refresh table flights")
    assert spark.table("flights").count() == 1
    create_view(spark, "flights", url)
    assert spark.sql("select sum(n) from flights").collect() == [(6,)]
    spark.catalog.dropTempView("flights")


def test_where_behind_load_that_opens_all_files_names_the_argument(spark, url, caplog):
    """By this package's reader, which hears nothing of it."""

    def warnings():
        name = "zero_rename.spark.reading.loaded_frame"
        return [record.getMessage() for record in caplog.records if record.name == name]

    append(url, *((n, f"d{n}") for n in range(11)))
    frame = load(spark, url)
    assert numbers(frame.where("n <= 1")) == [0, 1]
    assert not warnings(), "nine files more are no matter"
    assert numbers(frame.where(frame.n < 1)) == [0]
    assert numbers(frame.filter("n = 1")) == [1]
    first, _ = warnings()
    assert "opens 10 of 11 files in vain, since no row in them fits" in first
    assert "Give the condition to load() itself, as its argument where" in first
