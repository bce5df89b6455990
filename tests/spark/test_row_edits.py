"""Deletions and updates by Spark's expressions."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from support import spark_tables
from support.spark_tables import held
from zero_rename.committer import CommitConflictError, InvalidInputError, Table
from zero_rename.committer.format.row_changes import RowChanges
from zero_rename.spark import delete, load, merge, save, update
from zero_rename.spark.changing.fixed_times import FixedTimes
from zero_rename.spark.session_settings import active_session

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("planned_once")]

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("p", pa.string())])
put = partial(spark_tables.put, schema=SCHEMA)


@pytest.fixture
def url(s3_bucket, spark):
    url = f"s3://{s3_bucket.name}/lake/table"
    put(url, (1, 10, "x"), (2, None, "x"), (3, 30, "y"), (4, 40, "z"), (5, None, None))
    return url


def test_rows_of_which_the_condition_is_null_stay(url):
    done = delete(url, where="v >= 30 or p = 'w'")
    assert held(url) == [(1, 10, "x"), (2, None, "x"), (5, None, None)]
    assert done.rows == RowChanges(deleted=2, unchanged=3)
    assert done.partitions == ("p=y", "p=z")
    state = Table(url).snapshot()
    assert state.versions == {f"p={name}": version for name, version in EPOCHS}
    assert set(state.by_partition()) == {"p=x", "p=__HIVE_DEFAULT_PARTITION__"}
    assert delete(url, where="v >= 30").committed is None
    assert delete(url, where="not (v < 10)").rows.deleted == 1


def test_update_writes_files_of_as_many_rows_as_the_session_says(spark, s3_bucket):
    url = f"s3://{s3_bucket.name}/lake/long"
    put(url, *((k, k, "x") for k in range(25)))
    spark.conf.set("spark.sql.files.maxRecordsPerFile", "10")
    try:
        every = {"set": {"v": "v + 1"}, "where": "k >= 0", "spark": spark}
        many = update(url, **every).committed
        few = update(url, **every, options={"rowsPerFile": "20"})
    finally:
        spark.conf.unset("spark.sql.files.maxRecordsPerFile")
    assert many is not None
    assert few.committed is not None
    assert (many.files, few.committed.files) == (3, 2)


def test_update_follows_the_session_of_its_thread_not_that_of_a_stream(spark, url):
    """PySpark returns the session that made a frame last, in any thread, as a stream's does."""
    spark.createDataFrame([(1,)], "a int")
    with ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: spark.newSession().createDataFrame([(1,)], "a int")).result()
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        with pytest.raises(InvalidInputError, match="set names 'V', which is no column"):
            update(url, set={"V": "1"}, where="k = 1")
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    active: Any = active_session()
    assert active._jsparkSession.equals(spark._jsparkSession)


EPOCHS = (("__HIVE_DEFAULT_PARTITION__", 1), ("x", 1), ("y", 2), ("z", 2))


def test_an_update_changes_the_rows_that_it_changes(url):
    done = update(url, set={"V": "coalesce(v, 0) + 1"}, where="k < 3")
    assert held(url)[:3] == [(1, 11, "x"), (2, 1, "x"), (3, 30, "y")]
    assert (done.rows, done.partitions) == (RowChanges(updated=2, unchanged=3), ("p=x",))
    assert update(url, set={"v": "30"}, where="k = 3").committed is None
    moved = update(url, set={"p": "concat('to=', p)", "v": "v"}, where="v > 20")
    assert moved.partitions == ("p=to%3Dy", "p=to%3Dz", "p=y", "p=z")
    assert moved.rows == RowChanges(updated=2, unchanged=3)
    places = sorted(Table(url).to_arrow()["p"].to_pylist(), key=str)
    assert places == [None, "to=y", "to=z", "x", "x"]
    update(url, set={"p": "''"}, where="k = 1")
    assert Table(url).scan(["p=__HIVE_DEFAULT_PARTITION__"]).count() == 2


def test_condition_of_chance_is_refused_and_a_value_of_chance_is_set(url):
    """A condition is evaluated for the report, and again for the rows."""
    before = held(url)
    for change in (partial(update, set={"v": "0"}), delete):
        with pytest.raises(InvalidInputError, match=r"where='rand\(\) < 0.5' is not the same each"):
            change(url, where="rand() < 0.5")
    with pytest.raises(InvalidInputError, match=r"set\['p'\]='uuid\(\)' is not the same each"):
        update(url, set={"P": "uuid()"}, where="k = 1")
    assert held(url) == before
    done = update(url, set={"v": "cast(rand() * 9 as bigint) + 100"}, where="k < 3")
    assert done.rows.updated == 2
    assert all(100 <= v < 110 for k, v, _ in held(url) if k < 3)


def test_time_in_a_condition_is_the_same_for_the_report_and_the_rows(spark, s3_bucket):
    """Rows of each half of a millisecond of some seconds: each of Spark's queries has a time of its
    own, and rows between two of them were counted, and then not written."""
    url = f"s3://{s3_bucket.name}/lake/times"
    micros = "unix_micros(current_timestamp()) + (id - 50000) * 500"
    rows = spark.range(100_000).selectExpr("id", f"timestamp_micros({micros}) at", "'now()' text")
    save(rows, url)
    done = delete(url, where="cast(at as timestamp) < now() and text = 'now()' -- now()")
    assert done.rows.deleted > 50_000
    assert Table(url).scan().count() == done.rows.unchanged == 100_000 - done.rows.deleted


