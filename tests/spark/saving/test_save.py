"""``save()`` on whatever Spark there is. ``test_older_spark.py`` runs this module on another one,
so it asks for nothing but PySpark, pytest, and a bucket."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import zero_rename
from support.waiting import until
from zero_rename import Table
from zero_rename.committer import (
    CommitConflictError,
    Committed,
    DestinationExistsError,
    InvalidInputError,
    JobFencedError,
    JobSpec,
    RefusedError,
    SupersededRunError,
    TableMismatchError,
    TaskResultsError,
)
from zero_rename.committer.format.job_spec import OnConflict
from zero_rename.committer.write_job import WriteJob
from zero_rename.spark import load, save
from zero_rename.spark.saving import spark_tasks, task_rows
from zero_rename.spark.types import arrow_schema
from zero_rename.tables import DeltaTable

pytestmark = pytest.mark.spark


@pytest.fixture
def url(s3_bucket: Any) -> str:
    return f"s3://{s3_bucket.name}/lake/table"


@pytest.fixture
def frame(spark: Any) -> Any:
    return spark.createDataFrame([(1, "x"), (2, "y"), (3, "x")], "n int, p string")


def saved(frame: Any, url: str, **given: Any) -> Committed:
    """What a native save did."""
    done = save(frame, url, **given)
    assert isinstance(done, Committed)
    return done


def numbers(url: str, column: str = "id") -> list[int]:
    return sorted(Table(url).to_arrow()[column].to_pylist())


def nothing_left(bucket: Any, url: str) -> bool:
    assert bucket.uploads() == []
    assert [key for key in bucket.keys("lake/") if key.endswith(".parquet")] == []
    assert Table(url).open_jobs() == []
    return True


class TestModes:
    def test_append_overwrite_and_named_partitions(self, url: str, frame: Any) -> None:
        first = saved(frame, url, partition_by=["p"])
        files = Table(url).files()
        assert (first.job, first.table, first.rows) == (Table(url).partition_job("p=x"), url, 3)
        assert (first.files, first.bytes) == (len(files), sum(file.size for file in files))
        assert {p.partition: (p.version, p.rows) for p in first.partitions} == {
            "p=x": (1, 2),
            "p=y": (1, 1),
        }
        again = saved(frame.where("p = 'x'").selectExpr("p", "n * 10 n"), url, mode="overwrite")
        assert [(p.partition, p.version, p.rows) for p in again.partitions] == [("p=x", 2, 2)]
        assert again.partitions[0].removed == first.partitions[0].files
        assert numbers(url, "n") == [2, 10, 30]
        save(frame.where("false"), url, mode="overwrite", partitions=["p=x"])
        assert numbers(url, "n") == [2]
        with pytest.raises(InvalidInputError, match="p=y"):
            save(frame, url, partitions=["p=x"])
        with pytest.raises(DestinationExistsError, match="p=y"):
            save(frame, url, mode="fail-if-exists")
        assert numbers(url, "n") == [2]

    def test_more_partitions_than_are_open_from_unsorted_rows(self, spark: Any, url: str) -> None:
        rows = spark.range(0, 60, 1, 2).selectExpr("id", "id % 7 p")
        report = saved(rows, url, partition_by=["p"], options={"maxOpenPartitions": "2"})
        assert (report.rows, len(report.partitions), report.files) == (60, 7, 14)
        assert numbers(url) == list(range(60))

    def test_requests_of_many_tasks(self, spark: Any, s3_bucket: Any, url: str) -> None:
        """Three a file and 14, and four more of a process that asks for its rights."""
        save(spark.range(1), url)
        s3_bucket.counter.reset()
        save(spark.range(0, 24, 1, 6), url)
        looks = [key for name, key in s3_bucket.counter.log() if name == "HeadObject"]
        asked = [key for key in looks if "/_zero_rename/jobs/" in key]
        ends_are_seen = hasattr(spark, "_jsparkSession")
        assert len(asked) == (0 if ends_are_seen else 6)
        assert s3_bucket.counter.total() - len(looks) <= 3 * 6 + 14 + 4

    @pytest.mark.parametrize("empty", ["no row", "filtered", "no partition", "no list"])
    def test_empty_frames(self, spark: Any, s3_bucket: Any, url: str, empty: str) -> None:
        nothing = {
            "no row": lambda: spark.range(3).where("false"),
            "filtered": lambda: spark.range(3).where("id > 5").repartition(3),
            "no partition": lambda: spark.createDataFrame(spark.sparkContext.emptyRDD(), "id long"),
            "no list": lambda: spark.createDataFrame([], "id long"),
        }[empty]()
        report = saved(nothing, url)
        assert (report.rows, report.files) == (0, 0)
        assert Table(url).schema.names == ["id"]
        assert nothing_left(s3_bucket, url)

    def test_files_of_as_many_rows_as_the_session_says(
        self, spark: Any, url: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """As for Spark's own writer; an option of the write wins. Many small files are told of."""
        rows = spark.range(0, 250, 1, 1)
        spark.conf.set("spark.sql.files.maxRecordsPerFile", "20")
        try:
            with caplog.at_level("WARNING", logger="zero_rename.spark.saving.commit_log"):
                many = saved(rows, url)
            few = saved(rows, url, options={"maxRecordsPerFile": "200"})
        finally:
            spark.conf.unset("spark.sql.files.maxRecordsPerFile")
        one = saved(rows, url)
        assert [done.files for done in (many, few, one)] == [13, 2, 1]
        told = [it.getMessage() for it in caplog.records if it.name.endswith("commit_log")]
        [said] = [text for text in told if "every reader opens each" in text]
        assert "up to 13 files below 1 MiB in a partition" in said
        assert f"zero-rename compact {url}" in said
        small = [done.many_small for done in (many, few, one)]
        assert small == [("_unpartitioned",), (), ()]

    def test_names_that_are_syntax_to_spark(self, spark: Any, url: str) -> None:
        frame = spark.createDataFrame([(1, 2, 3)], ["a.b", "c`d", "E e"])
        save(frame, url, partition_by=["c`d"])
        assert Table(url).to_arrow(["a.b", "E e", "c`d"]).to_pylist() == [
            {"a.b": 1, "E e": 3, "c`d": 2}
        ]

    def test_once(self, url: str, frame: Any) -> None:
        first = saved(frame, url, options={"idempotency_key": "a run"})
        second = saved(frame, url, options={"idempotency_key": "a run"})
        assert (second.repeated, second.job) == (True, first.job)
        assert numbers(url, "n") == [1, 2, 3]

    def test_what_cannot_be_written(self, spark: Any, s3_bucket: Any, url: str) -> None:
        with pytest.raises(InvalidInputError, match="'n' and 'N'"):
            save(spark.sql("select 1 n, 2 N"), url)
        with pytest.raises(InvalidInputError, match="interval month"):
            save(spark.sql("select interval '3' month a"), url)
        with pytest.raises(InvalidInputError, match="streaming frame"):
            save(spark.readStream.format("rate").load(), url)
        assert s3_bucket.keys() == []
        save(spark.sql("select 1 n"), url)
        with pytest.raises(TableMismatchError, match="m is not in the table"):
            save(spark.sql("select 1 n, 2 m"), url)
        assert Table(url).open_jobs() == []


