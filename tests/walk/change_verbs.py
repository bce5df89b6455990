"""Verbs of a walk that change rows: merges, updates and deletions."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from walk.change import Change, Given
from walk.oracle import Violation, ids
from walk.plan import Operation
from walk.world import Process, Told, World, columns_of, given_of, value_of, written

from zero_rename.committer.row_rewrite import TableChange


def merge(world: World, process: Process, operation: Operation) -> Told:
    """Rows by their ids, into those that are there; an update inserts none."""
    oracle, options = world.oracle, operation.options
    table, begun = process.fresh(), len(oracle.commits)
    known = world.oracle.columns is not None or bool(world.plan.older)
    schema = columns_of(world, operation, table, brings=options["evolves"], known=known)
    columns = [name for name in schema.names if name not in ("id", "day")]
    # What only says what becomes of rows is a column of a table that a merge makes.
    makes = oracle.columns is None and not world.plan.older
    says_gone = options["gone"] and not makes
    given = _given(world, operation, columns, says_gone)
    inserts = operation.verb == "merge" and options["when_not_matched"] == "insert"
    across = options["across"] and world.plan.partitioned
    words: dict[str, Any] = {"when_matched": options["when_matched"]}
    words |= {"when_not_matched": "insert" if inserts else "ignore", "across_partitions": across}
    words |= {"schema_mode": "merge" if options["evolves"] else "keep"}
    words |= {"delete_when": [("gone", "==", True)]} if says_gone else {}
    words |= {"partition_by": ("day",) if world.plan.partitioned else (), **world.of_new_tables}
    words |= given_of(options, "idempotency_key", "on_repeat", "attempts")
    kinds = {name: str(schema.field(name).type) for name in columns}
    process.effect = lambda job: Change(
        job,
        given=given,
        looked=None if across else {row.place for row in given.values()},
        updates=options["when_matched"] == "update",
        inserts=inserts,
        serial=across,
        idempotency_key=options.get("idempotency_key"),
        on_repeat=options.get("on_repeat", "skip"),
        columns=kinds,
        merges=options["evolves"],
        foreign={"n": "int32"} if world.plan.older else {},
        begun=begun,
    )
    done = table.merge(_as_arrow(given, schema, says_gone), ["id"], **words)
    return _told(world, process, done)


def delete(world: World, process: Process, operation: Operation) -> Told:
    """Rows by their ids, or all of some operations."""
    oracle, options = world.oracle, operation.options
    table, begun = process.fresh(), len(oracle.commits)
    numbers = sorted(number for name in oracle.state for number in ids(oracle.state, name))
    numbers = numbers[operation.choice :][: options["known"]]
    names = {world.partition(day) for day in operation.days}
    named = None if options["across"] or not world.plan.partitioned else names
    process.effect = lambda job: Change(
        job,
        given=dict.fromkeys(numbers, Given("", gone=True)),
        looked=named,
        idempotency_key=options.get("idempotency_key"),
        on_repeat=options.get("on_repeat", "skip"),
        foreign={"n": "int32"},
        begun=begun,
    )
    words = given_of(options, "idempotency_key", "on_repeat", "attempts")
    done = table.delete([("id", "in", numbers)], partitions=named, **words)
    return _told(world, process, done)


def _told(world: World, process: Process, done: TableChange) -> Told:
    """What the report of a change says, held against the oracle."""
    oracle, counts = world.oracle, (done.rows.inserted, done.rows.updated, done.rows.deleted)
    if done.committed is None:
        if counts != (0, 0, 0) or done.partitions:
            raise Violation(f"{counts} rows are said to have changed, by no job")
        return None
    job = done.committed.job
    if job not in oracle.commits and not world.has_forgotten(job):
        raise Violation(f"{job} is said to have changed rows, and has not committed")
    if done.committed.repeated:
        return "refused" if process.jobs and process.jobs[-1] != job else None
    effect = oracle.effects[job]
    assert isinstance(effect, Change)
    if {*done.partitions} != {*effect.partitions} or counts != effect.counts:
        told = f"{counts} in {done.partitions}"
        raise Violation(f"{job} reports {told}; it was {effect.counts} in {effect.partitions}")
    return "committed"


def _given(
    world: World, operation: Operation, columns: list[str], says_gone: bool
) -> dict[int, Given]:
    """Some rows that are there, as they are to be, and some that are not."""
    options, state = operation.options, world.oracle.state
    places = [world.partition(day) for day in operation.days]
    known = [(n, name) for name in sorted(state) for n in sorted(ids(state, name))]
    if not options["across"]:
        known = [it for it in known if it[1] in places] or known
    given: dict[int, Given] = {}
    had = written(columns, 0 if options["same"] else operation.number)
    for number, place in known[operation.choice % max(1, len(known)) :][: options["known"]]:
        place = places[0] if options["moves"] else place
        given[number] = Given(place, had, says_gone and number % 2 == 0)
    for n, place in enumerate(places):
        first = operation.number * 100 + 50 + n
        if operation.verb == "merge":
            given[first] = Given(place, had, says_gone and n == 1)
    return given


def _as_arrow(given: dict[int, Given], schema: pa.Schema, says_gone: bool) -> pa.Table:
    """With a column that says which are gone, where any may be."""
    columns: dict[str, pa.Array] = {}
    for field in schema:
        values = [_value(number, row, field.name) for number, row in given.items()]
        columns[field.name] = pa.array(values, field.type)
    if says_gone:
        columns["gone"] = pa.array([row.gone for row in given.values()], pa.bool_())
    return pa.table(columns)


def _value(number: int, row: Given, column: str) -> int:
    if column == "id":
        return number
    if column == "day":
        return int(row.place.removeprefix("day="))
    return value_of(number, column, dict(row.had)[column])
