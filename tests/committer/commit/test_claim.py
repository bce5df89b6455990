"""Claiming beside a job that claims too: who waits holds only what comes first in the order."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from support.memory_store import ManualClock, MemoryDriver
from support.protocol import DAY1, DAY2, DAY3, ROOT, World
from zero_rename.committer import Mode
from zero_rename.committer.commit.claim import ClaimRequest, claim_all
from zero_rename.committer.commit.others import outwait
from zero_rename.committer.commit.state.heads import read_head
from zero_rename.committer.commit.state.job_state import OpenedJob
from zero_rename.committer.format.records.head import Slot
from zero_rename.committer.store.requests import All, Found, Head, Wait


class Hook(ManualClock):
    """A clock that does something the first time somebody waits."""

    def __init__(self, act: Callable[[], None]) -> None:
        super().__init__()
        self._act: Callable[[], None] | None = act

    def advance(self, seconds: float) -> None:
        super().advance(seconds)
        act, self._act = self._act, None
        if act is not None:
            act()


def _requests(opened: OpenedJob, partitions: Sequence[str]) -> list[ClaimRequest]:
    return [ClaimRequest(Slot.partition(ROOT, p), opened.base[p], True) for p in partitions]


def _claimed_by(world: World, job: str) -> list[str]:
    slots = [Slot.partition(ROOT, partition) for partition in (DAY1, DAY2, DAY3)]
    states = [world.driver.run(read_head(world.context, slot)) for slot in slots]
    return [state.slot.name for state in states if state.head.claim == job]


@pytest.mark.parametrize("order", list(itertools.permutations([DAY1, DAY2, DAY3])))
def test_who_waits_holds_only_what_comes_before(order: tuple[str, ...]) -> None:
    """Else two jobs that share partitions wait for each other until one takes the other for
    dead."""
    world = World()
    world.load(DAY1, DAY2, DAY3)
    other, pending = world.written(DAY2, mode=Mode.REPLACE)
    world.driver.run(claim_all(world.context, other, _requests(other, [DAY2])))
    ours = world.open(Mode.REPLACE)
    held_while_waiting: list[list[str]] = []

    def other_gives_way() -> None:
        held_while_waiting.append(_claimed_by(world, ours.job))
        world.abort(other, pending)

    driver = MemoryDriver(world.store, clock=Hook(other_gives_way))
    held = driver.run(claim_all(world.context, ours, _requests(ours, order))).held
    assert held_while_waiting == [[DAY1]]
    assert sorted(slot.name for slot in held) == [DAY1, DAY2, DAY3]
    assert _claimed_by(world, ours.job) == [DAY1, DAY2, DAY3]


@pytest.mark.parametrize(("before", "pause"), [(0, 2.0), (3, 0.5), (100, 0.2)])
def test_who_has_waited_for_many_looks_more_often(before: int, pause: float) -> None:
    """Else a job that claims several partitions is overtaken again and again by those that have
    just come."""
    world = World()
    world.load(DAY1)
    opened = world.open()
    waiting = outwait(world.context, ROOT.head_key(DAY1), "another", opened.job, before)
    pauses: list[float] = []
    answer: Any = None
    while len(pauses) < 2:
        request = waiting.send(answer)
        if isinstance(request, Wait):
            pauses.append(request.seconds)
        if isinstance(request, All):
            head = Found(ROOT.head_key(DAY1), "another", 1, 0.0, 0.0)
            answer = [head, world.driver.perform(Head(ROOT.open_key(opened.job)))]
        else:
            answer = world.driver.perform(request)
    assert pauses == [pause, pause]
