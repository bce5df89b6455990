"""Jobs that are open while their Delta table is deleted and made anew in its place."""

from __future__ import annotations

import pytest

from support.delta_runs import World
from support.delta_tables import on, rows, write
from support.memory_store import MemoryStore
from zero_rename.committer import CommitConflictError
from zero_rename.committer.store.requests import Delete
from zero_rename.tables import Since


@pytest.mark.parametrize("entries", [1, 3, 5])
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_job_of_a_table_that_was_made_anew_is_refused(entries: int, mode: str) -> None:
    """Its entry would lie behind the end of the new log, or be one of another table."""
    world = World()
    for rank in range(3):
        world.load(rank, "1")

    def made_anew() -> None:
        for key in world.store.keys("flights/"):
            if not key.startswith("flights/_zero_rename/open/"):
                world.store.apply(Delete(key))
        world.table = world.opened()
        for rank in range(entries):
            world.load(50 + rank, "3")
        world.advance(60)

    with pytest.raises(CommitConflictError, match=r"made anew|replaced by another"):
        world.load(9, "2", mode=mode, beside=made_anew)
    assert world.opened().state().log_version == entries - 1


def test_job_that_was_open_for_long_is_judged_by_what_came_meanwhile() -> None:
    world = World()
    world.load(1, "1")

    def later() -> None:
        world.load(2, "3")
        world.advance(600)

    world.load(3, "2", beside=later)
    assert world.opened().scan().to_arrow()["day"].to_pylist().count("3") == 1
    with pytest.raises(CommitConflictError, match="day=1"):
        world.load(4, "1", on_conflict="fail", beside=lambda: (world.load(5, "1"), later()))


def test_poll_of_a_table_that_was_made_anew_reads_its_entries_again() -> None:
    """Polls keep the entries that they have read, by version."""
    store = MemoryStore()
    write(on(store), rows(1))
    sensor = on(store)
    _, before = sensor.last_changes(["day=1"], Since())
    for key in store.keys("flights/"):
        store.apply(Delete(key))
    again = write(on(store), rows(2))
    _, after = sensor.last_changes(["day=1"], Since())
    assert after.of["day=1"].done.job == again.job != before.of["day=1"].done.job
