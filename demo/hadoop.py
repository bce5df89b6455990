"""The story by one of Hadoop's committers: two days, a correction, a crash, and the next try."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date

from tools.fetch_s3a_jars import cached_jars
from zero_rename import Table
from zero_rename.s3a.hadoop.settings import Committer

from .airflow import CLEARED, FIRST, RETRIED, Airflow, airflow
from .compare import Difference, committed, differences
from .dataset import Flights, RowDigest, partition_on
from .environment import airflow_variables, variables
from .report import RunReport, RunRow
from .store import Store
from .workspace import CHECKOUT, DemoError, Workspace

DAG_ID, TABLE = "flights_daily", "flights"
MONTHS = (2,)
DAYS = (date(2013, 2, 1), date(2013, 2, 2))
CORRECTED, CRASHED = date(2013, 2, 2), date(2013, 2, 3)
#: Seconds. No step takes as long; then something is wrong.
_PATIENCE = 180.0
#: What each does, for who sees it for the first time.
_HOW: Mapping[Committer, str] = {
    Committer.MAGIC: "tasks upload each file in parts to its final name, where nobody sees it, and "
    "leave a list of their uploads below __magic; the job's commit completes the uploads",
    Committer.DIRECTORY: "tasks write to the disk and upload when they commit; the job's commit "
    "removes the folder's old files and completes the uploads",
    Committer.PARTITIONED: "tasks write to the disk and upload when they commit; the job's commit "
    "removes the old files of the partitions that have rows, and completes the uploads",
}


def check_committer(name: str) -> Committer:
    """Return the committer of a name, whose jars are there.

    :raises DemoError: there is no such committer, or its jars were not fetched.
    """
    if name not in list(Committer):
        raise DemoError(
            f"COMMITTER={name!r} is no committer of Hadoop's. Nothing was started. Give one of "
            f"{', '.join(Committer)}; without COMMITTER this package's own writes."
        )
    if cached_jars() is None:
        raise DemoError(
            f"COMMITTER={name} needs Hadoop's jars (700 MB), which are not there. Nothing was "
            "started. Run make s3a-jars, once."
        )
    return Committer(name)


@dataclass
class HadoopStory:
    """The steps, and what they share.

    :param csv: what the CSV holds, by partition.
    :param expected: what the table has to hold in the end.
    """

    committer: Committer
    workspace: Workspace
    store: Store
    report: RunReport
    flights: Flights
    table: Table
    csv: Mapping[str, RowDigest]
    expected: dict[str, RowDigest] = field(default_factory=dict)

    def conf(self, path: object) -> dict[str, str]:
        """What a run of the example DAG is given."""
        return {"csv": str(path), "committer": str(self.committer)}

    def load(self, worker: Airflow, day: date, name: str, how: str = FIRST) -> None:
        """One DAG run: one day, one job of the committer."""
        partition = partition_on(day)
        with self._run(name, partition, self.csv[partition]):
            worker.run(day, how, self.conf(self.flights.path))
        self.expected[partition] = self.csv[partition]

    def correct(self, worker: Airflow, day: date) -> None:
        """The same DAG run once more, with a corrected file: an overwrite."""
        partition = partition_on(day)
        path = self.workspace.data / "flights-corrected.csv"
        corrected = self.flights.corrected(day, path).contents(MONTHS)
        seen = {"before the overwrite": self.look(partition)}
        with self._run(f"{day:%-d February} again, corrected", partition, corrected[partition]):
            worker.run(day, CLEARED, self.conf(path))
        self.expected |= corrected
        seen["after the overwrite"] = self.look(partition)
        self.report.before_and_after(partition, seen)

    def crash(self, worker: Airflow, day: date) -> None:
        """A run whose machine fails while its job is being written, or commits."""
        partition = partition_on(day)
        name = f"{day:%-d February}, killed half-way"
        before, begun = self.store.requests(), time.monotonic()
        with self.report.step(name):
            worker.begin(day, FIRST, self.conf(self.flights.path))
            self._wait_until_written(worker, partition)
            killed = worker.kill()
        rows, left = self.look(partition).rows, self._uploads()
        run = RunRow(name, 0, self.csv[partition].rows, rows, 0, 0)
        run.seconds = time.monotonic() - begun
        run.requests = _difference(before, self.store.requests())
        self.report.runs.append(run)
        self.report.say(
            f"   kill -9 of {killed} processes; uploads left: {len(left)}; "
            f"a reader of {partition} sees {rows} rows"
        )
        self.report.say(
            "   The next try first waits until 90 s have passed without a heartbeat; then it "
            "finishes or undoes what is left"
        )

    def _wait_until_written(self, worker: Airflow, partition: str) -> None:
        """Wait until a task has uploaded its file and, by magic, put that on its list: an upload
        that is on no list is nobody's, and only maintenance aborts it."""
        prefix = self.table.root.partition_prefix(partition)
        deadline = time.monotonic() + _PATIENCE
        while not self._is_written(prefix):
            if worker.has_answered(0.05):
                raise DemoError(
                    f"The run of {partition} ended before it could be killed: {worker.wait()}. "
                    "Either it failed, or this store does not list uploads under way."
                )
            if time.monotonic() > deadline:
                raise DemoError(f"No upload to {prefix} was seen for {_PATIENCE:.0f} s.")

    def _is_written(self, prefix: str) -> bool:
        if self.committer is Committer.MAGIC:
            return self.store.has_put(prefix, ".pending")
        return self.store.has_uploaded(prefix)

    def look(self, partition: str) -> RowDigest:
        """What a reader of one partition sees now."""
        if not self._files(partition):
            return RowDigest()
        return committed(self.table, [partition])[partition]

    def check(self) -> list[Difference]:
        """Compare every row with the CSV, and see that no upload is left."""
        found = committed(self.table)
        wrong = differences(self.expected, found)
        wrong += [Difference(key, "an upload left behind") for key in self._uploads()]
        total = sum(found.values(), RowDigest())
        self.report.say(
            f"   {total.rows:,} rows in {len(found)} partitions read back and compared with the CSV"
        )
        copies = self.store.copies(f"{self.table.root.prefix}/")
        if copies is not None:
            self.report.say(f"   requests that copied an object, as a rename does: {copies}")
        return wrong

    def _uploads(self) -> list[str]:
        return self.store.uploads(f"{self.table.root.prefix}/")

    def _files(self, partition: str) -> list[str]:
        keys = self.store.keys(self.table.root.partition_prefix(partition))
        return [key for key in keys if key.endswith(".parquet")]

    @contextmanager
    def _run(self, name: str, partition: str, csv: RowDigest) -> Iterator[None]:
        """Time a run, count its requests, and add it to the table of runs."""
        before, begun = self.store.requests(), time.monotonic()
        with self.report.step(name):
            yield
        run = RunRow(name, 1, csv.rows)
        run.seconds = time.monotonic() - begun
        run.requests = _difference(before, self.store.requests())
        files = self._files(partition)
        sizes = self.store.sizes()
        run.files, run.bytes = len(files), sum(sizes[key] for key in files)
        run.rows = self.look(partition).rows
        self.report.runs.append(run)
        self._tell_marker(partition)

    def _tell_marker(self, partition: str) -> None:
        """Say what the committer's own _SUCCESS says of the job.

        :raises DemoError: another committer has written it.
        """
        by_root = self.committer is Committer.PARTITIONED
        folder = f"{self.table.root.prefix}/" if by_root else None
        key = (folder or self.table.root.partition_prefix(partition)) + "_SUCCESS"
        said = json.loads(self.store.read(key))
        self.report.say(
            f"   _SUCCESS: committer {said['committer']}, job {said['jobId']}, "
            f"{len(said['filenames'])} file(s)"
        )
        if said["committer"] != self.committer:
            raise DemoError(f"{key} is of the committer {said['committer']!r}.")


