"""``zero_rename.spark.load`` where the session's S3A reads the files itself, on moto."""

from __future__ import annotations

import datetime as dt
import io
import os
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.hadoop_committers import Application
from support.spark_tables import of_all_types, partitioned_by_all_types, rows, worker_environment
from zero_rename.committer import CommitConflictError, InvalidInputError, Table
from zero_rename.committer.store.requests import Put
from zero_rename.spark import create_view, load, register, save
from zero_rename.spark.startup import preflight

TIME_TYPE = "spark.sql.timeType.enabled"
SCHEMA = pa.schema([("n", pa.int64()), ("p", pa.string())])


@pytest.fixture
def spark(native_application: Application, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The session, and moto for boto3: in this process and in the workers."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    known = native_application.store.environment()
    for name, value in known.items():
        monkeypatch.setenv(name, value)
    with worker_environment(native_application.spark, **known):
        yield native_application.spark


@pytest.fixture
def url(native_application: Application, spark: Any) -> str:
    place = native_application.place()
    return f"s3://{place.bucket}/{place.prefix}"


@pytest.fixture
def ignoring(spark: Any) -> Iterator[None]:
    """A session whose user has told Spark to leave out what it cannot read."""
    names = ("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles")
    for name in names:
        spark.conf.set(name, "true")
    yield
    for name in names:
        spark.conf.unset(name)


def put(url: str, *values: tuple[int, str | None], mode: str = "append") -> None:
    with Table(url).job(SCHEMA, partition_by=["p"], mode=mode) as job:
        job.write(pa.table(list(zip(*values, strict=True)), schema=SCHEMA))


def put_foreign(url: str, path: str, rows: pa.Table) -> None:
    """A file that no job of this package wrote."""
    body = io.BytesIO()
    pq.write_table(rows, body)
    table = Table(url)
    table.run(Put(f"{table.root.prefix}/{path}", body.getvalue()))


def numbers(frame: Any) -> list[int]:
    return sorted(row["n"] for row in frame.collect())


def is_by_spark(frame: Any) -> bool:
    return "FileScan parquet" in frame._jdf.queryExecution().toString()


@pytest.mark.parametrize("made", [of_all_types, partitioned_by_all_types])
def test_all_types_are_what_this_package_s_reader_finds(spark: Any, url: str, made: Any) -> None:
    data = made(spark)
    save(data, url, partition_by=data.columns[1:] if made is partitioned_by_all_types else [])
    found, ours = load(spark, url), load(spark, url, by="zero_rename")
    assert is_by_spark(found)
    assert not is_by_spark(ours)
    assert found.schema == ours.schema
    assert repr(rows(found)) == repr(rows(ours))


class TestTime:
    """The type TIME, which Spark 4.3 makes and hands over, and whose own reader takes it only where
    a setting says so."""

    @pytest.fixture
    def default(self, spark: Any) -> Iterator[None]:
        """A session as users have it."""
        spark.conf.unset(TIME_TYPE)
        yield
        spark.conf.set(TIME_TYPE, "true")

    @pytest.fixture
    def saved(self, spark: Any, url: str) -> str:
        save(
            spark.sql("select 1 n, named_struct('t', time'01:02:03.000001') s, time'04:05' t"), url
        )
        return url

    def test_columns_are_read_in_a_session_of_defaults(
        self, spark: Any, saved: str, default: None
    ) -> None:
        found = load(spark, saved)
        assert not is_by_spark(found)
        at = dt.time(1, 2, 3, 1)
        assert found.collect() == [(1, (at,), dt.time(4, 5))]
        assert load(spark, saved, columns=["s"], where="n = 1").collect() == [((at,),)]
        with pytest.raises(
            InvalidInputError, match=r"takes no TIME, which is .* the column s"
        ) as no:
            load(spark, saved, by="spark")
        assert TIME_TYPE in (no.value.remedy or "")

    def test_other_columns_are_read_by_spark_in_a_session_of_defaults(
        self, spark: Any, saved: str, default: None
    ) -> None:
        found = load(spark, saved, columns=["n"], by="spark")
        assert (is_by_spark(found), found.collect()) == (True, [(1,)])

    def test_columns_are_read_by_spark_where_the_session_says_so(
        self, spark: Any, saved: str
    ) -> None:
        found = load(spark, saved, where="t > time'04:00'")
        assert (is_by_spark(found), found.count()) == (True, 1)

    @pytest.mark.parametrize("unit", [pa.time32("ms"), pa.time64("us"), pa.time64("ns")], ids=str)
    def test_files_of_other_programs_are_read_in_each_unit(
        self, spark: Any, url: str, unit: pa.DataType
    ) -> None:
        values = pa.array([dt.time(4, 5), None], pa.time64("us")).cast(unit)
        put_foreign(url, "f.parquet", pa.table({"t": values}))
        assert load(spark, url).collect() == [(dt.time(4, 5),), (None,)]


def test_partitions_are_cut_off_before_spark_plans(spark: Any, url: str) -> None:
    put(url, (1, "x"), (2, "x"), (3, "é/%[*]? '"), (4, None), (5, "01"))
    every = load(spark, url)
    assert is_by_spark(every)
    assert rows(every)[3:] == [{"n": 4, "p": None}, {"n": 5, "p": "01"}]
    assert every.where("p = '01'").collect() == [(5, "01")]
    some = load(spark, url, where="p >= 'x' and n > 1", columns=["p"])
    assert sorted(some.collect()) == [("x",), ("é/%[*]? '",)]
    assert len(some.inputFiles()) == 2
    assert numbers(load(spark, url, partitions=["p=01"])) == [5]


def test_a_table_that_is_read_by_heads(
    spark: Any, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Saved by tasks, replaced in part, read by Spark itself: whoever lists sees nothing."""
    frame = spark.createDataFrame([(1, "x"), (2, "y"), (3, None)], "n long, p string")
    save(frame, url, partition_by=["p"], options={"readers": "heads"})
    save(frame.where("n = 1"), url, mode="append", partition_by=["p"])
    with Table(url).job(SCHEMA, mode="overwrite") as job:
        job.write(pa.table({"n": [20], "p": ["y"]}, SCHEMA))
    for by in ("spark", "zero_rename"):
        found = load(spark, url, by=by)
        assert is_by_spark(found) is (by == "spark")
        assert sorted((row["n"], row["p"] or "") for row in found.collect()) == [
            (1, "x"),
            (1, "x"),
            (3, ""),
            (20, "y"),
        ]
    assert load(spark, url, where="p = 'y'").collect() == [(20, "y")]
    register(spark)
    assert numbers(spark.read.format("zero_rename").load(url)) == [1, 1, 3, 20]
    with pytest.raises(Exception, match=r"UNABLE_TO_INFER_SCHEMA|Unable to infer schema"):
        spark.read.parquet(url.replace("s3://", "s3a://"))
    monkeypatch.setattr("zero_rename.spark.reading.listed_parquet._PLACES", 2)
    assert not is_by_spark(load(spark, url))


def test_an_unpartitioned_table(spark: Any, url: str) -> None:
    with Table(url).job(SCHEMA) as job:
        job.write(pa.table({"n": [1], "p": ["x"]}, SCHEMA))
    found = load(spark, url)
    assert is_by_spark(found)
    assert found.collect() == [(1, "x")]


def test_a_table_below_a_folder_that_looks_like_a_partition(
    spark: Any, url: str, native_application: Application
) -> None:
    put(f"{url}/env=prod/q=2", (1, "x"))
    found = load(spark, f"{url}/env=prod/q=2")
    assert (is_by_spark(found), found.columns, found.collect()) == (True, ["n", "p"], [(1, "x")])
    put(f"{url}/n=7/t", (1, "x"))
    with pytest.raises(InvalidInputError, match="the column n from its own path"):
        load(spark, f"{url}/n=7/t", by="spark")
    assert load(spark, f"{url}/n=7/t").collect() == [(1, "x")]


def test_the_state_stays_whatever_is_committed_and_refreshed(spark: Any, url: str) -> None:
    put(url, (1, "x"), (2, "y"))
    frame = load(spark, url)
    create_view(spark, "loaded", url)
    put(url, (3, "x"))
    spark.sql("refresh table loaded")
    spark.catalog.refreshByPath(url.replace("s3:", "s3a:"))
    assert numbers(frame) == numbers(spark.table("loaded")) == [1, 2]
    assert numbers(load(spark, url)) == [1, 2, 3]
    # What Spark wrote there would lie in the folder of its list, and be lost.
    with pytest.raises(Exception, match=r"(?i)insert"):
        spark.sql("insert into loaded values (4, 'x')")
    with pytest.raises(Exception, match=r"(?i)insert"):
        frame.write.insertInto("loaded", overwrite=True)
    spark.catalog.dropTempView("loaded")


def test_files_that_are_gone_are_never_left_out(spark: Any, url: str, ignoring: None) -> None:
    put(url, (1, "x"), (2, "y"))
    frame = load(spark, url)
    put(url, (3, "x"), mode="overwrite")
    with pytest.raises(Exception, match=r"FILE_NOT_EXIST|FileNotFoundException"):
        frame.collect()
    assert numbers(frame.where("p = 'y'")) == [2]
    assert numbers(load(spark, url)) == [2, 3]


def test_a_session_that_asks_another_store(
    spark: Any, url: str, native_application: Application
) -> None:
    bucket = native_application.new_bucket()
    other = f"s3://{bucket}/t"
    put(other, (1, "x"))
    with native_application.set({f"fs.s3a.bucket.{bucket}.endpoint": "http://127.0.0.1:1"}):
        with pytest.raises(InvalidInputError, match=r"fs.s3a.endpoint is 127\.0\.0\.1:1, and"):
            load(spark, other, by="spark")
        found = load(spark, other)
        assert (is_by_spark(found), found.collect()) == (False, [(1, "x")])


def test_an_overwrite_is_held_against_what_was_loaded(spark: Any, url: str) -> None:
    put(url, (1, "x"))
    old = load(spark, url)
    put(url, (2, "x"))
    with pytest.raises(CommitConflictError, match="p=x"):
        save(old.selectExpr("n * 10 n", "p"), url, mode="overwrite")
    assert numbers(load(spark, url)) == [1, 2]


def test_dynamic_overwrites_that_append_are_warned_of(
    native_application: Application,
    spark: Any,
    url: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SPARK-47618 and SPARK-56588: nobody chose the protocol but Spark."""
    put(url, (1, "x"))
    place = f"file://{native_application.folder}/overwritten"
    for _ in range(2):
        frame = spark.range(10).selectExpr("id", "id % 2 day").write.partitionBy("day")
        dynamic = frame.option("partitionOverwriteMode", "dynamic")
        dynamic.mode("overwrite").parquet(place)
    assert spark.read.parquet(place).count() == 20, "replaced: the warning is needless"
    new = spark.createDataFrame([(2, "y")], "n bigint, p string")
    for call in (lambda: load(spark, url), lambda: save(new, url), lambda: register(spark)):
        monkeypatch.setattr(preflight, "_warned", set())
        caplog.clear()
        call()
        call()
        said = [one for one in caplog.messages if "keeps the old rows beside" in one]
        assert len(said) == 1, "once an application"
        assert "spark-hadoop-cloud_2.13-4.1.1.jar" in said[0]
    monkeypatch.setattr(preflight, "_warned", set())
    caplog.clear()
    with native_application.with_committer("magic"):
        load(spark, url)
    assert "keeps the old rows beside" not in caplog.text, "it would be refused"


def test_letters_escaped_as_utf8_are_left_to_this_package_s_reader(spark: Any, url: str) -> None:
    put_foreign(url, "p=Z%C3%BCrich/part-0.parquet", pa.table({"n": [1]}))
    found = load(spark, url)
    assert not is_by_spark(found)
    assert rows(found) == [{"n": 1, "p": "Zürich"}]
    with pytest.raises(InvalidInputError, match=r"Z%C3%BCrich.* escaped as UTF-8"):
        load(spark, url, by="spark")
