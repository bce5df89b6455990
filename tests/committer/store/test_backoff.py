"""Pauses that grow, and deadlines by an injected clock."""

from __future__ import annotations

import pytest

from support.memory_store import ManualClock, MemoryDriver
from zero_rename.committer.store.backoff import Backoff, Deadline
from zero_rename.committer.store.requests import Step


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [
        (Backoff(tries=5, first=0.5), [0, 0.5, 1, 2, 4]),
        (Backoff(tries=5, first=0.5, at_once=2), [0, 0, 0.5, 1, 2]),
        (Backoff(tries=6, first=1, growth=3, cap=5), [0, 1, 3, 5, 5, 5]),
        (Backoff(tries=3, first=2, growth=1), [0, 2, 2]),
        (Backoff(tries=1, first=9), [0]),
    ],
)
def test_pauses_grow_up_to_the_cap(backoff: Backoff, delays: list[float]) -> None:
    assert [backoff.delay(attempt) for attempt in backoff.attempts()] == delays


def test_a_step_waits_before_each_try() -> None:
    backoff, clock = Backoff(tries=4, first=1), ManualClock(0.0)
    tried = []

    def step() -> Step[None]:
        for attempt in backoff.attempts():
            yield from backoff.pause(attempt)
            tried.append(clock())

    MemoryDriver(clock=clock).run(step())
    assert tried == [0, 1, 3, 7]


def test_a_deadline_is_over_when_its_time_has_come() -> None:
    clock = ManualClock(100.0)
    driver = MemoryDriver(clock=clock)
    deadline = driver.run(Deadline.after(5))
    clock.advance(4.9)
    assert not driver.run(deadline.is_over())
    clock.advance(0.2)
    assert driver.run(deadline.is_over())