def test_types(spark: Any, url: str) -> None:
    """In a session whose zone is not UTC; the partition column stands in the middle."""
    from pyspark.ml.linalg import Vectors

    frame = spark.sql(
        "select 1 n, timestamp'2013-01-01 05:00:00.123456' t, date'0999-01-02' d,"
        " timestamp_ntz'1500-01-01 05:00:00.123456' l, X'00ff80' b,"
        " cast('12345678901234567890.123456789012345678' as decimal(38,18)) m,"
        " interval '1 02:03:04.5' day to second i, 'héé' s, null v,"
        " named_struct('a', 1, 'b', array(named_struct('c', 'x', 'd', 1.5D))) r,"
        " map('a', 1, 'b', null) k, array(timestamp'2013-01-01 05:00:00') y"
    )
    with_type = spark.createDataFrame([(1, Vectors.dense([1.0, 2.0]))], ["n", "u"])
    save(frame.join(with_type, "n"), url, partition_by=["d"])
    [row] = Table(url).to_arrow().to_pylist()
    instant = dt.datetime(2013, 1, 1, 10, 0, 0, 123456, dt.UTC)
    assert (row["t"], row["y"]) == (instant, [instant.replace(microsecond=0)])
    assert row["d"] == dt.date(999, 1, 2)
    assert row["l"] == dt.datetime(1500, 1, 1, 5, 0, 0, 123456)
    assert row["m"] == Decimal("12345678901234567890.123456789012345678")
    assert row["i"] == dt.timedelta(days=1, hours=2, minutes=3, seconds=4.5)
    assert (row["b"], row["s"], row["v"]) == (b"\x00\xff\x80", "héé", None)
    assert row["r"] == {"a": 1, "b": [{"c": "x", "d": 1.5}]}
    assert row["k"] == [("a", 1), ("b", None)]
    assert row["u"]["values"] == [1.0, 2.0]


