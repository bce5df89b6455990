"""The scenarios of the simulation: who takes part, on which store, within which bounds."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

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
from zero_rename.committer.state.context import Limits

APPEND, REPLACE, FAIL = Mode.APPEND, Mode.REPLACE, Mode.FAIL_IF_EXISTS
RESURRECTS = Behaviour(resurrects=True, delete_conditions=False)
MINIO = Behaviour(delete_conditions=False, lists_by_prefix=False)
GAPLESS: dict[str, Any] = {"during_apply": DuringApply.NO_DUPLICATES}
UNMARKED: dict[str, Any] = {"success_markers": SuccessMarkers.NONE}
SMALL: dict[str, Any] = {"limits": Limits(decisions_per_head=1, files_per_object=1)}
#: States of a scenario that `make test` explores: over twice as many as the slowest broken variant
#: needs to be caught.
MOST = int(os.environ.get("SIMULATION_STATES", "20000"))
LAST: dict[str, Any] = {"on_conflict": OnConflict.LAST_WINS}


@dataclass(frozen=True)
class Scenario:
    """A set of participants within bounds.

    :param make: makes the explorer; with a number of preemptions where those are bounded.
    :param switches: all interleavings with at most so many preemptions; ``None``: with any.
    :param random: explored by random walks, with seeds 0…n-1.
    """

    make: Callable[..., Explorer]
    switches: int | None = None
    random: bool = False

    def explorer(self, more_switches: int = 0) -> Explorer:
        if self.switches is None:
            return self.make()
        return self.make(switches=self.switches + more_switches)


#: Scenario, bound, states, ends, seconds.
Row = tuple[str, str, int, int, float]


@dataclass(frozen=True)
class Explored:
    """What became of a scenario.

    :param bound: how far it went: ``all``, ``switches n``, or what cut it off.
    """

    scenario: str
    bound: str
    report: Report
    seconds: float

    @property
    def row(self) -> Row:
        return self.scenario, self.bound, self.report.states, self.report.ends, self.seconds


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
    "an append committed by two processes": Scenario(lambda: twice(APPEND, ONE, owner=job_id("a"))),
    "a replace committed by two processes": Scenario(lambda: twice(REPLACE, ONE)),
    "one that finds its partition taken, two faults, a crash": Scenario(
        one(FAIL, ONE, policy={"once": "run"}, faults=2, crashes=1, owner=job_id("a"))
    ),
    "one append, three faults, lost rights among them": Scenario(
        one(APPEND, ONE, faults=3, denials=True)
    ),
    "a replace and recovery, a crash": Scenario(
        lambda: explorer(writer("a", REPLACE, ONE), recoverer(), crashes=1)
    ),
    "a replace and recovery, a fault": Scenario(
        lambda: explorer(writer("a", REPLACE, ONE), recoverer(), faults=1)
    ),
    "an append and a purge, a crash": Scenario(
        lambda: explorer(writer("a", APPEND, ONE), purger(), crashes=1)
    ),
    "an append and a purge of foreign uploads": Scenario(
        lambda: explorer(writer("a", APPEND, ONE), purger(foreign_older_than=0.0))
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
        switches=1,
    ),
    "a replace of two partitions and a reader": Scenario(
        lambda **bounds: explorer(writer("a", REPLACE, ONE, TWO), reader(ONE, TWO), **bounds),
        switches=3,
    ),
    "a replace and a reader that may not write": Scenario(
        lambda **bounds: explorer(
            writer("a", REPLACE, ONE, TWO), reader(ONE, TWO, writes=False), **bounds
        ),
        switches=2,
    ),
    "a slow applier and a replace without duplicates": Scenario(
        lambda **bounds: explorer(
            writer("a", REPLACE, ONE), writer("b", REPLACE, ONE, **GAPLESS, **LAST), **bounds
        ),
        switches=2,
    ),
    "two tries of one run, a crash": Scenario(
        lambda **bounds: explorer(
            writer("a", APPEND, ONE, once="run"),
            writer("b", APPEND, ONE, once="run"),
            crashes=1,
            **bounds,
        ),
        switches=1,
    ),
    "a slow applier where Complete resurrects": Scenario(
        lambda **bounds: explorer(
            writer("a", REPLACE, ONE),
            recoverer(),
            writer("b", REPLACE, ONE),
            behaviour=RESURRECTS,
            **bounds,
        ),
        switches=2,
    ),
    "two appends that fold, a fault": Scenario(
        lambda **bounds: explorer(
            writer("a", APPEND, ONE, **SMALL, **UNMARKED),
            writer("b", APPEND, ONE, **SMALL, **UNMARKED),
            faults=1,
            **bounds,
        ),
        switches=1,
    ),
    "a folding append, a replace and a reader": Scenario(
        lambda **bounds: explorer(
            writer("a", APPEND, ONE, **SMALL),
            writer("b", REPLACE, ONE, **SMALL),
            reader(ONE),
            **bounds,
        ),
        switches=2,
    ),
}
RANDOM = {
    "three writers, a reader, recovery and purge": Scenario(
        crowd(crashes=2, faults=2), random=True
    ),
    "the same on a store like MinIO": Scenario(
        crowd(crashes=2, faults=2, behaviour=MINIO), random=True
    ),
    "the same where Complete resurrects": Scenario(crowd(behaviour=RESURRECTS), random=True),
}
SCENARIOS = {**EXHAUSTIVE, **BOUNDED, **RANDOM}


def explore(name: str, most: int | None = None, more_switches: int = 0) -> Explored:
    """Explore a scenario to its end, or until ``most`` states are known.

    :param more_switches: preemptions beyond the scenario's own bound, where it has one.
    :raises Failure: an invariant does not hold.
    """
    scenario = SCENARIOS[name]
    begun = time.monotonic()
    report = scenario.explorer(more_switches).exhaust(most)
    bound = "all" if scenario.switches is None else f"switches {scenario.switches + more_switches}"
    if not report.complete:
        bound = f"{most} states"
    return Explored(name, bound, report, time.monotonic() - begun)


def walk(name: str, seeds: Sequence[int]) -> Explored:
    """Walk through a scenario at random, once for each seed.

    :raises Failure: an invariant does not hold; the seed replays it.
    """
    begun = time.monotonic()
    explorer_ = RANDOM[name].explorer()
    report = Report(complete=False)
    for seed in seeds:
        report.steps += explorer_.wander(seed)
        report.ends += 1
    report.states = explorer_.seen.count
    return Explored(name, f"{len(seeds)} walks", report, time.monotonic() - begun)


def table(rows: Iterable[Row]) -> list[str]:
    """Lines that say how far scenarios were explored."""
    lines = [f"{'scenario':52} {'bound':>13} {'states':>9} {'ends':>7} {'seconds':>8}"]
    total = 0
    for scenario, bound, states, ends, seconds in rows:
        lines.append(f"{scenario:52} {bound:>13} {states:>9} {ends:>7} {seconds:>8.1f}")
        total += states
    lines.append(f"{'distinct states':52} {'':13} {total:>9}")
    return lines
