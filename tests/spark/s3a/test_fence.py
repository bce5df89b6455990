from __future__ import annotations

import pytest

from support.memory_store import ManualClock
from zero_rename.committer import StoreUnreachableError
from zero_rename.s3a.runs.try_record import HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT
from zero_rename.spark.s3a.recorded_write import GIVE_UP, Fence


class World:
    """What a fence sees and does."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.reachable = True
        self.superseded = ""
        self.renewed = 0
        self.cancelled = 0
        self.fence = Fence(self._beat, self._cancel, self.clock)

    def _beat(self) -> str:
        if not self.reachable:
            raise StoreUnreachableError("no answer")
        self.renewed += 1
        return self.superseded

    def _cancel(self) -> None:
        self.cancelled += 1

    def heartbeat_after(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.fence.heartbeat()


@pytest.fixture
def world() -> World:
    return World()


def test_a_write_goes_on_while_signs_are_given(world: World) -> None:
    for _ in range(20):
        world.heartbeat_after(HEARTBEAT_INTERVAL)
    assert (world.renewed, world.cancelled, world.fence.reason) == (20, 0, "")


def test_a_later_try_ends_it(world: World) -> None:
    world.superseded = "A later attempt of this run has begun (attempt 2)"
    world.heartbeat_after(HEARTBEAT_INTERVAL)
    assert world.fence.reason == world.superseded
    assert world.cancelled == 1


def test_a_write_that_was_ended_stays_so(world: World) -> None:
    """A write has several Spark jobs, and one may begin after the others were cancelled. Nor may
    it look alive any more."""
    world.superseded = "A later attempt of this run has begun (attempt 2)"
    world.heartbeat_after(HEARTBEAT_INTERVAL)
    world.superseded = ""
    renewed = world.renewed
    world.heartbeat_after(HEARTBEAT_INTERVAL)
    assert (world.cancelled, world.renewed) == (2, renewed)


def test_signs_that_cannot_be_given_end_it_before_others_take_it_for_dead(world: World) -> None:
    world.heartbeat_after(HEARTBEAT_INTERVAL)
    world.reachable = False
    silent = 0.0
    while silent + HEARTBEAT_INTERVAL < GIVE_UP:
        silent += HEARTBEAT_INTERVAL
        with pytest.raises(StoreUnreachableError):
            world.heartbeat_after(HEARTBEAT_INTERVAL)
    assert world.cancelled == 0
    world.heartbeat_after(HEARTBEAT_INTERVAL)
    assert world.cancelled == 1
    assert f"no heartbeat for {silent + HEARTBEAT_INTERVAL:.0f} s" in world.fence.reason
    assert silent + HEARTBEAT_INTERVAL < HEARTBEAT_TIMEOUT


def test_one_that_gets_through_is_enough(world: World) -> None:
    for reachable in (False, False, True, False, False):
        world.reachable = reachable
        if reachable:
            world.heartbeat_after(20)
        else:
            with pytest.raises(StoreUnreachableError):
                world.heartbeat_after(20)
    assert world.fence.reason == ""


def test_a_pause_that_nobody_noticed_harms_nothing(world: World) -> None:
    world.heartbeat_after(10 * HEARTBEAT_TIMEOUT)
    assert (world.fence.reason, world.cancelled) == ("", 0)
