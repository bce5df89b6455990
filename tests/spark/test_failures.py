"""What goes wrong, in tasks and at planning: what the user reads, and that nothing is left."""

from __future__ import annotations

import json
import time

import pyarrow as pa
import pytest

from support.spark_tables import data_keys, open_records, read, rows, worker_environment, write
from zero_rename.committer import (
    FileOptions,
    InvalidInputError,
    JobSpec,
    OutcomeUnknownError,
    Owner,
    Table,
    TaskLateError,
    TaskResultsError,
)
from zero_rename.committer.commit.failures import failures_told, read_failure
from zero_rename.spark.types import table_schema
from zero_rename.spark.writer import TableWriter

pytestmark = pytest.mark.spark


def nothing_left(bucket):
    """Neither data nor uploads nor open jobs."""
    assert bucket.uploads() == []
    assert data_keys(bucket, "lake/") == []
    assert open_records(bucket, "lake/table") == []
    return True


def message(caught):
    """What the user reads: one paragraph, without the traceback of a worker."""
    text = str(caught.value)
    assert "Traceback" not in text
    assert "zero_rename.committer.errors." in text
    return text


def test_a_failing_task_leaves_no_upload(spark, s3_bucket, url):
    """Task 1 has uploaded files of its own before it meets the bad row, task 0 is done by then."""
    counter = s3_bucket.counter

    def wait_for_task_0(batches):
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        while context.partitionId() == 1:
            # A task looks at its job's decision when it has uploaded all.
            if any(name == "HeadObject" and "/jobs/" in key for name, key in counter.log()):
                break
            time.sleep(0.05)
        yield from batches

    bad = "if(id = 199, '__HIVE_DEFAULT_PARTITION__', concat('p', id div 150)) as p"
    frame = spark.range(0, 200, 1, 2).mapInArrow(wait_for_task_0, "id long").selectExpr("id", bad)
    with pytest.raises(Exception, match="would be read back as null") as caught:
        write(frame, url, partitionBy="p", rowsPerFile="10")
    assert "InvalidInputError" in message(caught)
    aborted = [key for name, key in s3_bucket.counter.log() if name == "AbortMultipartUpload"]
    assert [key for key in aborted if "/part-" in key]
    assert nothing_left(s3_bucket)


def test_an_error_of_the_user_s_own_code(spark, s3_bucket, url):
    frame = spark.range(0, 100, 1, 1).selectExpr("assert_true(id < 90) as a", "id")
    with pytest.raises(Exception, match="USER_RAISED_EXCEPTION"):
        write(frame, url)
    assert nothing_left(s3_bucket)


def test_the_task_itself_aborts_its_uploads_when_its_rows_end_in_an_error(s3_bucket, url):
    """Not the job's abort, which may come late, or never where the driver is killed."""
    # More than is gathered before files are written.
    batch = pa.record_batch({"n": range(200_000)})
    opened = Table(url).open_job(JobSpec(batch.schema, files=FileOptions(rows_per_file=50_000)))

    s3_bucket.counter.reset()

    def rows_of_the_user():
        yield batch
        raise RuntimeError("the user's own")

    with pytest.raises(RuntimeError, match="the user's own"):
        TableWriter(opened).write(rows_of_the_user())
    counts = s3_bucket.counter.counts()
    assert counts["AbortMultipartUpload"] == counts["CreateMultipartUpload"] > 0
    assert s3_bucket.uploads() == []


