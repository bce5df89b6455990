from __future__ import annotations

from types import SimpleNamespace

import pytest

from support.airflow import Tables, task_context
from zero_rename.committer import Owner
from zero_rename.provider.runs.heartbeat import send_heartbeats
from zero_rename.provider.runs.task_run import TaskRun

MINE = Owner(
    dag_id="flights", run_id="scheduled__2013-02-02", task_id="load", map_index=-1, try_number=2
)


@pytest.fixture
def run() -> TaskRun:
    return TaskRun.of(task_context(SimpleNamespace(task_id="load", retries=2), try_number=2))


def test_this_trys_job_is_kept_alive(tables: Tables, run: TaskRun) -> None:
    mine = tables.undecided(1, owner=MINE)
    before = tables.bucket.read(tables.table().root.open_key(mine))
    assert send_heartbeats(tables.table(), run) == [mine]
    assert tables.bucket.read(tables.table().root.open_key(mine)) != before


@pytest.mark.parametrize(
    "owner",
    [
        Owner(dag_id="flights", run_id="other", task_id="load", map_index=-1, try_number=2),
        Owner(**{**vars(MINE), "try_number": 1}),
        Owner(),
    ],
)
def test_others_are_left_to_others(tables: Tables, run: TaskRun, owner: Owner) -> None:
    tables.undecided(1, owner=owner)
    assert send_heartbeats(tables.table(), run) == []


def test_a_decided_job_needs_no_more_signs(tables: Tables, run: TaskRun) -> None:
    tables.decided(1, owner=MINE)
    assert send_heartbeats(tables.table(), run) == []


def test_nothing_open(tables: Tables, run: TaskRun) -> None:
    assert send_heartbeats(tables.table(), run) == []
