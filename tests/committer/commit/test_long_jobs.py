"""Jobs that are open while a head goes through more states than it remembers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.memory_store import ManualClock, MemoryStore
from support.protocol import DAY1, ROOT, World
from zero_rename.committer import CommitConflictError, Mode
from zero_rename.committer.store.requests import ListObjects, Put


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def world(clock: ManualClock) -> World:
    """A partition that was replaced once, long ago."""
    world = World(MemoryStore(clock))
    world.load(DAY1)
    world.load(DAY1, mode=Mode.REPLACE)
    clock.advance(60)
    return world


def _quick_appends(world: World) -> None:
    """More states than the trail has: two a job."""
    for _ in range(9):
        world.load(DAY1)


def test_a_slow_append_follows_any_number_of_quick_ones(world: World, clock: ManualClock) -> None:
    opened, result = world.written(DAY1)
    clock.advance(60)
    _quick_appends(world)
    assert world.commit(opened, result).job == opened.job
    assert len(world.jobs_of(DAY1)) == 1 + 9 + 1


@pytest.mark.parametrize("seconds", [60, 0])
def test_a_slow_append_still_notices_a_replace(
    world: World, clock: ManualClock, seconds: int
) -> None:
    """One of the same second counts as later."""
    opened, result = world.written(DAY1)
    clock.advance(seconds)
    world.load(DAY1, mode=Mode.REPLACE)
    _quick_appends(world)
    with pytest.raises(CommitConflictError):
        world.commit(opened, result)


def test_a_replace_between_the_listing_and_the_open_record_counts(
    world: World, clock: ManualClock
) -> None:
    """Both are sent at once: the listing may be answered first, and the record much later."""
    other = World(world.store)
    listed: dict[str, Any] = {}

    def late_record(request: Any, apply: Callable[[Any], Any]) -> Any:
        heads = ListObjects(ROOT.heads_prefix)
        if isinstance(request, Put) and request.key.startswith(ROOT.open_prefix) and not listed:
            listed["page"] = apply(heads)
            other.load(DAY1, mode=Mode.REPLACE)
            clock.advance(60)
        if request == heads and "page" in listed:
            return listed.pop("page")
        return apply(request)

    world.driver.fault = late_record
    opened = world.open()
    world.driver.fault = None
    result = world.write(opened, DAY1)
    _quick_appends(other)
    with pytest.raises(CommitConflictError):
        world.commit(opened, result)


def test_a_slow_replace_conflicts_with_quick_appends(world: World, clock: ManualClock) -> None:
    opened, result = world.written(DAY1, mode=Mode.REPLACE)
    clock.advance(60)
    _quick_appends(world)
    with pytest.raises(CommitConflictError):
        world.commit(opened, result)
