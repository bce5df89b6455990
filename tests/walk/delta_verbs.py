"""Verbs of a walk through a Delta table: each one call of the public interface, or a few."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from walk import change_verbs, conflict_verbs, engine, run_verbs, verbs
from walk.delta_oracle import DeleteElsewhere, RestoreVersion, UndoJob
from walk.delta_world import FAST, LOG, Bodies, DeltaProcess, DeltaWorld
from walk.oracle import Effect, Rewrite, Row, Violation, Write, rows_of
from walk.plan import Operation
from walk.readers import Seen, of_arrow, require, rows_in
from walk.verbs import OpenJob, Verb, names_of, told_of, wanted_of
from walk.world import Process, Told, World, written

from zero_rename.committer import UnpublishedJob
from zero_rename.committer.errors import RefusedError, SnapshotGoneError
from zero_rename.committer.format.job_spec import FileOptions, JobSpec, SuccessMarkers
from zero_rename.committer.upkeep.recovery import Outcome, Recovered
from zero_rename.log.repairing import RepairOutcome
from zero_rename.tables import DeltaTable
from zero_rename.tables.delta_steps import DeltaSteps

#: What is said of a job that a repair has been over before.
_OVER = (RepairOutcome.REPEATED, RepairOutcome.ACCEPTED)


def table_of(process: Process) -> DeltaTable:
    """The table as a process finds it."""
    assert isinstance(process, DeltaProcess)
    return process.fresh()


def read_state(
    world: World, table: DeltaTable, asked: Collection[str] | None = None, **words: Any
) -> tuple[int, Seen]:
    """A version, and the rows that a scan of it shows.

    :raises Violation: they are not those that the version was to have.
    """
    scan = table.scan(asked, **words)
    seen = of_arrow(world, scan.to_arrow())
    version = scan.snapshot.log_version
    assert version is not None
    shape = world.oracle.shapes[version + 1] or {}
    names = {it.name: str(it.type) for it in scan.snapshot.schema if it.name not in ("id", "day")}
    if names != shape:
        raise Violation(f"a reader of version {version} is given {names}; its columns are {shape}")
    require(f"a reader of version {version}", seen, [rows_at(world, version, asked)])
    return version, seen


def rows_at(world: World, version: int, asked: Collection[str] | None) -> Seen:
    """The rows that a version has in partitions, or in all."""
    assert isinstance(world, DeltaWorld)
    return rows_in(world.oracle.wanted(version), asked)


def _asked(world: World, operation: Operation) -> list[str] | None:
    every = operation.options["all"] or not world.plan.partitioned
    return None if every else list(names_of(world, operation))


def read(world: World, process: Process, operation: Operation) -> Told:
    """A reader, who is given a version that there has been since he came."""
    table, asked = table_of(process), _asked(world, operation)
    start = len(world.oracle.commits)
    if operation.choice == 0:
        counted = table.scan(asked).count()
        possible = range(start - 1, len(world.oracle.commits))
        if counted not in [sum(rows_at(world, it, asked).values()) for it in possible]:
            raise Violation(f"{counted} rows are counted, as in none of the versions {possible}")
        return None
    version, _ = read_state(world, table, asked)
    if version + 1 < start:
        raise Violation(f"a reader is given version {version}; there were {start} entries before")
    return None


def read_the_past(world: World, process: Process, operation: Operation) -> Told:
    version = len(world.oracle.commits) - 1 - operation.options["back"]
    assert isinstance(world, DeltaWorld)
    if version < 0:
        return None
    try:
        read_state(world, table_of(process), _asked(world, operation), as_of=version)
    except SnapshotGoneError as error:
        if not world.may_be_gone(error):
            raise Violation(f"version {version} cannot be read: {error}") from error
    return None


def read_modify_write(world: World, process: Process, operation: Operation) -> Told:
    """Rows computed from those of some partitions, in their place."""
    table = table_of(process)
    scan = table.scan(_asked(world, operation))
    seen = of_arrow(world, scan.to_arrow())
    return verbs.write_over(world, process, operation, table, scan.snapshot, seen)


def open_job(world: World, process: Process, operation: Operation) -> Told:
    """A job of tasks that stays open; one has written its rows."""
    table = table_of(process)
    wanted = wanted_of(world, table, operation, operation.options["like"])
    process.effect = wanted.effect
    files = FileOptions(rows_per_file=operation.options.get("rows_per_file"))
    steps = DeltaSteps(process.driver, table.root)  # type: ignore[arg-type]
    words: dict[str, Any] = {"success_markers": SuccessMarkers.NONE, **wanted.words}
    opened = steps.open(steps.job_id(), JobSpec(wanted.schema, files=files, **words))
    process.opened(opened.job)
    if opened.repeated is not None:
        return told_of(world, opened.repeated, opened.job, 0)
    writer = table.task_writer(opened, 0, 0)
    writer.write(wanted.data)
    if operation.options["loser"]:
        # Another attempt of the task, whose number its caller has given before.
        loser = table.task_writer(opened, 0, 1)
        loser.write(wanted.data)
        loser.close()
    world.open_jobs.append(OpenJob(process, steps, opened, (writer.close(),)))
    return None


def hold_back(world: World, process: Process, operation: Operation) -> Told:
    """A job whose rows nobody sees before it is published."""
    assert isinstance(world, DeltaWorld)
    table = table_of(process)
    wanted = wanted_of(world, table, operation, operation.options["like"])
    process.effect = wanted.effect
    files = FileOptions(rows_per_file=operation.options.get("rows_per_file"))
    with table.job(wanted.schema, files=files, publish=False, **wanted.words) as job:
        process.opened(job.job)
        if not job.repeats:
            job.write(wanted.data)
    if job.unpublished is None:
        return told_of(world, job.committed, job.job, wanted.data.num_rows)
    _check_waiting(world, table, job.unpublished, job.job, wanted.data.num_rows)
    world.waiting.append(job.unpublished.job)
    return None


def _check_waiting(
    world: World, table: DeltaTable, waits: UnpublishedJob, job: str | None, wrote: int
) -> None:
    if waits.job in world.oracle.commits:
        raise Violation(f"{waits.job} is said to wait, and is committed")
    if waits.job == job and waits.rows != wrote:
        raise Violation(f"{job} wrote {wrote} rows, and is said to hold back {waits.rows}")


def publish(world: World, process: Process, operation: Operation) -> Told:
    job = _one_waiting(world, operation)
    if job is None:
        return None
    before = job in world.oracle.commits
    try:
        done = table_of(process).publish(job)
    except RefusedError:
        # It waits as before, and may be published another time.
        if job in world.oracle.commits and not before:
            raise Violation(f"{job} is published, and said to be refused") from None
        raise
    if done.job != job:
        raise Violation(f"{job} was to be published, and {done.job} is said to be")
    if job not in world.oracle.commits:
        raise Violation(f"{job} is not published; it is said that {done}")
    world.oracle.tell(job, "committed")
    return None


def throw_away(world: World, process: Process, operation: Operation) -> Told:
    job = _one_waiting(world, operation)
    if job is None:
        return None
    process.jobs.append(job)
    table_of(process).abort(job)
    return "refused"


def _one_waiting(world: World, operation: Operation) -> str | None:
    assert isinstance(world, DeltaWorld)
    if not world.waiting:
        return None
    # The newest; it may be published or thrown away a second time.
    return world.waiting[-1 - operation.choice % min(2, len(world.waiting))]


def restore(world: World, process: Process, operation: Operation) -> Told:
    version = len(world.oracle.commits) - 1 - operation.options["back"]
    if version < 0 or world.oracle.shapes[version + 1] is None:
        return None
    some = operation.verb == "restore some" and world.plan.partitioned
    within = names_of(world, operation) if some else None
    process.effect = lambda job: RestoreVersion(job, 0, version=version, within=within)
    table_of(process).restore(version, within, apply=True)
    return None


def undo(world: World, process: Process, operation: Operation) -> Told:
    oracle = world.oracle
    places = set(names_of(world, operation))
    jobs = [job for number, job in enumerate(oracle.commits) if oracle.touched(number) & places]
    if not jobs:
        return None
    undone = jobs[-1 - operation.choice % min(3, len(jobs))]
    process.effect = lambda job: UndoJob(job, 0, undone=undone)
    table_of(process).undo(undone, apply=True)
    return None


def copy(world: World, process: Process, operation: Operation) -> Told:
    """What lies in the data root alone is copied into the table."""
    if world.oracle.commits:
        table_of(process).checkpoint(apply=True)
    return None


def move(world: World, process: Process, operation: Operation) -> Told:
    """From now on files lie in the table first, or in the data root."""
    assert isinstance(world, DeltaWorld)
    if world.plan.fast and world.oracle.commits:
        world.moved = True
        table_of(process).set_data_root(None if operation.choice % 2 else FAST, apply=True)
    return None


def append_elsewhere(world: World, process: Process, operation: Operation) -> Told:
    """Another engine appends rows of the table's columns to a partition."""
    oracle, name = world.oracle, names_of(world, operation)[0]
    assert isinstance(world, DeltaWorld)
    if oracle.columns is None:
        return None
    rows: dict[str, tuple[Row, ...]] = {name: ((operation.number * 100, written(oracle.columns)),)}
    job = f"engine-{operation.number}"
    oracle.effects[job] = Write(job, rows=rows, last_wins=True, columns=dict(oracle.columns))
    engine.append(world, process, job, name, rows[name])
    return None


