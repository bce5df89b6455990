"""The simulation in its long form: every scenario to its end, and many random walks.

``SIMULATION_SEEDS`` says how many walks the random scenarios get together, ``SIMULATION_SWITCHES``
how many preemptions beyond their own bounded scenarios are allowed.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass

from proof.outcome import Outcome, Verdict
from simulation.catalogue import BOUNDED, EXHAUSTIVE, RANDOM, WIDER
from simulation.exploration import Explored, explore, walk

from support.garbage import collect_rarely

_WALKS = 100_000
#: Walks in one piece of work: the local states that a process has met are met again.
_PIECE = 1_000
_LEAST_STATES = 1_000_000
#: States of a scenario at which it is cut off, spread over it: of more it takes gigabytes each.
_MOST_STATES = 2_000_000


@dataclass(frozen=True)
class _Task:
    """A piece of work; ``seeds``: of random walks."""

    scenario: str
    seeds: range | None = None


def prove(processes: int) -> Outcome:
    walks = int(os.environ.get("SIMULATION_SEEDS", _WALKS))
    switches = int(os.environ.get("SIMULATION_SWITCHES", "0"))
    variables = f"SIMULATION_SEEDS={walks} SIMULATION_SWITCHES={switches}"
    command = f"{variables} make proof PARTS=simulation"
    explored: dict[_Task, Explored] = {}
    failures: dict[_Task, BaseException] = {}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, collect_rarely) as pool:
        futures = {_begun(pool, task, switches): task for task in _tasks(walks)}
        for future in as_completed(futures):
            task = futures[future]
            error = future.exception()
            if error is None:
                explored[task] = future.result()
            else:
                failures[task] = error
            print(f"{task.scenario} {task.seeds or ''}: {error or 'passed'}", flush=True)
    # A few walks need not reach everything; a piece of work must.
    for task, found in explored.items():
        if found.missing and (task.seeds is None or len(task.seeds) >= _PIECE):
            failures[task] = AssertionError(f"never reached: {'; '.join(found.missing)}")
    table = _table(explored)
    states = sum(found.report.states for task, found in explored.items() if task.seeds is None)
    table += ["", f"{states:,} distinct states, not counting the walks'."]
    if failures:
        text = [line for task, error in failures.items() for line in _shown(task, error)]
        names = ", ".join(sorted({task.scenario for task in failures}))
        return Outcome(Verdict.FAILED, command, tuple(table + text), f"broken in: {names}")
    if states < _LEAST_STATES:
        return Outcome(Verdict.FAILED, command, tuple(table), f"only {states} states")
    return Outcome(Verdict.PASSED, command, tuple(table))


def _tasks(walks: int) -> Iterator[_Task]:
    for name in EXHAUSTIVE | WIDER | BOUNDED:
        yield _Task(name)
    walks = -(-walks // max(1, len(RANDOM)))
    for name in RANDOM:
        for first in range(0, walks, _PIECE):
            yield _Task(name, range(first, min(first + _PIECE, walks)))


def _begun(pool: ProcessPoolExecutor, task: _Task, switches: int) -> Future[Explored]:
    if task.seeds is None:
        return pool.submit(explore, task.scenario, _MOST_STATES, switches)
    return pool.submit(walk, task.scenario, task.seeds)


def _table(explored: dict[_Task, Explored]) -> list[str]:
    lines = ["| scenario | bound | states | ends | seconds |", "|---|---|---:|---:|---:|"]
    for name in EXHAUSTIVE | WIDER | BOUNDED:
        found = explored.get(_Task(name))
        if found is not None:
            report = found.report
            cells = f"{report.states:,} | {report.ends:,} | {found.seconds:.0f}"
            lines.append(f"| {name} | {found.bound} | {cells} |")
    fewer = False
    lines += ["", "| random walks through | walks | requests | seconds |", "|---|---:|---:|---:|"]
    for name in RANDOM:
        found = [e for task, e in explored.items() if task.scenario == name]
        ends = sum(e.report.ends for e in found)
        steps = sum(e.report.steps for e in found)
        seconds = sum(e.seconds for e in found)
        lines.append(f"| {name} | {ends:,} | {steps:,} | {seconds:.0f} |")
        fewer = fewer or ends < _PIECE
    if fewer:
        lines += [
            "",
            f"Of fewer than {_PIECE:,} walks it is not asked that they reach each outcome.",
        ]
    return lines


def _shown(task: _Task, error: BaseException) -> list[str]:
    return ["", f"**{task.scenario}** is broken:", "", "```", *str(error).splitlines(), "```"]
