"""Whole jobs on a store of which one answer in five to a change says nothing; pauses pass on the
test's own clock."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from support.protocol import DAY1, DAY2, World
from zero_rename.committer.format.job_spec import Mode
from zero_rename.committer.store.requests import CompleteUpload, Put, Unknown


def is_sent_once(request: Any) -> bool:
    """Whether a driver answers *unknown*; it repeats all else."""
    if isinstance(request, Put):
        return request.if_none_match or request.if_match is not None
    return isinstance(request, CompleteUpload)


def throttled(world: World, share: float, seed: int) -> None:
    """Some changes are answered 503; half of them were carried out."""
    chance = Random(seed)

    def fault(request: Any, apply: Callable[[Any], Any]) -> Any:
        if not is_sent_once(request) or chance.random() >= share:
            return apply(request)
        if chance.random() < 0.5:
            apply(request)
        return Unknown("503 SlowDown")

    world.driver.fault = fault


@pytest.mark.parametrize("share", [0.05, 0.2])
def test_every_job_finishes(share: float) -> None:
    """A first job with its probe, an append, a replace, and a run with a key, twice."""
    for seed in range(40):
        world = World()
        throttled(world, share, seed)
        jobs = [world.load(DAY1, DAY2), world.load(DAY1)]
        replaced = world.load(DAY1, mode=Mode.REPLACE)
        run = world.load(DAY2, idempotency_key="run")
        again = world.open(idempotency_key="run").repeated
        assert again is not None
        assert again.job == run.job, seed
        assert world.jobs_of(DAY1) == [replaced.job], seed
        assert world.jobs_of(DAY2) == [jobs[0].job, run.job], seed
        world.driver.fault = None
        world.recover(0.0)
        world.assert_clean()


def test_the_probe_finds_what_it_finds_in_fair_weather() -> None:
    for seed in range(40):
        world = World()
        throttled(world, 0.2, seed)
        assert world.open().facts == World().open().facts, seed


def test_jobs_finish_where_half_of_the_answers_say_nothing() -> None:
    for seed in range(40):
        world = World()
        jobs = [world.load(DAY1)]
        throttled(world, 0.5, seed)
        jobs += [world.load(DAY1, DAY2), world.load(DAY1, idempotency_key="run")]
        assert world.jobs_of(DAY1) == [job.job for job in jobs], seed
