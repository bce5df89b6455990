from __future__ import annotations

import logging
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from support.airflow import SCHEMA, Tables, task_context
from zero_rename.committer import Owner
from zero_rename.orchestration.runs import heartbeat
from zero_rename.orchestration.runs.heartbeat import send_heartbeats
from zero_rename.orchestration.runs.task_run import TaskRun
from zero_rename.provider.hooks import ZeroRenameHook
from zero_rename.provider.task_context import task_run

pytestmark = pytest.mark.memory_s3

MINE = Owner(
    dag_id="flights", run_id="scheduled__2013-02-02", task_id="load", map_index=-1, try_number=2
)


@pytest.fixture
def run() -> TaskRun:
    return task_run(task_context(SimpleNamespace(task_id="load", retries=2), try_number=2))


def test_this_trys_job_is_kept_alive(tables: Tables, run: TaskRun) -> None:
    mine = tables.undecided(1, owner=MINE)
    before = tables.bucket.read(tables.table().root.open_key(mine))
    assert send_heartbeats(tables.table(), run) == [mine]
    assert tables.bucket.read(tables.table().root.open_key(mine)) != before


@pytest.mark.parametrize(
    "owner",
    [
        Owner(dag_id="flights", run_id="other", task_id="load", map_index=-1, try_number=2),
        replace(MINE, try_number=1),
        Owner(),
    ],
)
def test_others_are_left_to_others(tables: Tables, run: TaskRun, owner: Owner) -> None:
    tables.undecided(1, owner=owner)
    assert send_heartbeats(tables.table(), run) == []


def test_a_decided_job_needs_no_more_signs(tables: Tables, run: TaskRun) -> None:
    tables.decided(1, owner=MINE)
    assert send_heartbeats(tables.table(), run) == []


def test_the_job_is_named_once(
    tables: Tables, run: TaskRun, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    mine = tables.undecided(1, owner=MINE)
    monkeypatch.setattr(heartbeat, "INTERVAL", 0.01)
    sent, sends = threading.Semaphore(0), heartbeat.send_heartbeats

    def counted(*given: Any) -> list[str]:
        found = sends(*given)
        sent.release()
        return found

    monkeypatch.setattr(heartbeat, "send_heartbeats", counted)
    with heartbeat.heartbeats(tables.table(), run):
        assert all(sent.acquire(timeout=60) for _ in range(3))
    assert caplog.text.count(f"opened the job {mine}") == 1


def test_job_in_a_delta_table_is_named_though_it_gets_no_heartbeats(
    tables: Tables, run: TaskRun
) -> None:
    table = ZeroRenameHook().get_delta_table(tables.url())
    with table.job(SCHEMA, owner=MINE) as job:
        assert send_heartbeats(table, run) == [job.job]
    assert send_heartbeats(table, run) == []


def test_nothing_open(tables: Tables, run: TaskRun) -> None:
    assert send_heartbeats(tables.table(), run) == []


@pytest.mark.parametrize(
    ("changed", "waits"),
    [
        ({"try_number": 1}, True),
        ({}, False),
        # Days of one table are loaded side by side, and none waits for another.
        ({"try_number": 1, "run_id": "other"}, False),
        ({"try_number": 1, "task_id": "other"}, False),
        ({"try_number": 1, "map_index": 3}, False),
    ],
)
def test_an_earlier_try_of_this_run_is_waited_for_and_nobody_else(
    tables: Tables,
    run: TaskRun,
    monkeypatch: pytest.MonkeyPatch,
    changed: dict[str, Any],
    waits: bool,
) -> None:
    """Not this try's own job either, which would end no sooner than its operator does."""
    table, pauses = tables.table(), []
    job = tables.undecided(1, owner=replace(MINE, **changed))

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        table.recover(patience=0)

    assert table.send_heartbeat(job)
    monkeypatch.setattr(heartbeat, "sleep", pause)
    heartbeat.wait_for_living(table, run)
    assert pauses == [heartbeat.POLL] * waits


def test_neither_a_decided_job_nor_a_silent_one_is_waited_for(
    tables: Tables, run: TaskRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is decided is found, and finished by who finds it; what is silent is fenced."""
    tables.decided(1, owner=replace(MINE, try_number=1))
    monkeypatch.setattr(heartbeat, "sleep", lambda seconds: pytest.fail("it waited"))
    heartbeat.wait_for_living(tables.table(), run)
    tables.undecided(1, owner=replace(MINE, try_number=1))
    monkeypatch.setattr(heartbeat, "PATIENCE", 0.0)
    heartbeat.wait_for_living(tables.table(), run)