def test_decimals_of_a_delta_table(spark: Any, url: str) -> None:
    """Files hold the first three as whole numbers, of which an older pyarrow tells no bounds."""
    values = "cast({} as decimal(4,1)) a, cast({} as decimal(18,18)) b, cast({} as decimal(18,0)) c"
    values += ", cast({} as decimal(38,9)) d"
    some = "-2.5", "'0.000000000000000001'", "123456789012345678", "'-0.000000001'"
    others = "1.5", "null", "'-1'", "'1'"
    frame = spark.sql(" union all ".join(f"select {values.format(*it)}" for it in (some, others)))
    save(frame, url, layout="delta")
    found = DeltaTable(url).scan().to_arrow().sort_by("a").to_pylist()
    assert [tuple(row.values()) for row in found] == sorted(map(tuple, frame.collect()))
    bounds = [
        json.loads(file.statistics, parse_float=Decimal)
        for file in DeltaTable(url).snapshot().files
    ]
    assert {str(it["minValues"]["a"]) for it in bounds} <= {"-2.5", "1.5"}
    assert "0.000000000000000001" in {f"{it['maxValues'].get('b', 0):f}" for it in bounds}


@pytest.mark.parametrize("layout", ["directory", "delta"])
def test_local_times_are_loaded_as_such(spark: Any, url: str, layout: str) -> None:
    """Also where no file tells Spark's type of them: of partitions, and of rows of Python."""
    at, p = dt.datetime(2013, 1, 1, 5), dt.datetime(2013, 1, 2)
    data = pa.table({"n": [1], "at": [at], "p": [p]})
    table = Table(url) if layout == "directory" else DeltaTable(url)
    with table.job(data.schema, partition_by=["p"]) as job:
        job.write(data)
    save(
        spark.sql("select 2 n, at, array(at) some, p from {t}", t=load(spark, url)),
        url + "-2",
        partition_by=["p"],
        layout=layout,
    )
    assert load(spark, url).collect() == [(1, at, p)]
    assert load(spark, url + "-2").select("at", "some", "p").collect() == [(at, [at], p)]
    assert "p timestamp_ntz" in ", ".join(map(" ".join, load(spark, url + "-2").dtypes))


def test_the_flights_pipeline(spark: Any, url: str, tmp_path: Path) -> None:
    """A month, then a day of it again with corrections: the same table on every Spark."""
    from zero_rename.example_dags.jobs import flights_job as job

    flights, corrections = tmp_path / "flights.csv", tmp_path / "corrections.csv"
    rows = [flight(number) for number in range(200)]
    late = [{**row, "dep_delay": 99} for row in rows if row["day"] == 2][:5]
    for path, given in ((flights, rows), (corrections, late)):
        lines = [",".join(rows[0]), *(",".join(map(text, row.values())) for row in given)]
        path.write_text("\n".join(lines))
    month = job.of_month(job.read_flights(spark, str(flights)), dt.date(2013, 1, 1))
    days = job.days_of(dt.date(2013, 1, 1))
    by = job.PARTITION_BY
    save(month.repartition(*by), url, partition_by=by, mode="overwrite", partitions=days)
    frame = job.corrected(month, job.read_flights(spark, str(corrections)))
    second = job.of_day(frame, dt.date(2013, 1, 2)).repartition(*by)
    one = [job.partition_path(dt.date(2013, 1, 2))]
    report = saved(second, url, partition_by=by, mode="overwrite", partitions=one)
    assert [(p.version, p.rows) for p in report.partitions] == [(2, 50)]
    flown = {row["flight"] for row in late}
    expected = [{**row, **({"dep_delay": 99} if row["flight"] in flown else {})} for row in rows]
    found = Table(url).to_arrow().sort_by("flight")
    assert found.select(list(rows[0])).to_pylist() == expected
    assert str(found.schema.field("time_hour").type) == "timestamp[us, tz=UTC]"