def _difference(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


def hadoop_variables(workspace: Workspace) -> dict[str, str]:
    """Variables by which Spark has Hadoop's jars, and keeps its folders in the workspace."""
    jars, folder = cached_jars() or (), workspace.temporary
    settings = {
        "spark.hadoop.hadoop.tmp.dir": f"{folder}/hadoop",
        "spark.hadoop.fs.s3a.committer.staging.tmp.path": f"file://{folder}/staging",
    }
    options = " ".join(f'"-D{name}={value}"' for name, value in settings.items())
    # Behind Spark's own jars, by which its class archive was made.
    return {"SPARK_DIST_CLASSPATH": os.pathsep.join(map(str, jars)), "SPARK_SUBMIT_OPTS": options}


@contextmanager
def begun(
    committer: Committer, workspace: Workspace, store: Store, report: RunReport
) -> Iterator[tuple[HadoopStory, Airflow, dict[str, str]]]:
    """The story before its first step, with an Airflow that is ready, and what a second one is
    started with."""
    root = f"s3://{store.name}"
    environment = variables(workspace, store) | airflow_variables(workspace, store, root)
    for name, value in hadoop_variables(workspace).items():
        environment[name] = f"{environment.get(name, '')} {value}".strip()
    shutil.copytree(CHECKOUT / "example_dags", workspace.airflow / "dags")
    table = Table(f"{root}/{TABLE}", client=store.client)
    with airflow(DAG_ID, environment, workspace.logs / "airflow.log", migrate=True) as worker:
        with report.step("unpack flights.csv, 336,776 rows; Airflow starts beside it"):
            flights = Flights.unpack(workspace.data)
            csv = flights.contents(MONTHS)
        report.say(f"   committer={committer}: {_HOW[committer]}")
        with report.step("wait for Airflow"):
            worker.wait_until_ready()
        story = HadoopStory(committer, workspace, store, report, flights, table, csv)
        yield story, worker, environment


def tell(
    committer: Committer, workspace: Workspace, store: Store, report: RunReport
) -> list[Difference]:
    """Tell the whole story.

    :return: what is not as it should be in the end.
    :raises DemoError: a step failed.
    """
    with begun(committer, workspace, store, report) as (story, worker, environment):
        for day in DAYS:
            story.load(worker, day, f"{day:%-d February}, a DAG run")
        story.correct(worker, CORRECTED)
        with airflow(DAG_ID, environment, workspace.logs / "airflow-2.log") as successor:
            story.crash(worker, CRASHED)
            successor.wait_until_ready()
            name = f"{CRASHED:%-d February}, next try cleans up"
            story.load(successor, CRASHED, name, RETRIED)
    with report.step("compare with the CSV"):
        return story.check()
