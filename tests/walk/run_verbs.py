"""Verbs of a walk about a run that is made again: as a plan narrows it, or whole, by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from walk import readers
from walk.oracle import Oracle, Row, State, Violation, Write, ids
from walk.plan import DAYS, Operation
from walk.world import Process, Told, World, rows_as_table, written

from zero_rename import Table
from zero_rename.committer import Owner, ZeroRenameError
from zero_rename.committer.commit.narrowed_run import end_narrowing, leave_narrowing, read_narrowing
from zero_rename.committer.format.records.narrowing import Narrowing

_AN_HOUR = 3600
Look = Callable[[World, Table, Sequence[str]], tuple[Mapping[str, int | None], readers.Seen]]


@dataclass
class Again(Write):
    """All that a run makes, or of it what a plan names.

    :param planned: the run's job that a plan has named ``only`` some partitions of; ``None``: no
        plan has.
    :param seen: the ids that the plan has found in these.
    :param sure: whether no other clear can have begun by the plan's word, or by another one.
    :param narrowed: it was, once it is decided; ``left_out``: how many rows of others.
    """

    planned: str | None = None
    only: tuple[str, ...] = ()
    seen: Mapping[str, Counter[int]] = field(default_factory=dict)
    sure: bool = True
    narrowed: bool = field(default=False, init=False)
    left_out: int = field(default=0, init=False)

    def apply(self, oracle: Oracle, state: State) -> State:
        is_next = oracle.runs[self.idempotency_key or ""][-1] == self.planned
        self.narrowed = is_next if self.sure else {*self.partitions} == {*self.only}
        if not self.narrowed:
            return super().apply(oracle, state)
        if {*self.partitions} != {*self.only}:
            raise Violation(f"{self.job} was to make {self.only}, and made {self.partitions}")
        for name, seen in self.seen.items():
            if ids(state, name) != seen:
                raise Violation(f"{self.job} takes rows from {name} that no plan has seen: {seen}")
        rows = {name: them for name, them in self.rows.items() if name in self.only}
        self.left_out = _count(self.rows) - _count(rows)
        self.rows, self.named = rows, self.only
        return super().apply(oracle, state)

    def _taken_back(self, oracle: Oracle) -> dict[str, set[int]]:
        gone = super()._taken_back(oracle)
        return {name: gone[name] for name in gone if not self.narrowed or name in self.only}


def _count(rows: dict[str, tuple[Row, ...]]) -> int:
    return sum(map(len, rows.values()))


def look_by_heads(
    world: World, table: Table, names: Sequence[str]
) -> tuple[Mapping[str, int | None], readers.Seen]:
    """What a plan sees of partitions: the version of each, and its rows."""
    start = len(world.oracle.commits)
    snapshot = table.snapshot(names)
    seen = readers.by_heads(world, table, snapshot)
    readers.require_state(world, "a plan", start, snapshot.schema, seen, names)
    return snapshot.versions, seen


def make_again(
    world: World, process: Process, operation: Operation, look: Look = look_by_heads
) -> Told:
    """A run that has had a job is made again, after a plan's word or by hand."""
    table, options = process.fresh(), operation.options
    idempotency_key = options["idempotency_key"]
    if not world.plan.partitioned or not world.oracle.runs.get(idempotency_key):
        return None
    world.by_hand[idempotency_key] += options["by hand"]
    clears, said, seen = world.by_hand[idempotency_key], None, {}
    if not options["by hand"]:
        said, seen = _leave_word(world, process, operation, table, look)
        if said is None:
            return None
    schema = table.schema  # Others may change it meanwhile.
    columns = frozenset(schema.names) - {"id", "day"}
    first = operation.number * 100
    rows = {
        world.partition(day): tuple((first + day * 10 + n, written(columns)) for n in range(2))
        for day in DAYS
    }
    words: dict[str, Any] = {
        "idempotency_key": idempotency_key,
        "on_repeat": "replace_own",
        "mode": "replace",
    }
    process.effect = lambda job: Again(
        job,
        rows=rows,
        columns={name: str(schema.field(name).type) for name in columns},
        planned=None if said is None else said.job,
        only=() if said is None else tuple(said.partitions),
        seen=seen,
        **words,
    )
    owner = Owner(series=f"try {options['clear']}")
    data = rows_as_table(rows, schema)
    with table.job(schema, partition_by=("day",), owner=owner, **words) as job:
        process.opened(job.job)
        made = world.oracle.effects[process.jobs[-1]]
        assert isinstance(made, Again)
        if said is not None:
            made.sure = world.by_hand[idempotency_key] == clears
            world.words.pop(idempotency_key, None)
        elif idempotency_key in world.words:
            made.only, made.sure = world.words[idempotency_key], False
        job.write(data)
    _check_report(job.committed, made)
    if said is not None and options["ends"]:
        with suppress(ZeroRenameError):
            left = table.run(read_narrowing(table.root, idempotency_key))
            if left is not None and left.said.planner.host == process.name:
                table.run(end_narrowing(table.root, left, world.write_id()))
    return "committed"


def _check_report(committed: Any, made: Again) -> None:
    if committed is None:
        raise Violation("a job's block was left without an error, and it is not committed")
    told = committed.rows, committed.left_out, committed.narrows is not None
    if told != (_count(made.rows), made.left_out, made.narrowed):
        raise Violation(f"{made.job} reports {told}: {made}")


def _leave_word(
    world: World, process: Process, operation: Operation, table: Table, look: Look
) -> tuple[Narrowing | None, dict[str, Counter[int]]]:
    """A plan's word to the run, unless another plan is at work; and what it was planned on."""
    idempotency_key = operation.options["idempotency_key"]
    # Of one that is to make all nobody could tell whether it was narrowed.
    names = [world.partition(day) for day in operation.days[: len(DAYS) - 1]]
    found, seen = look(world, table, names)
    versions = {name: it for name in names if (it := found.get(name))}
    left = table.run(read_narrowing(table.root, idempotency_key))
    job = table.job_of_key(idempotency_key)
    if not versions or job is None:
        return None, {}
    other = None if left is None or left.said.over else left.said.planner.host
    if other != process.name and world.is_at_work(other):
        return None, {}
    planner = Owner(task_id="plan", host=process.name)
    said = Narrowing(world.write_id(), idempotency_key, job, versions, _AN_HOUR, planner)
    before, world.words[idempotency_key] = world.words.get(idempotency_key, ()), tuple(versions)
    if not table.run(leave_narrowing(table.root, said, left)):
        world.words[idempotency_key] = before
        return None, {}
    return said, {name: readers.ids_of(seen, name) for name in versions}
