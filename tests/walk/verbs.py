"""Verbs of a walk: each one call of the public interface, or a few, as a user would put them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from walk import readers
from walk.oracle import Adopt, Effect, Resolve, Rewrite, Row, Undo, Violation, Write
from walk.plan import BY_RANK, LATE, Operation
from walk.ranked import Ranked
from walk.world import Process, Told, World, columns_of, given_of, rows_as_table, written

from zero_rename import Table
from zero_rename.committer.commit.snapshot import Snapshot
from zero_rename.committer.commit.state.job_state import Committed, OpenedJob
from zero_rename.committer.format.job_spec import FileOptions, JobSpec, Owner
from zero_rename.committer.format.records.pending_file import TaskResult
from zero_rename.tables import DeltaTable
from zero_rename.tables.delta_steps import DeltaSteps

#: Seconds from the rank of a run to the next one's.
_A_PERIOD = 50_000


@dataclass(frozen=True)
class OpenJob:
    """A job that is open between two operations, its rows written.

    :param by: commits it, or aborts it.
    """

    process: Process
    by: Table | DeltaSteps
    opened: OpenedJob
    results: tuple[TaskResult, ...]


Verb = Callable[[World, Process, Operation], Told]


def names_of(world: World, operation: Operation) -> tuple[str, ...]:
    return tuple(dict.fromkeys(world.partition(day) for day in operation.days))


def rows_for(
    world: World, operation: Operation, columns: frozenset[str]
) -> dict[str, tuple[Row, ...]]:
    """One to three rows for each day, of which a replace of named ones may leave some out."""
    rows: dict[str, tuple[Row, ...]] = {}
    if operation.options.get("empty"):
        return rows
    for day in operation.days:
        first = operation.number * 100 + day * 10
        some = tuple((first + n, written(columns)) for n in range(1 + (operation.choice + day) % 3))
        name = world.partition(day)
        rows[name] = rows.get(name, ()) + some
    return rows


@dataclass(frozen=True)
class Wanted:
    """A write: what the product is asked, and what the oracle is told of it."""

    schema: pa.Schema
    words: Mapping[str, Any]
    effect: Callable[[str], Effect]
    data: pa.Table


def wanted_of(world: World, table: Table | DeltaTable, operation: Operation, verb: str) -> Wanted:
    options, by_rank, late = operation.options, verb.endswith(BY_RANK), verb.endswith(LATE)
    verb = verb.removesuffix(BY_RANK).removesuffix(LATE)
    brings, known = verb in ("evolve", "overwrite schema"), world.oracle.columns is not None
    schema = columns_of(world, operation, table, brings=brings, known=known)
    columns = frozenset(schema.names) - {"id", "day"}
    names = names_of(world, operation)
    rows = rows_for(world, operation, columns)
    words: dict[str, Any] = {"partition_by": ("day",) if world.plan.partitioned else ()}
    words |= world.of_new_tables
    mode = "replace" if verb.startswith(("replace", "overwrite")) else "append"
    mode = "fail-if-exists" if verb == "fail if exists" else mode
    whole = verb in ("replace table", "overwrite schema")
    named = names if verb == "replace named" and world.plan.partitioned else None
    if named and operation.choice:
        rows.pop(names[-1], None)
    words |= {"mode": mode, "replace_table": whole, "replace_partitions": named}
    words["schema_mode"] = {"evolve": "merge", "overwrite schema": "overwrite"}.get(verb, "keep")
    words |= given_of(options, "on_conflict", "idempotency_key", "on_repeat", "success_markers")
    rank = (world.clock.now // _A_PERIOD + options.get("periods", 0)) * _A_PERIOD
    if by_rank or late:
        words |= {"run_rank": datetime.fromtimestamp(rank, UTC)}
        words |= given_of(options, "on_superseded")
    if late and "idempotency_key" in options:
        task = options["idempotency_key"]
        words |= {"owner": Owner(dag_id=task, task_id="load", run_id=f"{rank:.0f}")}
    kinds = {name: str(schema.field(name).type) for name in columns}

    def effect(job: str) -> Effect:
        said: dict[str, Any] = {
            "rows": rows,
            "mode": mode,
            "named": named or (),
            "whole": whole,
            # A run with a rank takes the place of whatever is older, also of what came since.
            "last_wins": options.get("on_conflict") == "last_wins" or by_rank,
            "idempotency_key": options.get("idempotency_key"),
            "on_repeat": options.get("on_repeat", "skip"),
            "columns": kinds,
            "merges": verb == "evolve",
            "foreign": {"n": "int32"} if world.plan.older else {},
            "overwrites": verb == "overwrite schema",
            "marks": "success_markers" not in options,
        }
        if not by_rank:
            return Write(job, rank=rank if late else None, **said)
        return Ranked(job, rank=rank, skips=options["on_superseded"] == "skip", **said)

    return Wanted(schema, words, effect, rows_as_table(rows, schema))


def told_of(world: World, committed: Committed | None, job: str | None, wrote: int) -> Told:
    """What a job's report says, held against the oracle."""
    if committed is None:
        raise Violation("a job's block was left without an error, and it is not committed")
    if committed.repeated:
        if committed.job not in world.oracle.commits and not world.has_forgotten(committed.job):
            raise Violation(f"the run is said to have been done by {committed.job}, and is not")
        return "refused" if job is not None and job != committed.job else None
    effect = world.oracle.effects.get(committed.job)
    if isinstance(effect, Ranked):
        wrote = sum(map(len, effect.rows.values()))
        if effect.superseded != {*committed.superseded}:
            raise Violation(f"{committed.job} reports that it left out {committed.superseded}")
    if committed.rows != wrote:
        raise Violation(f"{committed.job} wrote {wrote} rows, and its report says {committed.rows}")
    return "committed"