def test_attempts_have_other_numbers_in_a_stage_that_is_run_again(spark, s3_bucket, url, tmp_path):
    """Spark numbers a task's attempts anew there. One of a barrier's tasks fails, and the whole
    stage runs again, the tasks that had ended included."""
    schema = pa.schema({"id": pa.int64()})
    writer = TableWriter(Table(url).open_job(JobSpec(schema)))
    seen, failed = tmp_path / "seen", tmp_path / "failed"
    seen.mkdir()

    def write_then_fail_once(batches):
        from pyspark import BarrierTaskContext

        context = BarrierTaskContext.get()
        result = writer.write(batches).result
        (seen / f"{result.task}-{result.attempt}-{context.attemptNumber()}").touch()
        is_first = not failed.exists()
        context.barrier()
        if is_first:
            if context.partitionId() == 0:
                # To be killed with the other one: where it ends just after that, Spark counts it
                # as done, runs the other one alone, and that waits at the barrier for ever.
                time.sleep(60)
            failed.touch()
            raise RuntimeError("not yet")
        yield pa.record_batch({"task": [result.task]})

    frame = spark.range(0, 4, 1, 2).mapInArrow(write_then_fail_once, "task long", barrier=True)
    # Spark runs a barrier's stage again only where it is not the last.
    assert sorted(row["task"] for row in frame.repartition(1).collect()) == [0, 1]
    tasks, attempts, numbers = zip(*(path.name.split("-") for path in seen.iterdir()), strict=True)
    assert sorted(tasks) == ["0", "0", "1", "1"]
    assert set(numbers) == {"0"}, "Spark numbered the attempts on: the test shows nothing"
    assert len(set(zip(tasks, attempts, strict=True))) == 4
    writer.abort([])
    assert nothing_left(s3_bucket)


def test_a_retried_task_counts_once(spark, s3_bucket, url):
    def fail_first(batches):
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        yield from batches
        if context.attemptNumber() < 2 and context.partitionId() == 1:
            raise RuntimeError("not yet")

    frame = spark.range(0, 100, 1, 2).mapInArrow(fail_first, "id long")
    write(frame, url)
    assert read(spark, url).selectExpr("count(*)", "sum(id)").collect() == [(100, 4950)]
    assert len(data_keys(s3_bucket, "lake/")) == 2
    assert s3_bucket.uploads() == []
    assert open_records(s3_bucket, "lake/table") == []


def test_a_killed_worker_leaves_what_the_abort_sweeps(spark, s3_bucket, url):
    def die(batches):
        import os
        import signal

        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            yield batch
            if context.partitionId() == 1:
                os.kill(os.getpid(), signal.SIGKILL)

    frame = spark.range(0, 40, 1, 2).mapInArrow(die, "id long")
    with pytest.raises(Exception, match="crashed"):
        write(frame, url)
    assert nothing_left(s3_bucket)


def test_mismatches_are_refused_before_any_upload(spark, s3_bucket, url):
    write(spark.sql("select 1 n, 'x' p"), url, partitionBy="p")
    there = data_keys(s3_bucket, "lake/")
    s3_bucket.counter.reset()
    cases = {
        "select 'one' n, 'x' p": "n is string, in the table int32",
        "select 1 n": "p is missing",
        "select 1 n, 'x' p, 2 m": "m is not in the table",
    }
    for query, problem in cases.items():
        with pytest.raises(Exception, match=problem) as caught:
            write(spark.sql(query), url)
        assert "TableMismatchError" in message(caught)
    with pytest.raises(Exception, match="The table is partitioned by p") as caught:
        write(spark.sql("select 1 n, 'x' p"), url, partitionBy="n")
    message(caught)
    assert "CreateMultipartUpload" not in s3_bucket.counter.counts()
    assert data_keys(s3_bucket, "lake/") == there
    assert open_records(s3_bucket, "lake/table") == []


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("select interval '3' month a", "'a' has the type interval month"),
        ("select array(named_struct('b', interval '3' month)) a", r"'a\[\].b' has the type"),
        ("select 1 a, 2 a", "Two columns are named 'a' and 'a'"),
        ("select 1 a, 2 A", "Two columns are named 'a' and 'A'"),
        ("select st_geomfromwkb(X'0101000000000000000000F03F0000000000000040') g", "geometry"),
        ("select struct() a", "without fields"),
    ],
)
def test_types_that_cannot_be_kept_are_refused_at_planning(spark, s3_bucket, url, query, problem):
    with pytest.raises(Exception, match=problem) as caught:
        write(spark.sql(query), url)
    message(caught)
    assert s3_bucket.counter.total() == 0


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"replacePartition": "p=x"}, "Is replacePartitions meant"),
        ({"secretKey": "hush"}, "looks like a credential"),
        ({"partitionBy": "q"}, "'q' is not among the columns"),
        ({"partitionBy": "n,p"}, "Every column is a partition column"),
        ({"compression": "zip"}, "'zip' is not available"),
        ({"replaceTable": "true"}, "needs mode overwrite"),
    ],
)
def test_bad_options(spark, s3_bucket, url, options, problem):
    with pytest.raises(Exception, match=problem) as caught:
        write(spark.sql("select 1 n, 'x' p"), url, **options)
    assert "hush" not in message(caught)
    assert s3_bucket.keys() == []


