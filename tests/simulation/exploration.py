"""Exploring the scenarios of the catalogue, and what became of each."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from simulation.catalogue import RANDOM, SCENARIOS
from simulation.explore import Report

#: Scenario, bound, states, ends, seconds.
Row = tuple[str, str, int, int, float]


@dataclass(frozen=True)
class Explored:
    """What became of a scenario.

    :param bound: how far it went: ``all``, ``switches n``, or what cut it off.
    :param missing: outcomes that must be reached and were not.
    """

    scenario: str
    bound: str
    report: Report
    seconds: float
    missing: tuple[str, ...] = ()

    @property
    def row(self) -> Row:
        return self.scenario, self.bound, self.report.states, self.report.ends, self.seconds


def explore(name: str, most: int | None = None, more_switches: int = 0) -> Explored:
    """Explore a scenario to its end, or until ``most`` states are known.

    :param more_switches: preemptions beyond the scenario's own bound, where it has one.
    :raises Failure: an invariant does not hold.
    """
    scenario = SCENARIOS[name]
    begun = time.monotonic()
    explorer_ = scenario.explorer(more_switches)
    report = explorer_.exhaust(most)
    bound = "all" if scenario.switches is None else f"switches {scenario.switches + more_switches}"
    if not report.complete:
        bound = f"{most} states"
    missing = scenario.missing(explorer_.reached)
    return Explored(name, bound, report, time.monotonic() - begun, missing)


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
    missing = RANDOM[name].missing(explorer_.reached)
    return Explored(name, f"{len(seeds)} walks", report, time.monotonic() - begun, missing)


def table(rows: Iterable[Row]) -> list[str]:
    """Lines that say how far scenarios were explored."""
    lines = [f"{'scenario':52} {'bound':>13} {'states':>9} {'ends':>7} {'seconds':>8}"]
    total = 0
    for scenario, bound, states, ends, seconds in rows:
        lines.append(f"{scenario:52} {bound:>13} {states:>9} {ends:>7} {seconds:>8.1f}")
        total += states
    lines.append(f"{'distinct states':52} {'':13} {total:>9}")
    return lines
