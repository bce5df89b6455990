"""Loads of services under ``on_conflict=newest_run`` whose task is deferred: a run that newer ones
overtake while its job runs ends as ``on_superseded`` says."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, TaskDeferred

from support.airflow import Tables, run_task
from support.aws_services import Service
from support.service_loads import context, operator
from zero_rename.committer.commit.failures import failures_told
from zero_rename.committer.format.handoff import Handoff

pytestmark = pytest.mark.memory_s3
each_deferral = pytest.mark.parametrize(
    "service", ["EmrServerless", "Kubernetes", "Databricks"], indirect=True
)
NEWEST: dict[str, Any] = {"on_conflict": "newest_run", "deferrable": True}
SKIP: dict[str, Any] = {**NEWEST, "on_superseded": "skip"}


@pytest.fixture(autouse=True)
def tells(service: Service, tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the stand-in put its failures on record, as ``save()`` does."""
    write, driver = service.application.write, tables.table().driver
    monkeypatch.setattr("zero_rename.committer.commit.failures.connect", lambda _: driver)

    def told(variables: dict[str, str]) -> None:
        said = Handoff.decode(variables)
        with failures_told(said.table, said.idempotency_key, said.owner, said.partitions or ()):
            write(variables)

    monkeypatch.setattr(service.application, "write", told)
    service.goes_on = True


def newer_loads(tables: Tables, day: int) -> str:
    rows = pa.table({"day": pa.array([day], pa.int64()), "flight": ["newer"]})
    job = tables.table().job(
        rows.schema,
        mode="replace",
        partition_by=("day",),
        run_rank=datetime(2013, 3, 1, tzinfo=UTC),
    )
    with job:
        job.write(rows)
    return job.committed.job


def deferred(service: Service, **arguments: Any) -> tuple[Any, TaskDeferred]:
    task = operator(service, **arguments)
    with pytest.raises(TaskDeferred) as caught:
        run_task(task, context(task))
    return task, caught.value


def resumed(task: Any, of: TaskDeferred, event: dict[str, Any]) -> Any:
    kwargs = json.loads(json.dumps(of.kwargs)) | {"event": event}
    given: Any = context(task)
    task.render_template_fields(given)
    return task.resume_execution(of.method_name, kwargs, given)


@each_deferral
@pytest.mark.parametrize(
    ("policy", "ends"), [(NEWEST, AirflowFailException), (SKIP, AirflowSkipException)]
)
def test_overtaken_run_fails_or_is_skipped_when_its_task_is_resumed(
    service: Service, tables: Tables, policy: dict[str, Any], ends: type[Exception]
) -> None:
    task, waits = deferred(service, **policy)
    newer = newer_loads(tables, 1)
    service.end()
    with pytest.raises(ends, match=f"Newer runs have loaded day=1.*{newer}"):
        resumed(task, waits, service.event(good=False))
    assert tables.table().partition_job("day=1") == newer


@each_deferral
def test_run_of_which_a_partition_is_left_reports_both_when_its_task_is_resumed(
    service: Service, tables: Tables
) -> None:
    task, waits = deferred(service, **SKIP, partition=["day=1", "day=2"])
    newer = newer_loads(tables, 1)
    service.end()
    report = resumed(task, waits, service.event())
    assert report["superseded"] == {"day=1": newer}
    assert [it["partition"] for it in report["partitions"]] == ["day=2"]


@each_deferral
def test_late_run_is_skipped_before_anything_is_submitted(service: Service, tables: Tables) -> None:
    newer = newer_loads(tables, 1)
    task = operator(service, **SKIP)
    with pytest.raises(AirflowSkipException, match=f"Not submitted.*{newer}"):
        run_task(task, context(task))
    assert service.requests == []