def write(world: World, process: Process, operation: Operation) -> Told:
    """A job from plain Python, as a block."""
    table = process.fresh()
    wanted = wanted_of(world, table, operation, operation.verb)
    process.effect = wanted.effect
    files = FileOptions(rows_per_file=operation.options.get("rows_per_file"))
    with table.job(wanted.schema, files=files, **wanted.words) as job:
        process.opened(job.job)
        if not job.repeats:
            job.write(wanted.data)
    return told_of(world, job.committed, job.job, wanted.data.num_rows)


def read_modify_write(world: World, process: Process, operation: Operation) -> Told:
    """Rows computed from what some partitions hold, in their place."""
    table = process.fresh()
    names = names_of(world, operation)
    start = len(world.oracle.commits)
    asked = None if operation.options["all"] or not world.plan.partitioned else list(names)
    snapshot = table.snapshot(asked)
    seen = readers.by_heads(world, table, snapshot)
    readers.require_state(world, "a job that reads", start, snapshot.schema, seen, asked)
    return write_over(world, process, operation, table, snapshot, seen)


def write_over(
    world: World,
    process: Process,
    operation: Operation,
    table: Table | DeltaTable,
    snapshot: Snapshot,
    seen: readers.Seen,
) -> Told:
    """Replace partitions by rows that were computed from a state of them.

    :param seen: the rows of that state.
    """
    read = {name: readers.ids_of(seen, name) for name in names_of(world, operation)}
    columns = frozenset(snapshot.schema.names) - {"id", "day"}
    rows = rows_for(world, operation, columns)
    last_wins = operation.options.get("on_conflict") == "last_wins"
    process.effect = lambda job: Write(
        job,
        rows=rows,
        mode="replace",
        read={} if last_wins else read,
        last_wins=last_wins,
        columns={name: str(snapshot.schema.field(name).type) for name in columns},
    )
    words: dict[str, Any] = {"on_conflict": "last_wins"} if last_wins else {}
    schema, by = snapshot.schema, snapshot.partition_by
    with table.job(schema, mode="replace", partition_by=by, base=snapshot, **words) as job:
        process.opened(job.job)
        job.write(rows_as_table(rows, schema))
    return told_of(world, job.committed, job.job, sum(map(len, rows.values())))


def open_job(world: World, process: Process, operation: Operation) -> Told:
    """A job that stays open; its rows are written as a task would."""
    table = process.fresh()
    verb = operation.options["like"]
    wanted = wanted_of(world, table, operation, verb)
    process.effect = wanted.effect
    files = FileOptions(rows_per_file=operation.options.get("rows_per_file"))
    opened = table.open_job(JobSpec(wanted.schema, files=files, **wanted.words))
    process.opened(opened.job)
    if opened.repeated is not None:
        return told_of(world, opened.repeated, opened.job, 0)
    writer = table.task_writer(opened, 0, 0)
    writer.write(wanted.data)
    if operation.options["loser"]:
        # Another attempt of the task, whose number its caller has given before.
        loser = table.task_writer(opened, 0, 0)
        loser.write(wanted.data)
        loser.close()
    world.open_jobs.append(OpenJob(process, table, opened, (writer.close(),)))
    return None


def _held(world: World, operation: Operation) -> OpenJob | None:
    """One of the open jobs, which is then its caller's."""
    world.open_jobs[:] = [held for held in world.open_jobs if not held.process.dead]
    if not world.open_jobs:
        return None
    return world.open_jobs.pop(operation.choice % len(world.open_jobs))


def commit(world: World, process: Process, operation: Operation) -> Told:
    held = _held(world, operation)
    if held is None:
        return None
    wrote = sum(file.rows for result in held.results for file in result.files)
    with world.carried_out_by(held.process, process) as jobs:
        jobs.append(held.opened.job)
        done = held.by.commit(held.opened, held.results, 1)
    assert isinstance(done, Committed)
    return told_of(world, done, held.opened.job, wrote)


def abort(world: World, process: Process, operation: Operation) -> Told:
    held = _held(world, operation)
    if held is None:
        return None
    with world.carried_out_by(held.process, process) as jobs:
        done = held.by.abort(held.opened, held.results)
        jobs.append(held.opened.job)
    return "committed" if isinstance(done, Committed) else "refused"


