"""The committer's own code explored on a store in memory: interleavings, crashes, lost answers.

Run ``python -m pytest tests/simulation -s`` to see the bounds and the states of each scenario;
``SIMULATION_SEEDS=100000`` for more random walks; ``SIMULATION_SEED=7`` replays one;
``SIMULATION_SWITCHES=1`` allows one more preemption where they are bounded.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from simulation.explore import Explorer, Report
from simulation.scenarios import (
    ONE,
    TWO,
    explorer,
    job_id,
    purger,
    reader,
    recoverer,
    twice,
    writer,
)
from simulation.sim_store import Behaviour

from zero_rename.committer import DuringApply, Mode, OnConflict, SuccessMarkers
from zero_rename.committer.s3.requests import Put
from zero_rename.committer.state.context import Limits

APPEND, REPLACE, FAIL = Mode.APPEND, Mode.REPLACE, Mode.FAIL_IF_EXISTS
RESURRECTS = Behaviour(resurrects=True, delete_conditions=False)
MINIO = Behaviour(delete_conditions=False, lists_by_prefix=False)
GAPLESS: dict[str, Any] = {"during_apply": DuringApply.NO_DUPLICATES}
UNMARKED: dict[str, Any] = {"success_markers": SuccessMarkers.NONE}
SMALL: dict[str, Any] = {"limits": Limits(decisions_per_head=1, files_per_object=1)}
LAST: dict[str, Any] = {"on_conflict": OnConflict.LAST_WINS}
WALKS = int(os.environ.get("SIMULATION_SEEDS", "400"))
SWITCHES = int(os.environ.get("SIMULATION_SWITCHES", "0"))
LEAST_STATES = 1_000_000


@dataclass(frozen=True)
class Scenario:
    """A set of participants within bounds.

    :param make: makes the explorer; with a number of preemptions where those are bounded.
    :param switches: all interleavings with at most so many preemptions; ``None``: with any.
    :param walks: random walks instead, with seeds 0…n-1.
    """

    make: Callable[..., Explorer]
    switches: int | None = None
    walks: int = 0

    def explorer(self) -> Explorer:
        return self.make() if self.switches is None else self.make(switches=self.switches)

    @property
    def bound(self) -> str:
        if self.walks:
            return f"{self.walks} walks"
        return "all" if self.switches is None else f"switches {self.switches}"


def two(first: Mode, second: Mode, **bounds: Any) -> Callable[[], Explorer]:
    return lambda: explorer(writer("a", first, ONE), writer("b", second, ONE), **bounds)


def one(mode: Mode, *partitions: str, policy: dict[str, Any] | None = None, **bounds: Any):
    return lambda: explorer(writer("a", mode, *partitions, **(policy or {})), **bounds)


def crowd(**bounds: Any) -> Callable[[], Explorer]:
    """Three writers on overlapping partitions, readers, recovery and purge beside them."""
    return lambda: explorer(
        writer("a", REPLACE, ONE, TWO),
        writer("b", APPEND, ONE, once="run"),
        writer("c", REPLACE, TWO, once="run", **LAST),
        reader(ONE, TWO),
        recoverer(),
        purger(),
        **bounds,
    )


EXHAUSTIVE = {
    "two replaces of one partition, a fault": Scenario(two(REPLACE, REPLACE, faults=1)),
    "one append, two faults": Scenario(one(APPEND, ONE, faults=2)),
    "one replace of two partitions, a fault, a crash": Scenario(
        one(REPLACE, ONE, TWO, faults=1, crashes=1)
    ),
    "one replace without duplicates, a fault, a crash": Scenario(
        one(REPLACE, ONE, policy=GAPLESS, faults=1, crashes=1)
    ),
    "two replaces of one partition": Scenario(two(REPLACE, REPLACE)),
    "an append and a replace of one partition": Scenario(two(APPEND, REPLACE)),
    "two appends to one partition": Scenario(two(APPEND, APPEND)),
    "two that fail if a partition exists": Scenario(
        lambda: explorer(writer("a", FAIL, "day=3"), writer("b", FAIL, "day=3"))
    ),
    "two replaces that share one of two partitions": Scenario(
        lambda: explorer(
            writer("a", REPLACE, ONE, TWO, **UNMARKED), writer("b", REPLACE, TWO, **UNMARKED)
        )
    ),
    "two replaces of a partition each": Scenario(
        lambda: explorer(writer("a", REPLACE, ONE), writer("b", REPLACE, TWO))
    ),
    "an append committed by two processes, a crash": Scenario(
        lambda: twice(APPEND, ONE, crashes=1)
    ),
    "a replace committed by two processes": Scenario(lambda: twice(REPLACE, ONE)),
    "a replace and recovery, a crash": Scenario(
        lambda: explorer(writer("a", REPLACE, ONE), recoverer(), crashes=1)
    ),
    "a replace and recovery, a fault": Scenario(
        lambda: explorer(writer("a", REPLACE, ONE), recoverer(), faults=1)
    ),
    "an append and a purge, a crash": Scenario(
        lambda: explorer(writer("a", APPEND, ONE), purger(), crashes=1)
    ),
    "two appends that fold": Scenario(
        lambda: explorer(writer("a", APPEND, ONE, **SMALL), writer("b", APPEND, ONE, **SMALL))
    ),
    "one append that folds, a fault, a crash": Scenario(
        one(APPEND, ONE, TWO, policy=SMALL, faults=1, crashes=1)
    ),
    "one replace in parts, a fault, a crash": Scenario(
        one(REPLACE, ONE, TWO, policy=SMALL, faults=1, crashes=1)
    ),
    "a replace in parts and recovery, a crash": Scenario(
        lambda: explorer(writer("a", REPLACE, ONE, **SMALL), recoverer(**SMALL), crashes=1)
    ),
}
BOUNDED = {
    "two replaces of two partitions": Scenario(
        lambda **bounds: explorer(
            writer("a", REPLACE, ONE, TWO), writer("b", REPLACE, ONE, TWO), **bounds
        ),
        switches=1 + SWITCHES,
    ),
    "a replace of two partitions and a reader": Scenario(
        lambda **bounds: explorer(writer("a", REPLACE, ONE, TWO), reader(ONE, TWO), **bounds),
        switches=3 + SWITCHES,
    ),
    "two tries of one run, a crash": Scenario(
        lambda **bounds: explorer(
            writer("a", APPEND, ONE, once="run"),
            writer("b", APPEND, ONE, once="run"),
            crashes=1,
            **bounds,
        ),
        switches=1 + SWITCHES,
    ),
    "a slow applier where Complete resurrects": Scenario(
        lambda **bounds: explorer(
            writer("a", REPLACE, ONE),
            recoverer(),
            writer("b", REPLACE, ONE),
            behaviour=RESURRECTS,
            **bounds,
        ),
        switches=2 + SWITCHES,
    ),
    "a folding append, a replace and a reader": Scenario(
        lambda **bounds: explorer(
            writer("a", APPEND, ONE, **SMALL),
            writer("b", REPLACE, ONE, **SMALL),
            reader(ONE),
            **bounds,
        ),
        switches=2 + SWITCHES,
    ),
}
RANDOM = {
    "three writers, a reader, recovery and purge": Scenario(
        crowd(crashes=2, faults=2), walks=WALKS
    ),
    "the same on a store like MinIO": Scenario(
        crowd(crashes=2, faults=2, behaviour=MINIO), walks=WALKS
    ),
    "the same where Complete resurrects": Scenario(crowd(behaviour=RESURRECTS), walks=WALKS),
}
SCENARIOS = {**EXHAUSTIVE, **BOUNDED, **RANDOM}


def run(name: str) -> tuple[str, Report, float]:
    """Explore one scenario; in a process of its own."""
    scenario = SCENARIOS[name]
    begun = time.monotonic()
    explorer_ = scenario.explorer()
    if not scenario.walks:
        return name, explorer_.exhaust(), time.monotonic() - begun
    report = Report(complete=False)
    chosen = os.environ.get("SIMULATION_SEED")
    for seed in range(scenario.walks) if chosen is None else [int(chosen)]:
        report.steps += explorer_.wander(seed)
        report.ends += 1
    report.states = len(explorer_.seen)
    return name, report, time.monotonic() - begun


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_no_invariant_is_ever_broken() -> None:
    """All six invariants in every state of every scenario, at least a million states."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
        results = list(pool.map(run, SCENARIOS))
    print(f"\n{'scenario':52} {'bound':>10} {'states':>9} {'ends':>7} {'seconds':>8}")
    for name, report, seconds in results:
        bound = SCENARIOS[name].bound
        print(f"{name:52} {bound:>10} {report.states:>9} {report.ends:>7} {seconds:>8.1f}")
    total = sum(report.states for _, report, _ in results)
    print(f"{'distinct states':52} {'':10} {total:>9}")
    reports = {name: report for name, report, _ in results}
    assert all(reports[name].complete for name in EXHAUSTIVE | BOUNDED)
    assert "SIMULATION_SEED" in os.environ or total >= LEAST_STATES


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        ("one append that folds, a fault, a crash", "t/_zero_rename/manifests/"),
        ("one replace in parts, a fault, a crash", f"t/_zero_rename/jobs/{job_id('a')}."),
    ],
)
def test_small_limits_lead_to_manifests_and_parts(name: str, prefix: str) -> None:
    """What the scenarios are named after happens in them."""
    explored = SCENARIOS[name].explorer()
    explored.exhaust()
    written = {request.key for request in explored.asked() if isinstance(request, Put)}
    assert any(key.startswith(prefix) and not key.endswith("A.json") for key in written), written
