"""Single scenes that take minutes, or a cluster: a long shuffle, and speculation."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from torture.inspection import uploads
from torture.proxy import Proxy
from torture.servers import Store
from torture.spark_writers import SparkProgram, kill_session
from torture.writers import Recoverer, environment

from support.spark import settings
from support.waiting import STUCK
from zero_rename import Table
from zero_rename.spark.startup.installation import java_command, spark_home
from zero_rename.spark.startup.launch import SMALL_JOB_FLAGS

#: Seconds: the shuffle's length; how long the recoverer beside it lets a job be silent, two and
#: a half of the intervals at which heartbeats are sent; and its pause between two looks.
SHUFFLE, PATIENCE, PAUSE = 130.0, 75.0, 10.0
ROWS = 40

_SHUFFLE = """
import time
from zero_rename.spark import register
url, seconds, rows, given = arguments
spark = session(given)
register(spark)

def slow(batches):
    time.sleep(seconds)
    yield from batches

frame = spark.range(0, rows, 1, 1).mapInArrow(slow, "id long").repartition(2)
save(frame, url, "append")
"""

# Enough bytes for task 0 to have finished files when its first attempt gets stuck: rows of small
# batches are gathered first.
_SPECULATION = """
import os, time
url, master, rows, given = arguments
spark = session(given, master)
from zero_rename.spark import register
register(spark)

def stuck_at_first(batches):
    from pyspark import TaskContext
    context = TaskContext.get()
    import pyarrow as pa
    for number, batch in enumerate(batches):
        noise = pa.array([os.urandom(512 * 1024) for _ in range(batch.num_rows)], pa.binary())
        yield pa.RecordBatch.from_arrays([batch.column(0), noise], ["id", "noise"])
        if number == 3 and context.partitionId() == 0 and context.attemptNumber() == 0:
            time.sleep(600)

frame = spark.range(0, rows, 1, 4).mapInArrow(stuck_at_first, "id long, noise binary")
save(frame, url, "append", rowsPerFile="1")
"""


def long_shuffle(store: Store, bucket: str, folder: Path) -> str:
    """Signs of life at their real interval, a shuffle of more than two minutes.

    :returns: what happened, for the summary.
    :raises AssertionError: it went wrong.
    """
    url = f"s3://{bucket}/long-shuffle"
    table = Table(url, client=store.client())
    variables = store.environment()
    started = time.monotonic()
    # Adaptive execution runs a shuffle's first half before the write is planned, and so before
    # its job is open; without it all of the shuffle is part of the job.
    given = settings(folder) | {"spark.sql.adaptive.enabled": "false"}
    program = SparkProgram(_SHUFFLE, [url, SHUFFLE, ROWS, given], variables, folder)
    outcomes: Counter[str] = Counter()
    try:
        while program.silent:
            if table.open_jobs():
                found = Recoverer(url, variables, PATIENCE).outcomes()
                assert isinstance(found, list), found
                outcomes.update(outcome["outcome"] for outcome in found)
            time.sleep(PAUSE)
        answer = program.answer()
    finally:
        program.close()
    took = time.monotonic() - started
    assert answer == "committed", answer or program.errors.read_text("utf-8")[-3000:]
    # A recovery that comes as the job ends finds it committed.
    assert set(outcomes) <= {"left", "committed"}, outcomes
    assert outcomes["left"] * PAUSE > PATIENCE, outcomes
    _assert_whole(store, table)
    return (
        f"a job silent in its tasks for {SHUFFLE:.0f} s: committed after {took:.0f} s; recovery "
        f"with {PATIENCE:.0f} s of patience left it alone {outcomes['left']} times"
    )


def speculation(store: Store, bucket: str, folder: Path) -> str:
    """Spark runs a second attempt of a task beside the first and kills the loser, which has
    finished files: its uploads are swept, its rows are not there twice.

    :returns: what happened, for the summary.
    :raises AssertionError: it went wrong.
    """
    url = f"s3://{bucket}/speculation"
    given = settings(folder) | {
        "spark.speculation": "true",
        "spark.speculation.efficiency.enabled": "false",
        "spark.speculation.interval": "500ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.minTaskRuntime": "2s",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "2",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.executor.extraJavaOptions": " ".join(SMALL_JOB_FLAGS),
    }
    with (
        Proxy(store.endpoint) as proxy,
        _cluster(folder, environment(store.environment(proxy.endpoint))) as master,
    ):
        variables = store.environment(proxy.endpoint)
        program = SparkProgram(_SPECULATION, [url, master, ROWS, given], variables, folder)
        try:
            answer = program.answer()
        finally:
            program.close()
    assert answer == "committed", answer or program.errors.read_text("utf-8")[-3000:]
    creates = Counter(s.key for s in proxy.seen if s.operation == "CreateMultipartUpload")
    twice = [key for key, count in creates.items() if count > 1]
    assert twice, "the loser had uploaded nothing"
    left = _assert_whole(store, Table(url, client=store.client()))
    return (
        f"speculation: committed, each of {ROWS} rows once; of {len(twice)} uploads of the loser "
        f"{left} were left to purge"
    )


def _assert_whole(store: Store, table: Table) -> int:
    """Every row once; purge gets what a killed attempt added after the close."""
    found = sorted(table.to_arrow(columns=["id"]).column("id").to_pylist())
    assert found == list(range(ROWS)), found
    assert table.open_jobs() == []
    assert table.verify() == []
    left = uploads(table, store.client())
    table.purge(apply=True)
    assert uploads(table, store.client()) == []
    return len(left)


@contextlib.contextmanager
def _cluster(folder: Path, variables: dict[str, str]) -> Iterator[str]:
    """A standalone master with two workers that look like two hosts: speculation needs them."""
    home = spark_home()
    deploy = "org.apache.spark.deploy"
    java = [str(java_command()), *SMALL_JOB_FLAGS, "-Xmx256m", "-cp", f"{home}/jars/*"]
    # What Spark's own scripts would set; without it a worker cannot start an executor.
    (library,) = (home / "jars").glob("scala-library-*.jar")
    scala = ".".join(library.stem.removeprefix("scala-library-").split(".")[:2])
    variables = variables | {"SPARK_HOME": str(home), "SPARK_SCALA_VERSION": scala}
    master = ["master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    processes: list[subprocess.Popen[bytes]] = []

    def start(name: str, host: str, arguments: list[str]) -> Path:
        log = folder / f"{name}.log"
        with log.open("wb") as output:
            processes.append(
                subprocess.Popen(
                    [*java, f"{deploy}.{arguments[0]}", *arguments[1:]],
                    env=variables | {"SPARK_LOCAL_IP": host},
                    cwd=folder,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
            )
        return log

    try:
        url = _read(start("master", "127.0.0.1", master), "Starting Spark master at ")
        for number in (1, 2):
            host = f"127.0.0.{number}"
            own = ["--host", host, "--webui-port", "0", "-c", "2", "-m", "1g", "-d", str(folder)]
            log = start(f"worker{number}", host, ["worker.Worker", *own, url])
            _read(log, "Successfully registered with master ")
        yield url
    finally:
        for process in processes:
            kill_session(process.pid)
            process.wait()


def _read(log: Path, marker: str) -> str:
    """The word after ``marker`` in a log, once it is there."""
    give_up = time.monotonic() + STUCK
    while time.monotonic() < give_up:
        text = log.read_text("utf-8", "replace")
        if marker in text:
            return text.split(marker, 1)[1].split()[0]
        time.sleep(0.1)
    raise AssertionError(f"{marker!r} never came: {log.read_text('utf-8', 'replace')[-3000:]}")