def heartbeat(world: World, process: Process, operation: Operation) -> Told:
    for held in world.open_jobs:
        process.fresh().send_heartbeat(held.opened.job)
    return None


def compact(world: World, process: Process, operation: Operation) -> Told:
    process.effect = Rewrite
    every = operation.options["all"] or not world.plan.partitioned
    process.fresh().compact(None if every else list(names_of(world, operation)), apply=True)
    return None


def gc(world: World, process: Process, operation: Operation) -> Told:
    age = operation.options["age"]
    words = {} if age is None else {"older_than": age}
    process.fresh().gc(apply=True, **words)
    return None


def index(world: World, process: Process, operation: Operation) -> Told:
    process.fresh().write_index()
    return None


def adopt(world: World, process: Process, operation: Operation) -> Told:
    process.effect = Adopt
    process.fresh().adopt(apply=True)
    return None


def recover(world: World, process: Process, operation: Operation) -> Told:
    process.fresh().recover(operation.options["age"])
    return None


def settle(world: World, process: Process, operation: Operation) -> Told:
    """For jobs whose processes have ended."""
    alive = {held.opened.job for held in world.open_jobs}
    table = process.fresh()
    table.settle([it.job for it in table.open_jobs() if it.job not in alive])
    return None


def purge(world: World, process: Process, operation: Operation) -> Told:
    age = operation.options["age"]
    words = {} if age is None else {"records_older_than": age}
    process.fresh().purge(apply=True, patience=age, **words)
    return None


def resolve(world: World, process: Process, operation: Operation) -> Told:
    table, oracle = process.fresh(), world.oracle
    partition = names_of(world, operation)[0]
    touches = oracle.touches(partition)
    how = operation.options["keep"]
    kept = tuple(touches)
    if how == "newest":
        kept = tuple(touches[-1:])
    elif how == "one":
        kept = tuple(touches[operation.choice % max(1, len(touches)) :][:1])
    elif how == "some":
        kept = tuple(touches[operation.choice % 2 :: 2])
    discard = operation.options["discard"]
    dropped = tuple(job for job in touches if job not in kept)
    process.effect = lambda job: Resolve(job, 0, partition, kept, dropped, discard)
    keep = [how] if how in ("newest", "all") else list(kept)
    done = table.keep_rows(partition, keep, apply=True, discard=discard, window=1e9, since=1e9)
    if process.jobs and {*done.dropped} != {*dropped}:
        if not operation.beside:
            raise Violation(f"{done.dropped} are dropped, and were to be {dropped}")
        effect = oracle.effects[process.jobs[0]]
        assert isinstance(effect, Resolve)
        oracle.correct(effect, done.kept, done.dropped)
    return "committed"


def undo(world: World, process: Process, operation: Operation) -> Told:
    table, oracle = process.fresh(), world.oracle
    partition = names_of(world, operation)[0]
    touches = oracle.touches(partition) or oracle.commits
    if not touches:
        return None
    undone = touches[-1] if operation.choice < 3 else touches[len(touches) // 2]
    discard = operation.options["discard"]
    process.effect = lambda job: Undo(job, 0, partition, undone, discard)
    table.keep_rows(partition, undo=undone, apply=True, discard=discard)
    return "committed"


def read(world: World, process: Process, operation: Operation) -> Told:
    """A reader, who may be given any state that there was meanwhile."""
    table, names = process.fresh(), names_of(world, operation)
    start = len(world.oracle.commits)
    asked = None if operation.options["all"] or not world.plan.partitioned else list(names)
    scan = table.scan(asked)
    snapshot = scan.snapshot
    if operation.choice == 0:
        seen = readers.of_arrow(world, scan.to_arrow())
    elif operation.choice == 1:
        counted = scan.count()
        readers.require_count(world, start, counted, asked)
        return None
    else:
        seen = readers.by_heads(world, table, snapshot)
    readers.require_state(world, "a reader", start, snapshot.schema, seen, asked)
    return None


def look_after(world: World, process: Process, operation: Operation) -> Told:
    """Everything that only looks, or says what it would do."""
    table, names = process.fresh(), names_of(world, operation)
    process.effect = Rewrite
    looks: list[Callable[[], Any]] = [
        table.doctor,
        table.problems,
        table.survey,
        table.verify,
        table.overview,
        lambda: table.partition_history(names[0]),
        table.conflicts,
        table.orphaned_uploads,
        table.plan_recovery,
        table.purge,
        lambda: table.gc(0.0),
        table.adopt,
        table.compact,
        table.repair,
        table.partitions,
        lambda: table.partition_states(names),
        table.open_jobs,
        table.history,
        lambda: table.delete([("id", ">", 0)], apply=False),
    ]
    before, alone = len(world.oracle.commits), operation.is_undisturbed and not world.late
    looks[(operation.choice * 5 + operation.number) % len(looks)]()
    if alone and len(world.oracle.commits) != before:
        raise Violation("somebody who only looked has decided a job")
    return None
