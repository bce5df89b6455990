"""Verbs of a walk about the past: jobs taken back, states restored and read, how long they stay."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime

from walk import readers
from walk.oracle import Violation
from walk.past import TakeBack
from walk.plan import Operation
from walk.world import Process, Told, World

from zero_rename import Table
from zero_rename.committer.errors import CommitConflictError, InvalidInputError, SnapshotGoneError


def take_back(world: World, process: Process, operation: Operation) -> Told:
    """Undo a job, the last one more often than not."""
    oracle, past = world.oracle, world.past
    if not oracle.commits:
        return None
    choice = operation.choice
    undone = oracle.commits[-1 if choice < 2 else -min(choice, len(oracle.commits))]
    process.effect = lambda job: TakeBack(job, past=past, undone=undone)
    why = past.why_not_undone(undone)
    try:
        done = process.fresh().undo(undone, apply=True)
    except (InvalidInputError, CommitConflictError) as error:
        if world.quiet and not why:
            raise Violation(f"{undone} cannot be undone: {error}") from error
        raise
    return "committed" if done.job is not None else None


def restore(world: World, process: Process, operation: Operation) -> Told:
    """Bring back what the table held at a time, or a partition at a version."""
    oracle, past, options = world.oracle, world.past, operation.options
    if not oracle.commits:
        return None
    begun, back = len(oracle.commits), options["back"]
    if options["by"] == "version" or not world.plan.partitioned:
        name = world.partition(operation.days[0])
        version = max(0, past.version(name) - back)
        wanted, asked = {name: version}, [name] if world.plan.partitioned else None
        words, time = {"as_of": version}, None
    else:
        time, wanted = oracle.since[-1 - min(back, begun - 1)], {}
        asked = None if options["all"] else [world.partition(day) for day in operation.days]
        words = {"as_of": _said(time)}
    process.effect = lambda job: TakeBack(
        job, past=past, versions=wanted, time=time, asked=asked, begun=begun
    )
    done = process.fresh().restore(**words, partitions=asked, apply=True)
    return "committed" if done.job is not None else None


def _said(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).isoformat()


def retain(world: World, process: Process, operation: Operation) -> Told:
    """Say for how long what is replaced is kept."""
    seconds, past = operation.options["seconds"], world.past
    before = {*past.retentions}
    past.retentions.add(seconds)
    try:
        process.fresh().set_retention(seconds)
    except InvalidInputError:
        past.retentions = before
        raise
    if world.quiet:
        past.retentions = {seconds}
    return None


def read_past(world: World, process: Process, operation: Operation) -> Told:
    """A reader of a version, or of a time."""
    oracle, past, options = world.oracle, world.past, operation.options
    if not oracle.commits:
        return None
    table, back = process.fresh(), options["back"]
    if options["by"] == "version":
        name = world.partition(operation.days[0])
        read_version(world, table, name, max(0, past.version(name) + 1 - back))
        return None
    number = max(0, len(oracle.commits) - back)
    time = oracle.since[number] if back else float(int(world.clock.now))
    names = [world.partition(day) for day in operation.days]
    read_time(world, table, time, None if options["all"] or not world.plan.partitioned else names)
    return None


def read_version(world: World, table: Table, name: str, version: int) -> None:
    """Read a partition as of a version.

    :raises Violation: it is not what it was, or is refused though it must be kept.
    """
    past = world.past
    asked = name if world.plan.partitioned else None
    former = past.is_of_former_columns(name, version) if version <= past.version(name) else False
    try:
        snapshot = table.at(version=version, partition=asked)
        seen = readers.by_heads(world, table, snapshot)
    except (InvalidInputError, SnapshotGoneError) as error:
        # Before its first version the table was not there.
        if version and past.must_be_told(name, version):
            raise Violation(f"version {version} of {name} is refused: {error}") from error
        return
    if version > past.version(name):
        raise Violation(f"{name} is read as of version {version}, and is at {past.version(name)}")
    names = set(snapshot.schema.names) - {"id", "day"}
    state = {name: past.held(name, version)}
    if former and any(state[name].values()):
        raise Violation(f"version {version} of {name} has former columns, and is read")
    readers.require(
        f"who reads version {version} of {name}", seen, [readers.expected(world, state, names)]
    )


def read_time(
    world: World, table: Table, time: float, asked: Collection[str] | None = None
) -> None:
    """Read the table, or some partitions, as of a time.

    :raises Violation: it is not what it was, or is refused though it must be kept.
    """
    past, now = world.past, float(int(world.clock.now))
    try:
        if asked is None:
            snapshot = table.at(time)
            seen = readers.by_heads(world, table, snapshot)
            schema = snapshot.schema
        else:
            rows = table.scan(list(asked), as_of=_said(time)).to_arrow()
            seen, schema = readers.of_arrow(world, rows), rows.schema
    except (InvalidInputError, SnapshotGoneError) as error:
        versions = _asked(past.at(time), asked)
        kept = all(past.must_be_told(name, version) for name, version in versions.items())
        if kept and any(versions.values()) and time <= now:
            raise Violation(f"what counted at {time} is refused: {error}") from error
        return
    versions = _asked(past.at(time), asked)
    names = set(schema.names) - {"id", "day"}
    state = {name: past.held(name, version) for name, version in versions.items()}
    for name, version in versions.items():
        if past.is_of_former_columns(name, version) and any(state[name].values()):
            raise Violation(f"version {version} of {name} has former columns, and is read")
    expected = readers.expected(world, state, names)
    readers.require(f"who reads what counted at {time}", seen, [expected])
    past.looked(time, asked)


def _asked(versions: dict[str, int], asked: Collection[str] | None) -> dict[str, int]:
    return {name: it for name, it in versions.items() if asked is None or name in asked}