def compact_elsewhere(world: World, process: Process, operation: Operation) -> Told:
    """Another engine writes the files of a partition again as one."""
    name = names_of(world, operation)[0]
    assert isinstance(world, DeltaWorld)
    if rows := rows_of(world.oracle.state, name):
        says = bool(operation.choice % 2)
        engine.rewrite(world, process, f"engine-{operation.number}", name, rows, "OPTIMIZE", says)
    return None


def delete_elsewhere(world: World, process: Process, operation: Operation) -> Told:
    """Another engine takes a row out of a partition."""
    name = names_of(world, operation)[0]
    assert isinstance(world, DeltaWorld)
    rows, job = rows_of(world.oracle.state, name), f"engine-{operation.number}"
    if not rows:
        return None
    number = rows[operation.choice % len(rows)][0]
    world.oracle.effects[job] = DeleteElsewhere(job, 0, partition=name, number=number)
    left = tuple(it for it in rows if it[0] != number)
    engine.rewrite(world, process, job, name, left, "DELETE", bool(operation.choice % 2))
    return None


def clean_the_log(world: World, process: Process, operation: Operation) -> Told:
    """Another engine deletes entries that a checkpoint stands for."""
    assert isinstance(world, DeltaWorld)
    engine.clean(world, process)
    return None