def flight(number: int) -> dict[str, Any]:
    day, hour = number % 4 + 1, number % 24
    return {
        **{"year": 2013, "month": 1, "day": day},
        **{"dep_time": 517, "sched_dep_time": 515, "dep_delay": None if number % 17 == 0 else 2},
        **{"arr_time": 830, "sched_arr_time": 819, "arr_delay": 11, "carrier": "UA"},
        **{"flight": number, "tailnum": f"N{number}", "origin": "EWR", "dest": "IAH"},
        **{"air_time": 227, "distance": 1400, "hour": hour, "minute": 15},
        "time_hour": dt.datetime(2013, 1, day, hour, tzinfo=dt.UTC),
    }


def text(value: Any) -> str:
    if value is None:
        return "NA"
    return f"{value:%Y-%m-%dT%H:%M:%SZ}" if isinstance(value, dt.datetime) else str(value)


class TestTasks:
    def test_a_retried_task_counts_once(self, spark: Any, s3_bucket: Any, url: str) -> None:
        def fail_first(batches: Any) -> Any:
            from pyspark import TaskContext

            context = TaskContext.get()
            assert context is not None
            yield from batches
            if context.attemptNumber() < 2 and context.partitionId() == 1:
                raise RuntimeError("not yet")

        report = saved(spark.range(0, 100, 1, 2).mapInArrow(fail_first, "id long"), url)
        assert (report.rows, report.files) == (100, 2)
        assert numbers(url) == list(range(100))
        assert s3_bucket.uploads() == []

    def test_a_stage_that_is_run_again(self, spark: Any, s3_bucket: Any, url: str, tmp_path: Path):
        """The first tasks of the last stage remove what the others have yet to fetch."""
        lost, local = tmp_path / "lost", spark.sparkContext.getConf().get("spark.local.dir")

        def lose(batches: Any) -> Any:
            from pathlib import Path

            yield from batches
            if not lost.exists():
                lost.touch()
                for file in Path(local).rglob("shuffle_*"):
                    file.unlink(missing_ok=True)

        rows = spark.range(0, 1000, 1, 2).repartition(6, "id").mapInArrow(lose, "id long")
        report = saved(rows, url)
        assert lost.exists()
        stages = spark.sparkContext._jsc.sc().statusTracker()
        job = max(stages.getJobIdsForTag(f"zero-rename-{report.job}"))
        attempts = [
            stages.getStageInfo(stage).get().currentAttemptId()
            for stage in stages.getJobInfo(job).get().stageIds()
        ]
        assert max(attempts) > 0, "no stage was run again: the test shows nothing"
        assert report.rows == 1000
        assert numbers(url) == list(range(1000))
        assert s3_bucket.uploads() == []

    def test_a_killed_worker(self, spark: Any, s3_bucket: Any, url: str) -> None:
        def die(batches: Any) -> Any:
            import os
            import signal

            from pyspark import TaskContext

            context = TaskContext.get()
            assert context is not None
            yield from batches
            if context.partitionId() == 1:
                os.kill(os.getpid(), signal.SIGKILL)

        rows = spark.range(0, 40, 1, 2).mapInArrow(die, "id long")
        with pytest.raises(Exception, match="crashed"):
            save(rows, url)
        assert nothing_left(s3_bucket, url)

    def test_the_users_own_error(self, spark: Any, s3_bucket: Any, url: str) -> None:
        def fail(batches: Any) -> Any:
            yield from batches
            raise RuntimeError("the user's own")

        with pytest.raises(Exception, match="the user's own") as caught:
            save(spark.range(0, 40, 1, 2).mapInArrow(fail, "id long"), url)
        assert not isinstance(caught.value, zero_rename.ZeroRenameError)
        assert nothing_left(s3_bucket, url)

    def test_an_error_of_ours_keeps_its_class(self, spark: Any, s3_bucket: Any, url: str) -> None:
        bad = "if(id = 199, '__HIVE_DEFAULT_PARTITION__', concat('p', id div 150)) as p"
        rows = spark.range(0, 200, 1, 2).selectExpr("id", bad)
        with pytest.raises(InvalidInputError, match="would be read back as null") as caught:
            save(rows, url, partition_by=["p"], options={"rowsPerFile": "10"})
        assert "Traceback" not in str(caught.value)
        assert "\tat " not in str(caught.value)
        assert nothing_left(s3_bucket, url)

    def test_a_job_that_is_declared_dead_while_its_tasks_write(
        self, spark: Any, s3_bucket: Any, url: str
    ) -> None:
        def settle(batches: Any) -> Any:
            yield from batches
            Table(url).recover(patience=0)

        frame = spark.range(0, 3, 1, 1).mapInArrow(settle, "id long")
        with pytest.raises(JobFencedError, match="declared this job dead") as caught:
            save(frame, url)
        assert "send heartbeats" in str(caught.value.remedy)
        assert nothing_left(s3_bucket, url)

    def test_another_version_in_the_workers(
        self, spark: Any, s3_bucket: Any, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        there = zero_rename.__version__
        monkeypatch.setattr(zero_rename, "__version__", "99.0")
        with pytest.raises(InvalidInputError, match=f"has zero_rename {there}.*has 99.0") as caught:
            save(spark.range(3), url)
        assert "--py-files" in str(caught.value)
        assert nothing_left(s3_bucket, url)

    def test_another_python_in_the_workers(
        self, spark: Any, s3_bucket: Any, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(spark.sparkContext, "pythonVer", "3.9")
        with pytest.raises(InvalidInputError, match=r"is Python 3.\d+, and the driver's 3.9") as it:
            save(spark.range(3), url)
        assert "PYSPARK_PYTHON" in str(it.value.remedy)
        assert nothing_left(s3_bucket, url)

    @pytest.mark.parametrize("package", ["boto3", "pyarrow"])
    def test_workers_without(
        self,
        spark: Any,
        s3_bucket: Any,
        url: str,
        package: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Without pyarrow Spark's own worker ends, before it has any function of ours."""
        missing = f"raise ModuleNotFoundError(\"No module named '{package}'\")"
        (tmp_path / f"{package}.py").write_text(missing)
        monkeypatch.setitem(spark.sparkContext.environment, "PYTHONPATH", str(tmp_path))
        with pytest.raises(InvalidInputError, match=f"has no {package}") as caught:
            save(spark.range(3), url)
        assert "--py-files" in str(caught.value)
        assert nothing_left(s3_bucket, url)

    def test_results_of_tasks_that_are_missing(self, url: str) -> None:
        import pickle

        from zero_rename.committer.format.records.pending_file import TaskResult

        opened = Table(url).open_job(JobSpec(pa.schema({"id": pa.int64()})))
        first, last = ((task, pickle.dumps(TaskResult(opened.job, task, 0, ()))) for task in (0, 2))
        for rows in ([first, last, (3, None)], [first, (2, None)], [first], [first, (0, None)]):
            with pytest.raises(TaskResultsError, match="Not every task has reported"):
                spark_tasks._results(opened, rows)
        assert len(spark_tasks._results(opened, [first, (1, None)])) == 1
        Table(url).abort(opened)

    def test_sparks_ui_says_what_the_tasks_are_for(
        self, spark: Any, url: str, tmp_path: Path
    ) -> None:
        said = tmp_path / "said"

        def look(batches: Any) -> Any:
            from pyspark import TaskContext

            context = TaskContext.get()
            assert context is not None
            said.write_text(context.getLocalProperty("spark.job.description") or "")
            yield from batches

        context = spark.sparkContext
        context.setJobDescription("the user's")
        try:
            report = saved(spark.range(1).mapInArrow(look, "id long"), url)
            assert said.read_text() == f"zero_rename: {url}, job {report.job}"
            assert context.getLocalProperty("spark.job.description") == "the user's"
        finally:
            context.setLocalProperty("spark.job.description", None)


class TestConflicts:
    def test_another_job_meanwhile(self, s3_bucket: Any, spark: Any, url: str) -> None:
        save(spark.sql("select 1L n, 'x' p"), url, partition_by=["p"])
        # moto is one of the stores on which a second writer is refused, since they might race.
        key = "lake/table/_zero_rename/table.json"
        record = s3_bucket.read(key).replace(b'"atomic":false', b'"atomic":true')
        s3_bucket.put(key, record.replace(b'"atomic": false', b'"atomic": true'))

        def interfere(batches: Any) -> Any:
            import pyarrow as pa

            from zero_rename import Table

            yield from batches
            with Table(url).job(mode="replace") as job:
                job.write(pa.table({"n": [7], "p": ["x"]}))

        rows = spark.sql("select 2L n, 'x' p").coalesce(1).mapInArrow(interfere, "n long, p string")
        with pytest.raises(CommitConflictError, match="p=x"):
            save(rows, url, mode="overwrite")
        assert numbers(url, "n") == [7]
        save(rows, url, mode="overwrite", options={"onConflict": OnConflict.LAST_WINS})
        assert numbers(url, "n") == [2]
        assert s3_bucket.uploads() == []
        assert Table(url).open_jobs() == []

    def test_run_leaves_out_what_a_newer_one_has_loaded(self, spark: Any, url: str) -> None:
        newer = {"onConflict": "newest_run", "runRank": "2"}
        save(spark.sql("select 7L n, 'x' p"), url, partition_by=["p"], options=newer)
        older = {"onConflict": "newest_run", "onSuperseded": "skip", "runRank": "1"}
        rows = spark.sql("select * from values (1L, 'x'), (2L, 'y') as t(n, p)")
        done = save(rows, url, mode="overwrite", options=older)
        assert isinstance(done, Committed)
        assert (list(done.superseded), done.left_out, done.rows) == (["p=x"], 1, 1)
        with pytest.raises(SupersededRunError) as caught:
            save(spark.sql("select 1L n, 'x' p"), url, mode="overwrite", options=older)
        assert caught.value.skips
        assert numbers(url, "n") == [2, 7]


@contextmanager
def once(file: Path, act: Callable[[], None]) -> Iterator[None]:
    """Act as soon as there is a file, unless the block has ended before."""
    over = threading.Event()

    def watch() -> None:
        until(f"{file.name} is there", lambda: over.is_set() or file.exists())
        if not over.is_set():
            act()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


class TestCancelling:
    """While a task waits for a file that never comes."""

    @pytest.fixture
    def endless(self, spark: Any, tmp_path: Path) -> Any:
        begun = tmp_path / "begun"

        def wait(batches: Any) -> Any:
            import time

            yield from batches
            begun.touch()
            time.sleep(600)

        return spark.range(0, 4, 1, 2).mapInArrow(wait, "id long"), begun

    def test_a_job_group(self, spark: Any, s3_bucket: Any, url: str, endless: Any) -> None:
        frame, begun = endless

        def cancel() -> None:
            spark.sparkContext.cancelJobGroup("the user's")

        spark.sparkContext.setJobGroup("the user's", "nightly load", True)
        try:
            with (
                pytest.raises(RefusedError, match="Spark cancelled the tasks") as caught,
                once(begun, cancel),
            ):
                save(frame, url)
            assert caught.value.table == url
            assert caught.value.__cause__ is not None, "Spark's own error is kept"
        finally:
            for name in ("spark.jobGroup.id", "spark.job.description"):
                spark.sparkContext.setLocalProperty(name, None)
        assert nothing_left(s3_bucket, url)

    def test_ctrl_c(self, spark: Any, s3_bucket: Any, url: str, endless: Any) -> None:
        frame, begun = endless

        def interrupt() -> None:
            os.kill(os.getpid(), signal.SIGINT)

        with pytest.raises(KeyboardInterrupt) as caught, once(begun, interrupt):
            save(frame, url)
        assert "is aborted: nothing of it is visible" in caught.value.__notes__[0]
        assert nothing_left(s3_bucket, url)
        report = saved(spark.range(2), url)
        assert report.rows == 2


LIMITS = tuple(f"spark.sql.execution.arrow.max{it}PerBatch" for it in ("Records", "Bytes"))


def sizes_of_batches(spark: Any, binary: bool = False) -> Any:
    """A frame of what the batches are that Spark computes it from, five thousand rows in all, and
    whether it measures them."""

    def look(batches: Any) -> Any:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        limit = context.getLocalProperty("spark.sql.execution.arrow.maxBytesPerBatch")
        rows = [(batch.num_rows, limit, b"") for batch in batches]
        columns = [
            pa.array(column, kind)
            for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)
        ]
        yield pa.record_batch(columns[: 3 if binary else 2], names[: 3 if binary else 2])

    names, kinds = ["n", "limit", "b"], ["int32", "string", "binary"]
    schema = "n int, limit string" + (", b binary" if binary else "")
    return spark.range(0, 5000, 1, 1).mapInArrow(look, schema)


def batches_seen(url: str) -> list[tuple[int, str | None]]:
    rows = Table(url).to_arrow().to_pylist()
    return [(row["n"], row["limit"]) for row in rows]


class TestBatches:
    """Spark adds up the bytes of a batch after each of its rows, unless told not to."""

    @pytest.mark.parametrize(
        ("columns", "rows"),
        [
            ("id, 1.5D x, named_struct('n', 1) s", 2000),
            ("id, 'x' s", 500),
            ("id, array(1) a", 500),
            ("map('a', 1) m, named_struct('s', 'x', 'n', 1) s, 'x' t", 500),
            (", ".join(f"'x' s{n}" for n in range(100)), 250),
        ],
    )
    def test_of_a_save_are_not_measured(self, spark: Any, columns: str, rows: int) -> None:
        """A batch of 2,000 texts of 300 kB did not fit the memory of an executor."""
        frame = spark.sql(f"select {columns} from range(1)")
        with spark_tasks._quick_batches(frame, arrow_schema(frame.schema)):
            limits = [spark.conf.get(key, None) for key in LIMITS]
        assert limits == ([str(rows), str(2**31 - 1)] if spark.version >= "4.1" else [None, None])
        assert all(spark.conf.get(key, None) is None for key in LIMITS)

    @pytest.mark.parametrize("binary", [True, False])
    def test_where_a_row_may_be_long_or_python_computes_it_are(
        self, spark: Any, url: str, binary: bool
    ) -> None:
        save(sizes_of_batches(spark, binary), url)
        assert batches_seen(url) == [(5000, None)]

    def test_where_a_row_may_be_long_without_python_are(self, spark: Any) -> None:
        frame = spark.sql("select array(X'00') b")
        with spark_tasks._quick_batches(frame, arrow_schema(frame.schema)):
            assert all(spark.conf.get(key, None) is None for key in LIMITS)

    @pytest.mark.parametrize(("limit", "value"), [(LIMITS[0], "3000"), (LIMITS[1], "1m")])
    def test_as_the_session_says(self, spark: Any, url: str, limit: str, value: str) -> None:
        spark.conf.set(limit, value)
        try:
            save(sizes_of_batches(spark), url)
            assert spark.conf.get(limit) == value
        finally:
            spark.conf.unset(limit)
        assert sum(n for n, _ in batches_seen(url)) == 5000


def test_a_frame_is_planned_while_its_job_opens(
    spark: Any, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job opens no sooner than Spark has begun with the frame."""
    begun, opened_after = threading.Event(), []
    mark, enter = task_rows.end_mark, WriteJob.__enter__

    def begin() -> Any:
        begun.set()
        return mark()

    def open_then(job: WriteJob) -> WriteJob:
        opened_after.append(begun.wait(30))
        return enter(job)

    monkeypatch.setattr(spark_tasks, "end_mark", begin)
    monkeypatch.setattr(WriteJob, "__enter__", open_then)
    save(spark.range(5), url)
    assert opened_after == [True]
    assert Table(url).to_arrow().num_rows == 5
