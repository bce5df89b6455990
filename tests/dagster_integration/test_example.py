"""The example project: its assets, materialised on a real server, hold the rows of the CSV file."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import dagster as dg
import pytest

from dagster_zero_rename import ZeroRenameResource
from demo.dataset import RowDigest, content, partition_of
from support.dagster_flights import example, run_january
from support.dagster_loads import days, told
from support.flights import flights_csv, rows_of
from zero_rename.committer import Table
from zero_rename.committer.store.requests import Delete

pytestmark = pytest.mark.memory_s3

__all__ = ["flights_csv"]


def by_partition(rows: list[dict[str, Any]]) -> dict[str, RowDigest]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(partition_of(row), []).append(row)
    return {name: content(part) for name, part in found.items()}


class Project:
    """The example, its tables in a bucket of their own."""

    def __init__(self, module: ModuleType, root: str, instance: dg.DagsterInstance) -> None:
        self.module = module
        self.root = root
        self.instance = instance

    @property
    def table(self) -> Table:
        return Table(f"{self.root}/flights")

    def stored(self) -> dict[str, RowDigest]:
        return by_partition(self.table.to_arrow().to_pylist())

    def load(self, first: str, last: str, *assets: dg.AssetsDefinition, **given: Any) -> Any:
        return dg.materialize(
            [self.module.flights, self.module.weekly_delays],
            selection=list(assets or [self.module.flights]),
            tags=days(first, last),
            resources=self.module.defs.resources,
            instance=self.instance,
            **given,
        )


@pytest.fixture
def project(flights_csv: Path, bucket: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    root = f"s3://{bucket}/lake"
    monkeypatch.setenv("FLIGHTS_CSV", str(flights_csv))
    monkeypatch.setenv("FLIGHTS_ROOT", root)
    module = example()
    with dg.DagsterInstance.ephemeral() as instance:
        yield Project(module, root, instance)


def test_january_is_one_run_and_one_commit(project: Project, flights_csv: Path) -> None:
    events = told(project.load("2013-01-01", "2013-01-31"))
    assert project.stored() == by_partition(rows_of(flights_csv))
    assert len(events) == 31
    assert len({m["zero_rename/job"] for m in events.values()}) == 1


def test_a_correction_replaces_its_flights(
    project: Project, flights_csv: Path, tmp_path: Path
) -> None:
    project.load("2013-01-01", "2013-01-02")
    mended = tmp_path / "corrections.csv"
    lines = flights_csv.read_text().splitlines()
    [head, first, *_] = lines
    names = head.split(",")
    values = first.split(",")
    values[names.index("dep_delay")] = "999"
    mended.write_text(f"{head}\n{','.join(values)}\n")
    config = {"ops": {"flights": {"config": {"corrections": str(mended)}}}}
    project.load("2013-01-01", "2013-01-01", run_config=config)
    expected = [row for row in rows_of(flights_csv) if row["day"] in (1, 2)]
    expected[0] |= {"dep_delay": 999}
    assert project.stored() == by_partition(expected)


def test_weeks_are_made_of_days(project: Project, flights_csv: Path) -> None:
    project.load("2013-01-01", "2013-01-12")
    project.load("2012-12-30", "2013-01-06", project.module.weekly_delays)
    expected: Counter[tuple[date, str]] = Counter()
    for row in rows_of(flights_csv):
        day = date(row["year"], row["month"], row["day"])
        if row["day"] <= 12:
            expected[day - timedelta(days=day.isoweekday() % 7), row["carrier"]] += 1
    weekly = Table(f"{project.root}/weekly_delays").to_arrow().to_pylist()
    assert {(row["week"], row["carrier"]): row["flights"] for row in weekly} == expected


def test_its_schedule_loads_the_day_before(project: Project) -> None:
    repository = project.module.defs.get_repository_def()
    context = dg.build_schedule_context(
        scheduled_execution_time=datetime.fromisoformat("2013-01-05T03:00:00+00:00"),
        repository_def=repository,
    )
    schedule = repository.get_schedule_def(project.module.daily.name)
    [request] = schedule.evaluate_tick(context).run_requests
    assert request.partition_key == "2013-01-04"


def test_its_check_sees_the_files(project: Project) -> None:
    project.load("2013-01-01", "2013-01-02")
    checks = list(project.module.defs.asset_checks)
    resources = project.module.defs.resources

    def passed() -> bool:
        result = dg.materialize(
            [project.module.flights, *checks],
            selection=dg.AssetSelection.checks(*checks),
            tags=days("2013-01-01", "2013-01-02"),
            resources=resources,
            instance=project.instance,
        )
        [found] = result.get_asset_check_evaluations()
        return found.passed

    assert passed()
    lost = project.table.files()[0]
    project.table.driver.run(Delete(lost.key))
    assert not passed()


def test_its_sensor_tells_what_others_load(project: Project) -> None:
    project.load("2013-01-01", "2013-01-02")
    stored = project.table.to_arrow(partitions=["year=2013/month=1/day=2"])
    with project.table.job(
        stored.schema, mode="replace", partition_by=["year", "month", "day"]
    ) as job:
        job.write(stored)
    sensor = project.module.defs.resolve_sensor_def("flights_heads")
    context = dg.build_sensor_context(
        instance=project.instance,
        repository_def=project.module.defs.get_repository_def(),
        resources={"zero_rename": project.module.defs.resources["zero_rename"]},
    )
    events = sensor.evaluate_tick(context).asset_events
    assert [event.partition for event in events] == ["2013-01-02"]


FIRST_DAYS = days("2013-01-01", "2013-01-03")
write = ZeroRenameResource.write


@pytest.fixture
def first_days(flights_csv: Path) -> dict[str, RowDigest]:
    return by_partition([row for row in rows_of(flights_csv) if row["day"] <= 3])


class TestAgain:
    """Runs that are cut short or executed again leave each row once."""

    @pytest.mark.parametrize("from_failure", [True, False])
    def test_a_run_that_failed_after_its_commit(
        self, project: Project, first_days: dict[str, RowDigest], from_failure: bool
    ) -> None:
        def fails(resource: Any, *given: Any, **more: Any) -> None:
            write(resource, *given, **more)
            raise RuntimeError("the worker is gone")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ZeroRenameResource, "write", fails)
            first = run_january(project.instance, FIRST_DAYS)
        assert not first.success
        assert project.stored() == first_days
        again = run_january(project.instance, FIRST_DAYS, first.run_id, from_failure)
        repeated = {m["zero_rename/repeated"] for m in told(again).values()}
        assert repeated == {from_failure}
        assert project.stored() == first_days

    def test_a_step_that_is_retried(
        self, project: Project, first_days: dict[str, RowDigest]
    ) -> None:
        calls: list[int] = []

        def twice(resource: Any, *given: Any, **more: Any) -> Any:
            done = write(resource, *given, **more)
            calls.append(1)
            if len(calls) == 1:
                raise dg.RetryRequested(max_retries=1)
            return done

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ZeroRenameResource, "write", twice)
            result = run_january(project.instance, FIRST_DAYS)
        assert len(calls) == 2
        assert {m["zero_rename/repeated"] for m in told(result).values()} == {True}
        assert project.stored() == first_days

    @pytest.mark.usefixtures("s3_server")
    @pytest.mark.parametrize("decided", [False, True])
    def test_a_run_that_is_killed(
        self, project: Project, first_days: dict[str, RowDigest], tmp_path: Path, decided: bool
    ) -> None:
        """With its rows uploaded and its partitions claimed, right before it decides or right
        after; and is executed again from its failure."""
        program = _KILLED.format(home=str(tmp_path), decided=decided)
        environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        ended = subprocess.run([sys.executable, "-c", program], env=environ, check=False)
        assert ended.returncode == -signal.SIGKILL
        # What maintenance does when the job has been silent for long enough.
        if not decided:
            project.table.recover(patience=0)
        with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
            [killed] = instance.get_runs()
            # As the daemon's monitoring of runs does, when a worker is gone.
            instance.report_run_failed(killed)
            again = run_january(instance, FIRST_DAYS, killed.run_id, from_failure=True)
            assert {m["zero_rename/repeated"] for m in told(again).values()} == {decided}
        assert project.stored() == first_days


_KILLED = """
import os, signal
import dagster as dg
from support.dagster_flights import run_january
from support.dagster_loads import days
from zero_rename.committer.store.boto_calls import S3Requests
from zero_rename.committer.store.requests import Put

send = S3Requests.carry_out

def killed(calls, request, pause):
    decides = isinstance(request, Put) and "/jobs/" in request.key
    if decides and not {decided}:
        os.kill(os.getpid(), signal.SIGKILL)
    answer = send(calls, request, pause)
    if decides:
        os.kill(os.getpid(), signal.SIGKILL)
    return answer

S3Requests.carry_out = killed
with dg.DagsterInstance.local_temp({home!r}) as instance:
    run_january(instance, days("2013-01-01", "2013-01-03"))
"""