@pytest.mark.parametrize("root", ["/tmp/table", "s3://bucket", "s3://me:hush@bucket/table"])
def test_bad_roots(spark, root):
    with pytest.raises(Exception, match="InvalidInputError") as caught:
        write(spark.sql("select 1 n"), root)
    assert "hush" not in message(caught)


def test_sql_reaches_the_writer_without_options(spark, s3_bucket, url):
    spark.sql("create table if not exists by_sql (n int) using zero_rename")
    writes = (
        lambda: spark.sql("insert into by_sql values (1)"),
        lambda: spark.sql("select 1 n").write.insertInto("by_sql"),
        lambda: spark.sql(
            f"create table by_ctas using zero_rename options (path '{url}') as select 1 n"
        ),
        lambda: spark.sql("select 1 n").write.format("zero_rename").mode("append").save(),
    )
    for attempt in writes:
        with pytest.raises(Exception, match="without a table root") as caught:
            attempt()
        assert ".save(" in message(caught)
    with pytest.raises(Exception, match="cannot be read by their names"):
        spark.table("by_sql").count()
    spark.sql("drop table by_sql")
    with pytest.raises(Exception, match="CREATE TABLE … USING zero_rename was refused"):
        spark.sql(f"create table by_path using zero_rename options (path '{url}')")


def test_sql_writes_through_a_temporary_view(spark, url):
    write(spark.sql("select 1 n, 'a' p"), url, partitionBy="p")
    spark.sql(f"create temporary view by_view using zero_rename options (path '{url}')")
    spark.sql("insert into by_view values (2, 'b')")
    spark.sql("insert overwrite by_view values (3, 'a')")
    assert spark.sql("select n, p from by_view order by n").collect() == [(2, "b"), (3, "a")]
    spark.catalog.dropTempView("by_view")
    read(spark, url, partitions="p=b").createOrReplaceTempView("by_part")
    with pytest.raises(Exception, match="option for reading only"):
        spark.sql("insert into by_part values (4, 'b')")
    spark.catalog.dropTempView("by_part")


def test_a_table_that_is_registered_is_not_read_as_another(spark, url):
    """Spark hands the writer of saveAsTable what it hands that of save()."""
    frame = spark.sql("select 1 n")
    frame.write.format("zero_rename").mode("append").option("path", url).saveAsTable("by_name")
    with pytest.raises(Exception, match="the rows are there"):
        spark.table("by_name").count()
    spark.sql("drop table by_name")
    assert rows(read(spark, url)) == [{"n": 1}]


def test_streams_are_refused(spark, tmp_path, url):
    rate = spark.readStream.format("rate").load().writeStream.format("zero_rename")
    query = rate.option("checkpointLocation", str(tmp_path / "out")).start(url)
    with pytest.raises(Exception, match="has no writeStream"):
        query.processAllAvailable()
    write(spark.sql("select 1 n"), url)
    source = spark.readStream.format("zero_rename").load(url).writeStream.format("noop")
    with pytest.raises(Exception, match="has no readStream"):
        source.option("checkpointLocation", str(tmp_path / "in")).start().processAllAvailable()


def test_a_missing_bucket(spark):
    with pytest.raises(Exception, match="there is no such bucket") as caught:
        write(spark.sql("select 1 n"), "s3://no-such-bucket-anywhere/table")
    assert "Create the bucket" in message(caught)