def test_names_and_texts_that_are_like_the_current_time_stay(spark):
    times = FixedTimes(spark)
    for text in (
        "'now()' = x and \"current_date\" = `now()` and s.current_date is null",
        r"x = 'it\'s now()' or y = r'\' or builtin . now() > x",
        "now > 1 /* current_date */ and f(now) = 1 and unix_timestamp('now()') = 1 -- now()",
        "CURRENT_DATE = 1",
    ):
        assert times.of(text, ["current_Date"]) == text
    name = "spark.sql.parser.escapedStringLiterals"
    spark.conf.set(name, "true")
    try:
        text = r"x = '\' and at < now() and y = 'now()'"
        assert re.fullmatch(
            r"x = '\\' and at < timestamp_micros\(\d+\) and y = 'now\(\)'",
            FixedTimes(spark).of(text, []),
        )
    finally:
        spark.conf.unset(name)


def test_time_of_day_is_that_of_the_call(spark):
    times = FixedTimes(spark)
    texts = [times.of(text, []) for text in ("current_time()", "CURRENT_TIME", "current_time()")]
    assert len(set(texts)) == 1
    for text in ("now()", "Current_Timestamp", "localtimestamp( )"):
        assert times.of(text, []) == times.of(text, []) != text
    (row,) = spark.sql(f"select {', '.join(texts)}, typeof({texts[0]})").collect()
    assert (len(set(row[:3])), row[3]) == (1, "time(6)")


def test_times_of_an_update_are_those_of_the_call(spark, url):
    put(f"{url}s", (1, 0, "x"), (2, 0, "y"))
    said = "cast(unix_micros(now()) + unix_micros(timestamp(localtimestamp())) as bigint) / 2"
    done = update(
        f"{url}s", set={"v": f"cast({said} as bigint)"}, where="current_date >= curdate()"
    )
    assert done.rows == RowChanges(updated=2)
    assert len({v for _, v, _ in held(f"{url}s")}) == 1


def test_last_rows_of_partitions_of_odd_numbers_are_deleted(spark, s3_bucket):
    url = f"s3://{s3_bucket.name}/lake/odd"
    odd = ("-0.0", "NaN", "Infinity", "1.0E10", "0.1")
    rows = (f"select {k}L k, float('{p}') p" for k, p in enumerate(odd))
    save(spark.sql(" union all ".join(rows)), url, partition_by=["p"])
    assert delete(url, where="k < 9").partitions == tuple(sorted(f"p={it}" for it in odd))
    assert load(spark, url).collect() == []


@pytest.mark.parametrize("layout", ["directory", "delta"])
def test_partitions_of_both_zeros_are_changed_apart(spark, s3_bucket, layout):
    """Spark groups and joins by 0.0 and -0.0 as by one value."""
    url = f"s3://{s3_bucket.name}/lake/zeros"
    zeros = "select 1L k, 1L v, double('-0.0') p union all select 2, 2, 0.0D union all select 3, 3"
    save(spark.sql(f"{zeros}, double('-0.0')"), url, partition_by=["p"], layout=layout)

    raised = update(url, set={"v": "v + 10"}, where="k < 3")
    assert (raised.rows, raised.partitions) == (
        RowChanges(updated=2, unchanged=1),
        ("p=-0.0", "p=0.0"),
    )
    news = spark.sql("select 3L k, 30L v, double('-0.0') p union all select 4, 40, 0.0D")
    assert merge(news, url, on=["k"]).rows == RowChanges(updated=1, inserted=1, unchanged=2)
    assert update(url, set={"p": "0.0D"}, where="k = 1").partitions == ("p=-0.0", "p=0.0")
    assert delete(url, where="k = 3").partitions == ("p=-0.0",)
    found = load(spark, url).selectExpr("k", "v", "cast(p as string) p").collect()
    assert sorted(map(tuple, found)) == [(1, 11, "0.0"), (2, 12, "0.0"), (4, 40, "0.0")]


def test_a_table_without_partitions(spark, s3_bucket):
    url = f"s3://{s3_bucket.name}/lake/flat"
    put(url, (1, 10, "x"), (2, 20, "y"), by=())
    assert delete(url, where="k = 1").rows == RowChanges(deleted=1, unchanged=1)
    assert update(url, set={"v": "v * 2"}, where="k = 2").rows == RowChanges(updated=1)
    assert held(url) == [(2, 40, "y")]
    delete(url, where="true")
    assert not Table(url).files()


def test_what_another_job_adds_meanwhile_is_looked_at_too(url, beside):
    beside(lambda: put(url, (9, 99, "y")))
    done = delete(url, where="v >= 30")
    assert (done.rows.deleted, done.attempts) == (3, 2)
    beside(lambda: put(url, (9, 99, "x")))
    with pytest.raises(CommitConflictError, match="p=x"):
        update(url, set={"v": "0"}, where="k = 1", attempts=1)
    assert held(url) == [(1, 10, "x"), (2, None, "x"), (5, None, None), (9, 99, "x")]


def test_what_cannot_be_right(url):
    for where, message in (
        ("count(*) > 1", "no aggregate"),
        ("k in (select max(k) from t)", "subquery"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            delete(url, where=where)
    for sets, message in (
        ({"v": "sum(v)"}, "no aggregate"),
        ({"nope": "1"}, "'nope', which is no column"),
        ({}, "set names no column"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            update(url, set=sets, where="true")
    assert len(held(url)) == 5