def vacuum_elsewhere(world: World, process: Process, operation: Operation) -> Told:
    """Another engine deletes files that are older than the table's retention."""
    assert isinstance(world, DeltaWorld)
    if not world.late:  # No request is on its way for a week.
        engine.vacuum(world, process)
    return None


def write_over(world: World, process: Process, operation: Operation) -> Told:
    """Another engine that writes without a condition has not seen the last entry, and appends a row
    by one of the same number, before anybody has gone on from it."""
    assert isinstance(world, DeltaWorld)
    oracle, name = world.oracle, names_of(world, operation)[0]
    if len(oracle.commits) < 2 or oracle.commits[-1].startswith("engine-") or not world.quiet:
        return None
    columns, last = oracle.shapes[-2], f"{len(oracle.commits) - 1:020d}"
    checkpoints = [key for key in world.objects(LOG) if f"{last}.checkpoint" in key]
    if columns is None or columns != oracle.columns or world.open_jobs or checkpoints:
        return None
    if not oracle.has_files_before(Bodies(world)):
        return None  # It would have to have slept since before a VACUUM.
    rows: dict[str, tuple[Row, ...]] = {name: ((operation.number * 100, written(columns)),)}
    job = f"engine-{operation.number}"
    oracle.effects[job] = Write(job, rows=rows, last_wins=True, columns=dict(columns))
    engine.append_over(world, process, job, name, rows[name])
    return None


def repair(world: World, process: Process, operation: Operation) -> Told:
    """Commit again what was written over."""
    assert isinstance(world, DeltaWorld)
    oracle, lost = world.oracle, set(world.oracle.lost)
    for it in table_of(process).repair(apply=True, accept_loss=operation.choice == 3):
        world.trace.append(f"  {it}")
        if it.outcome is RepairOutcome.NEEDLESS:
            effect = oracle.effects[it.job]
            if type(effect) not in (Effect, Rewrite) and effect.partitions:
                raise Violation(f"{it.job} is said to have changed nothing: {effect}")
            continue
        if it.job not in lost and it.outcome not in _OVER:
            raise Violation(f"{it.job} was not lost: {it}")
        if (it.outcome is RepairOutcome.COMMITTED) and it.job in oracle.lost:
            raise Violation(f"{it.job} is said to be committed again, and is not")
    return None


