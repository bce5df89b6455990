"""Which states are taken for one, and which are not."""

from __future__ import annotations

from typing import Any

import pytest
from simulation.program import Program
from simulation.sim_store import EMPTY, apply
from simulation.world import Merging, Participant, Seen, World

from support.memory_store import Behaviour
from zero_rename.committer.store.requests import Absent, Clock, Found, Get, Put, Wait

HEAD = "t/_zero_rename/heads/day=1.json"
DECISION = "t/_zero_rename/jobs/J.json"
PART = "t/_zero_rename/jobs/J.w.1"
OPEN = "t/_zero_rename/open/J.json"


def test_less_that_may_go_wrong_is_not_new_after_more() -> None:
    seen = Seen()
    assert seen.add(World(EMPTY, (), faults=1))
    assert not seen.add(World(EMPTY, (), faults=1))
    assert not seen.add(World(EMPTY, ()))
    assert seen.add(World(EMPTY, (), crashes=1))
    assert seen.add(World(EMPTY, (), faults=2))
    assert not seen.add(World(EMPTY, (), faults=2))
    assert seen.add(World(EMPTY, (), faults=1, dead=1))


@pytest.mark.parametrize(
    ("late", "dropped"),
    [
        (Put(HEAD, b"late", if_none_match=True), True),
        (Put(HEAD, b"late", if_match="of a former state"), True),
        (Put(DECISION, b"late", if_none_match=True), True),
        (Put(HEAD, b"late"), False),
        (Put(PART, b"late", if_none_match=True), False),
        (Put(OPEN, b"late", if_none_match=True), False),
    ],
)
def test_late_requests_are_dropped_where_they_can_never_matter(late: Put, dropped: bool) -> None:
    store, behaviour = EMPTY, Behaviour()
    for key in (HEAD, DECISION, PART, OPEN):
        store, _ = apply(store, Put(key, b"{}"), behaviour)
    merged = Merging((), behaviour).merged(World(store, (), late=(late,)), None)
    assert merged.late == (() if dropped else (late,))


def test_a_late_request_that_may_take_effect_is_kept() -> None:
    late = Put(HEAD, b"late", if_none_match=True)
    assert Merging((), Behaviour()).merged(World(EMPTY, (), late=(late,)), None).late == (late,)


def _two_ways(holds_a_time: bool) -> set[Any]:
    """The states after an answer upon which a participant waits, and after one upon which not."""

    def step(ids: Any) -> Any:
        begun = (yield from Clock()) if holds_a_time else None
        if isinstance((yield from Get("a")), Absent):
            yield from Wait(1)
        yield from Get("b")
        return begun

    program = Program("p", step)
    found = Found("a", "etag", 0, 0, 0)
    return {program.answer(program.start, (), answer) for answer in (Absent(0), found)}


def test_time_matters_to_who_holds_a_time() -> None:
    assert len(_two_ways(holds_a_time=False)) == 1
    assert len(_two_ways(holds_a_time=True)) == 2


def test_of_who_is_done_or_dead_only_what_it_was_told_is_kept() -> None:
    def step(ids: Any) -> Any:
        return (yield from Get("a"))

    program = Program("p", step)
    merging = Merging([Participant(program)], Behaviour())
    ends = [program.answer(program.start, (), Absent(date)) for date in (1, 2)]
    assert ends[0] != ends[1]
    assert len({merging.merged(World(EMPTY, (end,)), 0).states for end in ends}) == 1
    dead = merging.merged(World(EMPTY, (ends[0],), dead=1), 0)
    assert dead.states == (program.start,)
