"""Table II of Stocator's paper, of a Delta table: what three tasks send to the store where the last
of them is tried three times. The lines are the table's.
"""

from __future__ import annotations

import time

import pyarrow as pa
import pytest

from support.delta_tables import on
from support.memory_store import ManualClock, MemoryStore
from support.protocol import ROOT
from zero_rename.committer import TableNotFoundError
from zero_rename.committer.format.parquet.task_writer import TaskWriter
from zero_rename.committer.format.records.pending_file import TaskResult
from zero_rename.committer.store import requests as s

SCHEMA = pa.schema([("value", pa.int64())])
#: What stands for lines 8 and 9 there: nothing is copied, and one entry of the log says that it is
#: done.
SUCCESS = f"{ROOT.prefix}/_delta_log/{0:020}.json"
DATA = f"{ROOT.prefix}/data/"


class Run:
    """A job of three tasks: those of the paper's figure 3."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.table = on(self.store)
        self.job = self.table.job(SCHEMA)
        self.job.__enter__()

    def attempt(self, task: int, attempt: int) -> tuple[TaskWriter, TaskResult]:
        """One that has written its part, a row with the task's number."""
        writer = self.table.task_writer(self.job.opened, task, attempt)
        writer.write(pa.table({"value": [task]}, schema=SCHEMA))
        return writer, writer.close()

    def commit(self, *results: TaskResult) -> None:
        self.job.take(results, 3)
        self.job.__exit__(None, None, None)

    def sent(self, kind: type) -> list[str]:
        """Keys of data that a kind of request named, without what differs from job to job."""
        requests = self.table.driver.requests  # type: ignore[attr-defined]
        keys = [it.key for it in requests if isinstance(it, kind)]
        return [_attempt(key) for key in keys if key.startswith(DATA)]

    @property
    def parts(self) -> list[str]:
        """That are in the store, whoever reads them."""
        return sorted(_attempt(key) for key in self.store.keys(DATA))

    @property
    def read(self) -> list[int]:
        return on(self.store).scan().to_arrow()["value"].to_pylist()


def _attempt(key: str) -> str:
    """``part-<task>-<attempt>`` of a file's key."""
    return "-".join(key.rpartition("/")[2].split("-")[:3])


CLEAN = ["part-00000-0", "part-00001-0", "part-00002-0"]
THREE_ATTEMPTS = [*CLEAN, "part-00002-1", "part-00002-2"]


@pytest.fixture
def run() -> Run:
    return Run()


def test_lines_1_to_3_and_8_to_9_each_task_once(run: Run) -> None:
    assert SUCCESS not in run.store.objects
    run.commit(*(run.attempt(task, 0)[1] for task in range(3)))

    assert (run.sent(s.PutFile), run.parts) == (CLEAN, CLEAN)
    assert run.sent(s.Delete) == [], "nothing is renamed"
    assert SUCCESS in run.store.objects
    assert sorted(run.read) == [0, 1, 2]


def test_lines_1_to_5_three_attempts_of_a_task_each_with_an_object_of_its_own(run: Run) -> None:
    for task, attempt in ((0, 0), (1, 0), (2, 0), (2, 1), (2, 2)):
        run.attempt(task, attempt)

    assert (run.sent(s.PutFile), run.parts) == (THREE_ATTEMPTS, THREE_ATTEMPTS)
    assert SUCCESS not in run.store.objects
    with pytest.raises(TableNotFoundError):
        print(run.read)


def test_lines_1_to_9_the_losers_are_cleaned_up(run: Run) -> None:
    results = [run.attempt(task, 0)[1] for task in range(2)]
    (first, _), (_, second), (third, _) = (run.attempt(2, attempt) for attempt in range(3))
    first.abort()
    third.abort()
    run.commit(*results, second)

    assert run.sent(s.Delete) == ["part-00002-0", "part-00002-2"]
    assert run.parts == ["part-00000-0", "part-00001-0", "part-00002-1"]
    assert sorted(run.read) == [0, 1, 2]


def test_lines_1_to_5_and_8_to_9_the_losers_are_left_and_the_log_chooses(run: Run) -> None:
    """One whose object comes before the job commits, and one whose object comes after that."""
    results = [run.attempt(task, 0)[1] for task in range(2)]
    run.attempt(2, 0)
    _, second = run.attempt(2, 1)
    late = run.table.task_writer(run.job.opened, 2, 2)
    late.write(pa.table({"value": [2]}, schema=SCHEMA))
    run.commit(*results, second)
    late.close()

    assert run.parts == THREE_ATTEMPTS
    assert sorted(run.read) == [0, 1, 2]
    chosen = [_attempt(file.key) for file in on(run.store).state().files]
    assert sorted(chosen) == ["part-00000-0", "part-00001-0", "part-00002-1"]
    assert isinstance(run.store.clock, ManualClock)
    run.store.clock.now = time.time() + 30 * 24 * 3600.0
    on(run.store).purge(apply=True)
    assert run.parts == sorted(chosen)
