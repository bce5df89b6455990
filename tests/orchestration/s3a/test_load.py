"""What is asked of an application that ended well, before its load is called committed."""

from __future__ import annotations

from typing import Any

import pytest

from support.memory_store import MemoryDriver
from support.s3a_jobs import ROOT, World
from zero_rename.committer import OutcomeUnknownError, RefusedError, Table, VerificationError
from zero_rename.committer.format.job_spec import Mode
from zero_rename.orchestration.runs.task_run import TaskRun
from zero_rename.orchestration.s3a.configuration import LoadRequest
from zero_rename.orchestration.s3a.load import S3ALoad, loaded_by_s3a
from zero_rename.s3a.hadoop.settings import Committer
from zero_rename.s3a.runs import ledger
from zero_rename.s3a.runs.try_record import (
    COMMITTED,
    FAILED,
    UNDONE,
    WRITING,
    WRITTEN,
    StoredTry,
    WriteRecord,
)

FIRST = TaskRun("flights", "r", "load", -1, 1, 1)
RETRY = TaskRun("flights", "r", "load", -1, 2, 1)
DAY1, DAY2 = f"{ROOT.url}/day=1", f"{ROOT.url}/day=2"


class Loading:
    """A try's load, whose application enters these writes."""

    def __init__(self, world: World, run: TaskRun = FIRST, mode: Mode = Mode.REPLACE) -> None:
        self.table = Table(ROOT.url)
        self.table.driver = MemoryDriver(world.store, None, world.clock)  # pyright: ignore
        self.load = S3ALoad(self.table, run, LoadRequest(Committer.MAGIC, ROOT, mode, ("day=1",)))

    @property
    def known(self) -> StoredTry:
        found = self.table.run(ledger.find(ROOT, FIRST.idempotency_key, self.load.uuid))
        assert found is not None
        return found

    def enter(self, destination: str, state: str = WRITTEN, **given: Any) -> None:
        number = len(self.known.record.writes) + 1
        given["state"] = state
        write = WriteRecord(f"w{number}", number, "magic", destination, "replace", **given)
        assert self.table.run(ledger.swap(self.known, self.known.record.with_write(write)))


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize(
    ("writes", "objection"),
    [
        ([(DAY1, WRITING, "day=1")], "its record of w1 says writing"),
        ([(DAY1, WRITTEN, "day=1"), (DAY1, FAILED, "day=1")], "its record of w2 says failed"),
        ([("s3://bucket/other", WRITTEN, None)], "wrote s3://bucket/other only"),
        # A table whose name begins alike is another.
        ([(f"{ROOT.url}2", WRITTEN, None)], f"wrote {ROOT.url}2 only"),
        (
            [(DAY1, WRITTEN, "day=1"), (DAY2, WRITTEN, "day=2")],
            "also replaced partitions that its task does not name: day=2",
        ),
    ],
)
def test_what_is_not_the_load_that_was_asked_for(
    world: World, writes: list[tuple[str, str, str | None]], objection: str
) -> None:
    loading = Loading(world)
    with loading.load.submitted():
        for destination, state, partition in writes:
            loading.enter(destination, state, partition=partition)
    with pytest.raises(VerificationError, match=f"ended well, and {objection}"):
        loading.load.report()
    assert loading.known.record.state == FAILED


def test_what_the_application_left_is_for_the_next_try_to_settle(world: World) -> None:
    loading = Loading(world)

    def killed() -> None:
        with loading.load.submitted():
            loading.enter(DAY1, WRITING)
            raise OSError("killed")

    with pytest.raises(OSError, match="killed"):
        killed()
    known = loading.known
    assert (known.record.state, len(known.record.writes)) == (FAILED, 1)
    assert known.key == ledger.open_key(ROOT, FIRST.idempotency_key, loading.load.uuid)


@pytest.mark.parametrize("mode", [Mode.APPEND, None])
def test_the_rows_of_a_committed_try_are_added_to_only_if_that_is_said(
    world: World, mode: Mode | None
) -> None:
    """Its application may append where the task leaves the mode to it."""
    loading = Loading(world)
    with loading.load.submitted():
        pass
    report: dict[str, Any] = {
        "job": "w1",
        "partition": "day=1",
        "rows": 1,
        "files": 1,
        "bytes": 1,
        "version": None,
    }
    report["table"] = ROOT.url
    done = {"state": COMMITTED, "report": report}
    loading.table.run(ledger.close_try(ROOT, loading.known.record, **done))
    with pytest.raises(RefusedError, match="only added to"):
        loaded_by_s3a(loading.table, RETRY, mode, "replace_own")
    for on_repeat, again in (("append", mode), ("replace_own", Mode.REPLACE)):
        assert loaded_by_s3a(loading.table, RETRY, again, on_repeat) is None
    told = loaded_by_s3a(loading.table, RETRY, mode, "skip")
    assert told == report | {"repeated": True}


def test_nothing_is_submitted_beside_an_application_that_woke_up(world: World) -> None:
    """Its try is called undone, for it has left nothing: the next one does not ask about it."""
    first, retry = Loading(world), Loading(world, RETRY)
    with first.load.submitted():
        first.enter(DAY1, WRITING)
    first.table.run(ledger.close_try(ROOT, first.known.record, state=UNDONE))
    with pytest.raises(OutcomeUnknownError, match="is still writing"), retry.load.submitted():
        pytest.fail("It is submitted.")
    assert retry.known.record.state == UNDONE
    world.clock.advance(3600)
    with Loading(world, RETRY).load.submitted():
        pass
