"""Sensors that wait for what is committed to a Delta table, by its log."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pyarrow as pa
import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSensorTimeout

from support.airflow import Tables, run_task, task_context
from support.delta_log import commit
from support.waiting import STUCK, until
from zero_rename.committer import Owner
from zero_rename.committer.commit.narrowed_run import leave_narrowing
from zero_rename.committer.format.handoff import Handoff
from zero_rename.committer.format.layout import new_write_id
from zero_rename.committer.format.records.narrowing import Narrowing
from zero_rename.orchestration.job_query import JobQuery
from zero_rename.orchestration.partitions_query import PartitionsQuery, TableQuery
from zero_rename.provider import table_watch
from zero_rename.provider.hooks import ZeroRenameHook
from zero_rename.provider.triggers import SuccessManifestTrigger
from zero_rename.sensors.success_manifest import SuccessManifestSensor
from zero_rename.tables import DeltaTable

pytestmark = pytest.mark.memory_s3
SCHEMA = pa.schema([("day", pa.int32()), ("n", pa.int64())])
KEY = "flights/scheduled__2013-02-02/load"


class Days:
    """A Delta table of days."""

    def __init__(self, tables: Tables) -> None:
        self.url = tables.url()
        self.table: DeltaTable = ZeroRenameHook().get_delta_table(self.url)
        self.bucket = tables.bucket

    def load(self, *days: int, rows: int = 2, **policy: Any) -> Any:
        with self.table.job(SCHEMA, partition_by=["day"], **policy) as job:
            names = [day for day in days for _ in range(rows)]
            job.write(pa.table({"day": names, "n": range(len(names))}, schema=SCHEMA))
        return job.committed

    def sensor(self, **arguments: Any) -> SuccessManifestSensor:
        given = {"task_id": "wait", "table": self.url, "poke_interval": 0.05, "timeout": 0.2}
        fields: dict[str, Any] = given | arguments
        return SuccessManifestSensor(**fields)

    def wait(self, **arguments: Any) -> Any:
        task = self.sensor(**arguments)
        return run_task(task, task_context(task))

    def looks(self, **arguments: Any) -> bool:
        task = self.sensor(**arguments)
        context: Any = task_context(task)
        return task.poke(context).is_done


@pytest.fixture
def days(tables: Tables) -> Days:
    return Days(tables)


def test_run_of_a_task_is_waited_for_by_its_key(days: Days) -> None:
    with pytest.raises(AirflowSensorTimeout, match="Nothing committed yet of the job of flights/"):
        days.wait(upstream_task_id="load")
    days.load(2)
    with pytest.raises(AirflowSensorTimeout):
        days.wait(upstream_task_id="load")
    done = days.load(1, idempotency_key=KEY)
    report = days.wait(upstream_task_id="load", min_rows=2)
    assert (report["job"], report["rows"], report["version"]) == (done.job, 2, 1)
    assert days.wait(job=done.job, partition="day=01")["partition"] == "day=1"
    with pytest.raises(AirflowFailException, match="did not change day=2"):
        days.wait(job=done.job, partition="day=2")


def test_job_that_was_fenced_is_waited_for_in_vain(days: Days) -> None:
    days.load(1)
    dead = days.table.job(SCHEMA)
    dead.__enter__()
    assert dead.job is not None
    with pytest.raises(AirflowSensorTimeout, match="has not committed yet"):
        days.wait(job=dead.job)
    days.table.settle([dead.job])
    with pytest.raises(AirflowFailException, match="never be committed"):
        days.wait(job=dead.job, timeout=3600)


def test_run_whose_entry_another_engine_has_cleaned_is_not_waited_for(days: Days) -> None:
    days.load(1, idempotency_key=KEY)
    days.load(2)
    days.table.checkpoint_log()
    days.bucket.delete(f"{days.table.root.prefix}/_delta_log/{0:020}.json")
    found = JobQuery(days.url, idempotency_key=KEY).ask(days.table)
    assert (found.state, "is committed, by version 0" in found.explanation) == ("failed", True)
    with pytest.raises(AirflowFailException, match="mark this task as successful"):
        days.wait(idempotency_key=KEY)


def test_task_that_ended_without_a_commit_is_waited_for_in_vain_once_its_job_is_closed(
    days: Days,
) -> None:
    days.load(1)
    query = JobQuery(days.url, idempotency_key=KEY)
    owner = Owner("flights", "scheduled__2013-02-02", "load")
    job = days.table.job(SCHEMA, idempotency_key=KEY, owner=owner)
    job.__enter__()
    assert job.job is not None
    assert query.after(query.ask(days.table), "failed").state == "waiting"
    days.table.settle([job.job])
    assert query.after(query.ask(days.table), "failed").state == "failed"


@pytest.mark.parametrize("task", ["success", "failed"])
def test_job_that_waits_to_be_published_is_waited_for(days: Days, task: str) -> None:
    days.load(1)
    owner = Owner("flights", "scheduled__2013-02-02", "load")
    with days.table.job(SCHEMA, idempotency_key=KEY, owner=owner, publish=False) as job:
        job.write(pa.table({"day": [2], "n": [1]}, schema=SCHEMA))
    assert job.unpublished is not None
    query = JobQuery(days.url, idempotency_key=KEY)
    assert query.after(query.ask(days.table), task).state == "waiting"
    for asked in ({"upstream_task_id": "load"}, {"job": job.unpublished.job}):
        with pytest.raises(AirflowSensorTimeout):
            days.wait(**asked)
    assert not days.looks(partitions=["day=2"])
    days.table.publish(job.unpublished.job)
    report = days.wait(upstream_task_id="load", min_rows=1)
    assert (report["job"], report["rows"]) == (job.unpublished.job, 1)
    assert days.looks(partitions=["day=2"])


def test_run_that_was_loaded_again_is_waited_for_until_its_job_is_published(days: Days) -> None:
    """What it had published before is to be replaced."""
    owner = Owner("flights", "scheduled__2013-02-02", "load")
    jobs = []
    for number in (1, 2):
        again = {"idempotency_key": KEY, "on_repeat": "replace_own", "publish": False}
        with days.table.job(SCHEMA, partition_by=["day"], owner=owner, **again) as job:
            job.write(pa.table({"day": [2] * number, "n": [1] * number}, schema=SCHEMA))
        assert job.unpublished is not None
        jobs.append(job.unpublished.job)
        with pytest.raises(AirflowSensorTimeout, match=f"{jobs[-1]} waits to be published"):
            days.wait(upstream_task_id="load")
        days.table.publish(jobs[-1])
        report = days.wait(upstream_task_id="load")
        assert (report["job"], report["rows"]) == (jobs[-1], number)


def test_partition_that_a_plan_did_not_let_its_run_load_again_is_of_the_runs_job_before(
    days: Days,
) -> None:
    def loaded(clear: int) -> Any:
        dag, run, task = KEY.split("/")
        owner = Handoff(dag=dag, run=run, task=task, series=f"2026-01-01 1 {clear}").owner
        again: dict[str, Any] = {"idempotency_key": KEY, "on_repeat": "replace_own", "owner": owner}
        return days.load(1, 2, mode="overwrite", replace_partitions=["day=1", "day=2"], **again)

    first = loaded(0)
    versions = days.table.snapshot().versions
    plan = Narrowing(
        new_write_id(), KEY, first.job, {"day=1": versions["day=1"]}, 3600, Owner(task_id="plan")
    )
    assert days.table.run(leave_narrowing(days.table.root, plan, None))
    second = loaded(1)
    assert (second.narrows, [it.partition for it in second.partitions]) == (first.job, ["day=1"])
    jobs = [days.wait(upstream_task_id="load", partition=f"day={day}")["job"] for day in (1, 2)]
    assert jobs == [second.job, first.job]
    assert days.wait(upstream_task_id="load")["job"] == second.job
    with pytest.raises(AirflowFailException, match="did not change day=3"):
        days.wait(upstream_task_id="load", partition="day=3")


def test_partitions_are_waited_for_whoever_committed_them(days: Days) -> None:
    assert not days.looks(partitions=["day=1", "day=2"])
    days.load(1)
    with pytest.raises(AirflowSensorTimeout, match=r"day=2 \(no commit\)"):
        days.wait(partitions=["day=1", "day=2"])
    second = days.load(2, rows=3)
    report = days.wait(partitions=["day=1", "day=02"], check_files=True)
    assert (report["rows"], report["files"]) == (5, 2)
    assert report["partitions"][1]["job"] == second.job
    assert [it["version"] for it in report["partitions"]] == [0, 1]
    with pytest.raises(AirflowSensorTimeout, match=r"day=1 \(2 rows\)"):
        days.wait(partitions=["day=1", "day=2"], min_rows=3)


def test_partition_is_waited_for_until_its_rows_change_after_a_version(days: Days) -> None:
    days.load(1)
    days.load(1)
    days.load(2)
    assert days.table.compact(["day=1"], apply=True)[0].job is not None
    assert not days.looks(partition="day=1", newer_than_version=1)
    assert days.looks(partition="day=1", newer_than_version=0)
    assert not days.looks(partitions=["day=1", "day=2"], newer_than_version=1)
    emptied = days.load(replace_partitions=["day=1"], mode="overwrite")
    report = days.wait(partitions=["day=1", "day=2"], newer_than_version=1)
    assert (report["rows"], report["partitions"][0]["job"]) == (2, emptied.job)
    alone = days.wait(partition="day=1", newer_than_version=3)
    assert (alone["job"], alone["rows"]) == (emptied.job, 0)


@pytest.mark.parametrize("before", [-1, "-1", "{{ -1 }}"])
def test_version_before_the_first_entry_waits_for_any(days: Days, before: int | str) -> None:
    assert not days.looks(partition="day=1", newer_than_version=-1)
    first = days.load(1)
    assert days.wait(partition="day=1", newer_than_version=before)["job"] == first.job
    report = days.wait(partitions=["day=1"], newer_than_version=before)
    assert report["partitions"][0]["version"] == 0
    assert not days.looks(partition="day=1", newer_than_version=0)


def test_partition_is_waited_for_until_its_rows_change_after_a_time(days: Days) -> None:
    days.load(1)
    mark = days.table.now()
    until("the store's next second", lambda: days.table.now() > mark)
    mark = days.table.now()
    until("the second after", lambda: days.table.now() > mark)
    assert not days.looks(partitions=["day=1"], newer_than=mark)
    days.load(1)
    assert days.looks(partitions=["day=1"], newer_than=mark)
    assert not days.looks(partitions=["day=1"], newer_than=time.time() + 3600)


def test_commit_of_another_engine_counts_and_its_rows_are_not_known(days: Days) -> None:
    days.load(1)
    path = "day=7/part.parquet"
    add = {"path": path, "partitionValues": {"day": "7"}, "size": 9, "modificationTime": 1}
    commit(days.bucket, {"add": {**add, "dataChange": True}}, table="wh/flights")
    assert days.looks(partition="day=7", newer_than_version=0)
    report = days.wait(partitions=["day=7"])
    assert (report["job"], report["rows"], report["partitions"][0]["version"]) == (None, None, 1)
    with pytest.raises(AirflowSensorTimeout, match="rows that nobody counted"):
        days.wait(partitions=["day=7"], min_rows=1)
    with pytest.raises(AirflowSensorTimeout, match="1 of 1 file is not there"):
        days.wait(partitions=["day=7"], check_files=True)


def test_partitions_below_a_directory_are_counted(days: Days) -> None:
    days.load(1, 2)
    assert days.wait(min_partitions=2)["rows"] == 4
    with pytest.raises(AirflowSensorTimeout, match="2 of 3 partitions are below"):
        days.wait(min_partitions=3)


def test_directory_above_partitions_is_spelled_as_the_table_does(days: Days) -> None:
    rows = pa.table({"month": pa.array([2], pa.int32()), "day": ["a"], "n": [1]})
    assert not days.looks(partition="month=02", min_partitions=1)
    with days.table.job(rows.schema, partition_by=["month", "day"]) as job:
        job.write(rows)
    assert days.wait(partition="month=02", min_partitions=1)["rows"] == 1


def test_whole_output_without_partitions_is_waited_for(days: Days) -> None:
    rows = pa.table({"n": [1, 2]})
    with days.table.job(rows.schema) as job:
        job.write(rows)
    report = days.wait(newer_than=days.table.now() - 3600)
    assert (report["rows"], report["job"]) == (2, job.job)
    assert not days.looks(newer_than=days.table.now() + 3600)


@pytest.mark.parametrize(
    "of", [{"partitions": ["day=1", "day=2"]}, {"idempotency_key": KEY}, {"min_partitions": 1}]
)
def test_partition_that_is_stale_is_not_gone_on_with(days: Days, of: dict[str, Any]) -> None:
    source = ZeroRenameHook().get_delta_table(f"{days.url}_source")
    with source.job(SCHEMA, partition_by=["day"]) as job:
        job.write(pa.table({"day": [1], "n": [1]}, schema=SCHEMA))
    run = {"idempotency_key": KEY, "mode": "overwrite", "inputs": [source.snapshot()]}
    days.load(1, replace_partitions=["day=1", "day=2"], **run)
    assert days.wait(**of, on_stale="fail")
    with source.job(SCHEMA, mode="append") as job:
        job.write(pa.table({"day": [1], "n": [2]}, schema=SCHEMA))
    with pytest.raises(AirflowFailException, match=r"day=1 \(stale\)"):
        days.wait(**of, on_stale="fail")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"idempotency_key": "k", "on_foreign_marker": "fail"}, "on_foreign_marker=fail"),
        ({"partitions": ["day=1"], "committer": "magic"}, "committer=magic"),
        ({"partitions": ["day=1"], "require_manifest": False}, "require_manifest=False"),
        ({"newer_than": "2013-02-01", "require_manifest": False}, "require_manifest=False"),
    ],
)
def test_what_a_log_cannot_answer_is_refused(
    days: Days, arguments: dict[str, Any], said: str
) -> None:
    days.load(1)
    with pytest.raises(AirflowFailException, match=f"{said} is about tables of directories"):
        days.wait(**arguments)


class TestInTheTriggerer:
    async def _event(self, query: TableQuery) -> dict[str, Any]:
        asked = SuccessManifestTrigger(query.as_dict(), "zero_rename_default", 0.05)
        async for event in asked.run():
            return event.payload
        raise AssertionError("the trigger ended without an event")

    def test_waits_that_began_before_there_was_a_table_end_with_its_commits(
        self, days: Days, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        looked, look = threading.Event(), table_watch.TableWatch._look

        def told(*given: Any) -> Any:
            found = look(*given)
            looked.set()
            return found

        monkeypatch.setattr(table_watch.TableWatch, "_look", told)

        async def play() -> list[dict[str, Any]]:
            queries: list[TableQuery] = [
                PartitionsQuery(days.url, ("day=1", "day=2")),
                JobQuery(days.url, idempotency_key=KEY),
            ]
            tasks = [asyncio.create_task(self._event(it)) for it in queries]
            await asyncio.to_thread(looked.wait, STUCK)
            await asyncio.to_thread(days.load, 1)
            looked.clear()
            await asyncio.to_thread(looked.wait, STUCK)
            assert not any(it.done() for it in tasks)
            await asyncio.to_thread(days.load, 2, idempotency_key=KEY)
            return await asyncio.wait_for(asyncio.gather(*tasks), 60)

        partitions, run = asyncio.run(play())
        assert (partitions["state"], partitions["report"]["rows"]) == ("ready", 4)
        assert (run["state"], run["report"]["version"]) == ("ready", 1)

    def test_application_that_outlives_its_task_is_waited_for(
        self, days: Days, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its open job changes nothing in the log, by which looks go."""
        days.load(1)
        task = {"load": "running"}
        states = {"scheduled__2013-02-02": task}
        monkeypatch.setattr(table_watch, "_task_states", lambda: lambda **_: states)
        watched = table_watch.TableWatch(
            "zero_rename_default", days.url, table_watch.SharedTables()
        )
        waiter = table_watch._Waiter(JobQuery(days.url, idempotency_key=KEY), 1.0)

        def look() -> str:
            ((_, waiter.last),) = watched._look([waiter])
            return waiter.last.state

        assert look() == "waiting"
        owner = Owner("flights", "scheduled__2013-02-02", "load")
        job = days.table.job(SCHEMA, idempotency_key=KEY, owner=owner)
        job.__enter__()
        task["load"] = "failed"
        assert [look(), look()] == ["waiting"] * 2
        assert job.job is not None
        days.table.settle([job.job])
        assert look() == "failed"

    def test_look_at_an_unchanged_log_is_one_listing(self, days: Days) -> None:
        days.load(1)
        watched = table_watch.TableWatch(
            "zero_rename_default", days.url, table_watch.SharedTables()
        )
        waiter = table_watch._Waiter(PartitionsQuery(days.url, ("day=1", "day=2")), 1.0)

        def look() -> str:
            ((_, result),) = watched._look([waiter])
            waiter.last = result
            return result.state

        assert look() == "waiting"
        before = days.bucket.counter.total()
        assert look() == "waiting"
        assert days.bucket.counter.total() - before == 1
