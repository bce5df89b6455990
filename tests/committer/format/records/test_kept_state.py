"""History in a head: which versions can be told, by number and by time, and how much is carried."""

from __future__ import annotations

import pytest

from zero_rename.committer.format.layout import TableRoot, new_job_id
from zero_rename.committer.format.records.head import HeadState, PartitionHead, Slot
from zero_rename.committer.format.records.kept_state import MOST_KEPT
from zero_rename.committer.format.records.partition_decision import PartitionDecision
from zero_rename.committer.format.records.pending_file import PendingFile

ROOT = TableRoot("bucket", "t")
SLOT = Slot.partition(ROOT, "day=1")


class Partition:
    """A head, and beside it what each of its versions held: the model that it is held against."""

    def __init__(self) -> None:
        self.head = PartitionHead.initial(SLOT)
        self.jobs: list[str] = []
        self.held: list[list[str]] = [[]]

    def move(self, since: float, **how: object) -> str:
        job = new_job_id()
        file = PendingFile("k", "day=1", "u", ("e",), 1, 1, "c")
        adds = "restores" not in how
        change = PartitionDecision(
            "day=1", self.head.version, bool(how.get("replace")), files=(file,) if adds else ()
        )
        now = [] if change.replace else list(self.held[-1])
        if not adds:
            change = PartitionDecision("day=1", self.head.version, True, restores=how["restores"])  # type: ignore[arg-type]
            now = self.held[change.restores or 0]
        elif "drops" in how:
            dropped = str(how["drops"])
            change = PartitionDecision(
                "day=1", self.head.version, False, files=(file,), dropped_job=dropped
            )
            now = [it for it in now if it != dropped]
        self.head = self.head.claimed(job, "p", "w", "e").moved(
            job, change, "w", "e", since, since=since
        )
        self.held.append([*now, job] if adds else now)
        self.jobs.append(job)
        return job

    def told(self, version: int) -> list[str] | None:
        state = self.head.as_of(version)
        return None if state is None else list(state.decisions)


def test_every_version_is_told_whatever_moved_the_head() -> None:
    it = Partition()
    first = it.move(1.0)
    it.move(2.0)
    it.move(3.0, replace=True)
    third = it.move(4.0)
    it.move(5.0, drops=third)
    it.move(6.0, restores=2)
    it.move(7.0)
    it.move(8.0, restores=5)
    it.move(9.0, restores=0)
    assert [it.told(version) for version in range(len(it.held))] == it.held
    assert it.told(len(it.held)) is None
    assert first in (it.told(7) or ())


def test_a_time_shows_the_last_version_that_counted_by_then() -> None:
    it = Partition()
    for since, how in ((10.0, {}), (20.0, {}), (30.0, {"replace": True}), (30.0, {})):
        it.move(since, **how)
    asked = (9.0, 10.0, 19.9, 20.0, 29.9, 30.0, 1e9)
    assert [it.head.version_at_time(at) for at in asked] == [0, 1, 1, 2, 2, 4, 4]


def test_what_is_forgotten_is_not_told_as_something_else() -> None:
    it = Partition()
    for n in range(6):
        it.move(float(10 * n + 10), replace=True)
    head = it.head.forgetting(before=35.0, most=64, write_id="w", etag="e")
    assert head is not None
    # Epochs 1 and 2 ended at 20 and 30.
    assert [head.as_of(version) is None for version in range(7)] == [True] * 3 + [False] * 4
    assert [head.version_at_time(at) for at in (5.0, 25.0, 30.0, 61.0)] == [None, None, 3, 6]
    assert head.forgetting(before=35.0, most=64, write_id="w", etag="e") is None
    assert (rest := head.forgetting(before=0.0, most=1, write_id="w", etag="e")) is not None
    assert [line.moves[-1].version for line in rest.kept] == [5]
    assert (none := head.forgetting(before=0.0, most=0, write_id="w", etag="e")) is not None
    assert none.kept == ()
    assert none.version_at_time(60.0) == 6
    assert none.version_at_time(59.0) is None
    assert HeadState(SLOT, none, "e").version_at("e") == 6


@pytest.mark.parametrize("appends", [0, 3, 100])
def test_a_head_carries_so_much_and_no_more(appends: int) -> None:
    it = Partition()
    at = 0.0
    for _ in range(80):
        at += 1.0
        it.move(at, replace=True)
        for _ in range(appends):
            at += 1.0
            it.move(at)
        # What the claim before each move saw can be taken back by that move.
        base = it.head.version - 1
        assert it.told(base) is not None or base == 0
    assert len(it.head.kept) == MOST_KEPT
    versions = [move.version for line in it.head.lines for move in line.moves]
    assert len(versions) < 3 * MOST_KEPT
    # Decisions are folded as they become many; without them and with their names.
    told = [version for version in range(it.head.version + 1) if it.told(version) is not None]
    assert told == versions
    assert all(it.told(version) == it.held[version] for version in told)
    # No time shows the version before a gap.
    for version in range(it.head.version + 1):
        assert it.head.version_at_time(float(version)) in (version, None)


def test_the_oldest_that_is_kept_can_be_taken_back_by_the_move_that_would_forget_it() -> None:
    it = Partition()
    for n in range(MOST_KEPT + 1):
        it.move(float(n), replace=True)
    oldest = it.head.kept[0].moves[-1].version
    held = it.held[oldest]
    it.move(1e3, restores=oldest)
    assert it.told(it.head.version) == held
    assert it.head.as_of(oldest) is None
