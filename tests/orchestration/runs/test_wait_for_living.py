from __future__ import annotations

from types import SimpleNamespace

import pytest

from support.airflow import Tables, task_context
from zero_rename.committer import Owner
from zero_rename.orchestration.runs import heartbeat
from zero_rename.orchestration.runs.task_run import TaskRun
from zero_rename.provider.task_context import task_run

pytestmark = pytest.mark.memory_s3

EARLIER = Owner(
    dag_id="flights", run_id="scheduled__2013-02-02", task_id="load", map_index=-1, try_number=1
)


class Waited(Exception):
    pass


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> TaskRun:
    """A run's second try, which is told when it waits."""

    def sleep(seconds: float) -> None:
        raise Waited

    monkeypatch.setattr(heartbeat, "sleep", sleep)
    return task_run(task_context(SimpleNamespace(task_id="load", retries=2), try_number=2))


def test_an_earlier_trys_application_is_waited_for(tables: Tables, run: TaskRun) -> None:
    tables.undecided(1, owner=EARLIER)
    with pytest.raises(Waited):
        heartbeat.wait_for_living(tables.table(), run)


@pytest.mark.parametrize(
    "changes", [{"run_id": "other"}, {"task_id": "other"}, {"map_index": 0}, {"try_number": 2}]
)
def test_nobody_elses_is(tables: Tables, run: TaskRun, changes: dict[str, int | str]) -> None:
    """Days of one table are loaded side by side, and none waits for another."""
    tables.undecided(1, owner=Owner(**{**vars(EARLIER), **changes}))
    heartbeat.wait_for_living(tables.table(), run)


def test_neither_one_that_has_decided_nor_one_that_is_silent(
    tables: Tables, run: TaskRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is decided any process finishes; what is silent is fenced."""
    tables.decided(1, owner=EARLIER)
    heartbeat.wait_for_living(tables.table(), run)
    tables.undecided(1, owner=EARLIER)
    monkeypatch.setattr(heartbeat, "PATIENCE", 0.0)
    heartbeat.wait_for_living(tables.table(), run)
