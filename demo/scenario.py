"""The story: a backfill, three days, a correction, a crash, the run that cleans up, and history."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date

from zero_rename import Table
from zero_rename.tables import DeltaTable

from .airflow import CLEARED, FIRST, RETRIED, Airflow, airflow
from .compare import Difference, committed, differences, strays
from .dataset import Flights, RowDigest, partition_on
from .environment import airflow_variables, variables
from .history import History
from .processes import started, tail
from .report import RunReport, RunRow
from .store import Store
from .workspace import CHECKOUT, DemoError, Workspace, shown

DAG_ID = "flights_daily"
TABLE = "flights"
MONTHS = (1, 2)
DAYS = (date(2013, 2, 1), date(2013, 2, 2), date(2013, 2, 3))
CORRECTED = date(2013, 2, 2)
CRASHED = date(2013, 2, 4)
UNDONE = date(2013, 2, 3)
_EXAMPLES = CHECKOUT / "example_dags"
#: Seconds. No step takes as long; then something is wrong.
_PATIENCE = 180.0


@dataclass
class Scenario:
    """The steps, and what they share.

    :param csv: what the CSV holds, by partition.
    :param expected: what the table has to hold in the end.
    """

    workspace: Workspace
    store: Store
    report: RunReport
    flights: Flights
    table: Table
    environment: Mapping[str, str]
    csv: Mapping[str, RowDigest]
    expected: dict[str, RowDigest] = field(default_factory=dict)

    def backfill(self) -> None:
        """January as one Spark job: 31 partitions, one decision."""
        january = {name: c for name, c in self.csv.items() if "/month=1/" in name}
        log = self.workspace.logs / "backfill.log"
        application = _EXAMPLES / "jobs" / "flights_job.py"
        command = ["spark-submit", "--master", "local[2]", str(application)]
        command += ["--csv", str(self.flights.path), "--table", self.table.root.url]
        command += ["--month", "2013-01"]
        with (
            self._run("January, one backfill job", january),
            started(command, self.environment, log) as process,
        ):
            if process.wait(_PATIENCE) != 0:
                raise DemoError(f"The backfill failed; {shown(log)} ends with:\n{tail(log, 40)}")
        self.expected |= january

    def load(self, worker: Airflow, day: date, name: str, how: str = FIRST) -> None:
        """One DAG run: one day, one partition."""
        partition = partition_on(day)
        with self._run(name, {partition: self.csv[partition]}):
            worker.run(day, how, {"csv": str(self.flights.path)})
        self.expected[partition] = self.csv[partition]

    def correct(self, worker: Airflow, day: date) -> None:
        """The same DAG run once more, with a corrected file: a replace."""
        partition = partition_on(day)
        path = self.workspace.data / "flights-corrected.csv"
        corrected = self.flights.corrected(day, path).contents(MONTHS)
        seen = {"before the replace": self.look(partition)}
        with self._run(f"{day:%-d February} again, corrected", corrected):
            worker.run(day, CLEARED, {"csv": str(path)})
        self.expected |= corrected
        seen["after the replace"] = self.look(partition)
        self.report.before_and_after(partition, seen)

    def crash(self, worker: Airflow, day: date) -> None:
        """A run whose machine fails between its uploads and its decision."""
        partition = partition_on(day)
        name = f"{day:%-d February}, killed half-way"
        before, begun = self.store.requests(), time.monotonic()
        with self.report.step(name):
            worker.begin(day, FIRST, {"csv": str(self.flights.path)})
            self._wait_for_uploads(worker, partition)
            killed = worker.kill()
        run = RunRow(name, 0, self.csv[partition].rows, 0, 0, 0, seconds=time.monotonic() - begun)
        run.requests = _difference(before, self.store.requests())
        self.report.runs.append(run)
        left = self.store.uploads(self.table.root.partition_prefix(partition))
        self.report.say(
            f"   kill -9 of {killed} processes; uploads left: {len(left)}; "
            f"a reader of {partition} sees {self.look(partition).rows} rows"
        )
        if self.look(partition).rows or not left:
            raise DemoError("The killed run left rows, or no upload to clean up.")

    def _wait_for_uploads(self, worker: Airflow, partition: str) -> None:
        prefix = self.table.root.partition_prefix(partition)
        deadline = time.monotonic() + _PATIENCE
        while not self.store.has_uploaded(prefix):
            if worker.has_answered(0.05):
                raise DemoError(
                    f"The run of {partition} ended before it could be killed: {worker.wait()}. "
                    "Either it failed, or this store does not list uploads under way."
                )
            if time.monotonic() > deadline:
                raise DemoError(f"No upload to {prefix} was seen for {_PATIENCE:.0f} s.")

    def look(self, partition: str) -> RowDigest:
        """What a reader of one partition sees now."""
        return committed(self.table, [partition])[partition]

    def check(self) -> list[Difference]:
        """Compare every committed row with the CSV, and what is listed with what is named."""
        found = committed(self.table)
        wrong = differences(self.expected, found) + strays(self.table, self.store)
        total = sum(found.values(), RowDigest())
        self.report.say(
            f"   {total.rows:,} rows in {len(found)} partitions read back and compared with the "
            f"CSV; open jobs: {len(self.table.open_jobs())}"
        )
        return wrong

    def history(self, day: date) -> list[Difference]:
        """The same in a Delta table, where what is replaced can be read and brought back."""
        table = DeltaTable(f"{self.table.root.url}_history", client=self.store.client)
        second = History.begun(self.table, table, self.report, self.expected)
        return second.tell(self.flights, day, self.workspace.data / "flights-undone.csv")

    @contextmanager
    def _run(self, name: str, csv: Mapping[str, RowDigest]) -> Iterator[None]:
        """Time a run, count its requests, and add it to the table of runs."""
        before, begun = self.store.requests(), time.monotonic()
        with self.report.step(name):
            yield
        run = RunRow(name, csv_rows=sum(csv.values(), RowDigest()).rows)
        run.seconds = time.monotonic() - begun
        run.requests = _difference(before, self.store.requests())
        marker = self.table.marker()
        result = self.table.result(marker.job) if marker else None
        if result is None:
            raise DemoError(f"{name} ended well and committed nothing.")
        run.partitions, run.files = len(result.partitions), result.files
        run.rows, run.bytes = result.rows, result.bytes
        self.report.runs.append(run)


def _difference(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


def tell(workspace: Workspace, store: Store, report: RunReport) -> list[Difference]:
    """Tell the whole story.

    :return: what is not as it should be in the end.
    :raises DemoError: a step failed.
    """
    root = f"s3://{store.name}"
    environment = variables(workspace, store)
    environment |= airflow_variables(workspace, store, root)
    shutil.copytree(_EXAMPLES, workspace.airflow / "dags")
    table = Table(f"{root}/{TABLE}", client=store.client)
    with airflow(DAG_ID, environment, workspace.logs / "airflow.log", migrate=True) as worker:
        with report.step("unpack flights.csv, 336,776 rows; Airflow starts beside it"):
            flights = Flights.unpack(workspace.data)
            csv = flights.contents(MONTHS)
        story = Scenario(workspace, store, report, flights, table, environment, csv)
        story.backfill()
        with report.step("wait for Airflow"):
            worker.wait_until_ready()
        for day in DAYS:
            story.load(worker, day, f"{day:%-d February}, a DAG run")
        story.correct(worker, CORRECTED)
        with airflow(DAG_ID, environment, workspace.logs / "airflow-2.log") as successor:
            story.crash(worker, CRASHED)
            successor.wait_until_ready()
            story.load(successor, CRASHED, f"{CRASHED:%-d February}, next try cleans up", RETRIED)
    with report.step("compare with the CSV"):
        wrong = story.check()
    return wrong + story.history(UNDONE)