def make_again(world: World, process: Process, operation: Operation) -> Told:
    return run_verbs.make_again(world, process, operation, _look)


def _look(world: World, table: Any, names: Sequence[str]) -> tuple[Mapping[str, int | None], Seen]:
    """The version of the log and the rows that a plan sees, of partitions that hold any."""
    version, seen = read_state(world, table, names)
    return {name: version for name, *_ in seen}, seen


def write_checkpoint(world: World, process: Process, operation: Operation) -> Told:
    table_of(process).checkpoint_log()
    return None


def recover(world: World, process: Process, operation: Operation) -> Told:
    _hear(world, table_of(process).recover(operation.options["age"]))
    return None


def settle(world: World, process: Process, operation: Operation) -> Told:
    """For jobs whose processes have ended."""
    alive = {held.opened.job for held in world.open_jobs}
    table = table_of(process)
    _hear(world, table.settle([it.job for it in table.open_jobs() if it.job not in alive]))
    return None


def _hear(world: World, settled: list[Recovered]) -> None:
    """What recovery says of jobs holds."""
    words = {Outcome.COMMITTED: "committed", Outcome.ABORTED: "refused"}
    for it in settled:
        if it.outcome in words:
            world.oracle.tell(it.job, words[it.outcome])


def purge(world: World, process: Process, operation: Operation) -> Told:
    table = table_of(process)
    table.purge(apply=True)
    if operation.options["age"] is not None:
        table.purge_records(operation.options["age"], apply=True)
    return None


def look_after(world: World, process: Process, operation: Operation) -> Told:
    """Everything that only looks, or says what it would do."""
    table = table_of(process)
    process.effect = Rewrite
    version = max(0, len(world.oracle.commits) - 1)
    looks: list[Callable[[], Any]] = [
        table.doctor,
        table.verify,
        table.history,
        table.conflicts,
        table.plan_recovery,
        table.purge,
        table.purge_records,
        table.compact,
        table.repair,
        table.open_jobs,
        table.unpublished,
        table.not_durable,
        table.exists,
        lambda: table.restore(version),
        lambda: table.delete([("id", ">", 0)], apply=False),
    ]
    before, alone = len(world.oracle.commits), operation.is_undisturbed and not world.late
    looks[(operation.choice * 5 + operation.number) % len(looks)]()
    if alone and len(world.oracle.commits) != before:
        raise Violation("somebody who only looked has written an entry")
    return None


VERBS: Mapping[str, Verb] = {
    **dict.fromkeys(
        (
            *("append", "replace", "replace named", "replace table", "fail if exists"),
            *("evolve", "overwrite schema"),
            *("append by rank", "replace by rank", "replace named by rank", "replace late"),
        ),
        conflict_verbs.write,
    ),
    "merge": change_verbs.merge,
    "update": change_verbs.merge,
    "delete": change_verbs.delete,
    "read, modify, write": read_modify_write,
    "open": open_job,
    "commit": verbs.commit,
    "abort": verbs.abort,
    "hold back": hold_back,
    "publish": publish,
    "throw away": throw_away,
    "compact": verbs.compact,
    "recover": recover,
    "settle": settle,
    "purge": purge,
    "make again": make_again,
    "write checkpoint": write_checkpoint,
    "copy": copy,
    "move": move,
    "append elsewhere": append_elsewhere,
    "compact elsewhere": compact_elsewhere,
    "delete elsewhere": delete_elsewhere,
    "clean the log": clean_the_log,
    "vacuum elsewhere": vacuum_elsewhere,
    "write over": write_over,
    "repair": repair,
    "restore": restore,
    "restore some": restore,
    "undo job": undo,
    "settle conflict": conflict_verbs.settle_conflict,
    "read": read,
    "read the past": read_the_past,
    "look after": look_after,
}
#: Verbs that are about one job, whose fate their errors tell.
OF_ONE_JOB = {
    *("append", "replace", "replace named", "replace table", "fail if exists", "evolve"),
    *("append by rank", "replace by rank", "replace named by rank", "replace late"),
    *("overwrite schema", "read, modify, write", "commit"),
    *("restore", "restore some", "undo job", "merge", "update", "delete", "make again"),
}