def test_an_endpoint_that_does_not_answer(spark, url):
    # Nothing listens on port 9: the workers' own environment overrides the session's.
    with worker_environment(spark, AWS_ENDPOINT_URL="http://127.0.0.1:9"):
        started = time.monotonic()
        with pytest.raises(Exception, match="AWS_ENDPOINT_URL") as caught:
            write(spark.sql("select 1 n"), url)
        took = time.monotonic() - started
    assert "127.0.0.1:9" in message(caught)
    assert took < 90


@pytest.fixture
def done(spark, url):
    """A writer by which a task has written a row, and the task's message."""
    frame = spark.sql("select 1 n")
    writer = TableWriter(Table(url).open_job(JobSpec(table_schema(frame.schema, ()))))
    return writer, writer.write(iter(frame.toArrow().to_batches()))


def test_an_aborted_job_of_which_a_commit_stands(spark, url, done):
    """Spark calls a write failed whose commit was decided: the user is told it is committed."""
    writer, message = done
    writer.commit([message])
    with pytest.raises(OutcomeUnknownError, match="its rows are visible"):
        writer.abort([message, None])
    assert rows(read(spark, url)) == [{"n": 1}]


def test_a_missing_message_is_refused(s3_bucket, done):
    writer, message = done
    with pytest.raises(TaskResultsError, match="Only 1 of 2 tasks reported"):
        writer.commit([message, None])
    writer.abort([message, None])
    assert nothing_left(s3_bucket)


@pytest.mark.parametrize("dead", [True, False])
def test_what_is_on_record_of_a_run_whose_tasks_came_late(s3_bucket, url, dead):
    """What another process did to the job, or what the failed task told: not that others were
    late."""
    table, batch = Table(url), pa.record_batch({"n": [1]})
    spec = JobSpec(batch.schema, idempotency_key="the run", owner=Owner(task_id="load"))
    writer = TableWriter(table.open_job(spec))

    def rows_of_a_slow_task():
        yield batch
        if dead:
            table.recover(patience=0)
        else:
            with (
                pytest.raises(InvalidInputError),
                failures_told(table.root, spec.idempotency_key, spec.owner),
            ):
                raise InvalidInputError("A row that cannot be.")
            writer.abort([None, None])

    with pytest.raises(TaskLateError):
        writer.write(rows_of_a_slow_task())
    if dead:
        writer.abort([None, None])
    told = table.run(read_failure(table.root, "the run"))
    assert told is not None
    assert told.error == ("JobFencedError" if dead else "InvalidInputError")
    assert nothing_left(s3_bucket)


@pytest.mark.parametrize("policy", ["fail", "last_wins"])
def test_another_job_meanwhile(spark, s3_bucket, url, policy):
    """A plain Python job replaces the partition while this one's task runs."""

    def interfere(batches):
        import pyarrow as pa

        from zero_rename.committer import Table

        yield from batches
        table = Table(url)
        with table.job(mode="replace") as job:
            job.write(pa.table({"n": [7], "p": ["x"]}))

    write(spark.sql("select 1L n, 'x' p"), url, partitionBy="p")
    # moto is one of the stores on which a second writer is refused, since they might race.
    record = json.loads(s3_bucket.read("lake/table/_zero_rename/table.json"))
    record["store"]["atomic"] = True
    s3_bucket.put("lake/table/_zero_rename/table.json", json.dumps(record).encode())
    frame = spark.sql("select 2L n, 'x' p").coalesce(1).mapInArrow(interfere, "n long, p string")
    if policy == "last_wins":
        write(frame, url, "overwrite", onConflict="last_wins")
        assert [row["n"] for row in rows(read(spark, url))] == [2]
    else:
        with pytest.raises(Exception, match="CommitConflictError") as caught:
            write(frame, url, "overwrite")
        message(caught)
        assert [row["n"] for row in rows(read(spark, url))] == [7]
    assert s3_bucket.uploads() == []
    assert open_records(s3_bucket, "lake/table") == []
