"""The end of a walk of a table of directories: everything is settled, and compared."""

from __future__ import annotations

import re
from collections.abc import Iterable

from walk import readers
from walk.oracle import Violation, Write, ids
from walk.plan import Operation
from walk.world import ROOT, Process, World

from zero_rename.committer.commit.state.job_state import JobState
from zero_rename.committer.format.records.success_marker import SuccessMarker
from zero_rename.committer.upkeep.recovery import Outcome, Recovered
from zero_rename.committer.upkeep.verify import Finding

_CLAIM = re.compile(rb'"claim":"([^"]*)"')


def look(world: World) -> None:
    """Somebody reads the whole table, with nothing in the way."""
    process = world.process(9)
    table = process.fresh()
    if not world.oracle.commits:
        return
    start = len(world.oracle.commits)
    snapshot = table.snapshot()
    seen = readers.by_heads(world, table, snapshot)
    readers.require_state(world, "a look", start, snapshot.schema, seen, None)
    _check_markers(world)


def end(world: World) -> None:
    """Whoever was at work has gone; recovery and purge settle it, and everything is compared."""
    world.open_jobs.clear()
    world.deliver(every=True)
    process = world.process(8)
    table = process.fresh()
    if not world.oracle.commits and not world.objects(ROOT.control_prefix):
        return
    require_settled(table.recover(0.0))
    if not world.was_late:
        _no_claims(world)
    require_settled(table.purge(apply=True, patience=0.0).recovered)
    _nothing_left(world, process)
    if not world.oracle.commits:
        return
    _compare(world, process)
    table.gc(0.0, apply=True)
    table.write_index()
    _compare(world, process)
    require_writable(world)
    _compare(world, process)


def require_settled(jobs: Iterable[Recovered]) -> None:
    failed = [it for it in jobs if it.outcome in (Outcome.FAILED, Outcome.LEFT)]
    if failed:
        raise Violation(f"recovery did not settle {failed}")


def _no_claims(world: World) -> None:
    claims = {
        key: found[1].decode()
        for key in (*world.objects(ROOT.heads_prefix), *world.objects(ROOT.runs_prefix))
        if (found := _CLAIM.search(world.store.objects[key].body))
    }
    # Of a run the next job takes off what one has claimed that was fenced in its sleep.
    left = [
        key
        for key, job in claims.items()
        if key.startswith(ROOT.heads_prefix) or not _slept(world, job)
    ]
    if left:
        raise Violation(f"claims are left on {left}")


def _slept(world: World, job: str) -> bool:
    """Whether a job was open while others were at work, and was fenced."""
    number = int(job[-16:-8])
    every = list(world.plan.operations)
    every += [it.operation for operation in every for it in operation.beside]
    opens = any(it.number == number and (it.verb == "open" or it.beside) for it in every)
    return opens and job in world.oracle.aborts


def _nothing_left(world: World, process: Process) -> None:
    table = process.fresh()
    left = [*world.objects(ROOT.open_prefix)]
    left += [f"upload of {key}" for key in world.store.upload_keys(f"{ROOT.prefix}/")]
    if left:
        raise Violation(f"recovery and purge have left {left}")
    _no_claims(world)
    for job, word in world.oracle.told.items():
        state = table.job_state(job)
        if (state is JobState.COMMITTED) != (word == "committed"):
            raise Violation(f"{job} was told {word} and is {state}")
    for job in world.oracle.commits:
        if table.job_state(job) is not JobState.COMMITTED:
            raise Violation(f"{job} was committed, and is {table.job_state(job)}")


def _compare(world: World, process: Process) -> None:
    """Every reader sees what the oracle says."""
    table, oracle = process.fresh(), world.oracle
    snapshot, now = table.snapshot(), len(oracle.commits)
    seen = readers.by_heads(world, table, snapshot)
    readers.require_state(world, "a reader by heads", now, snapshot.schema, seen, None)
    rows = readers.of_arrow(world, table.scan().to_arrow())
    readers.require_state(world, "a scan", now, snapshot.schema, rows, None)
    readers.require_count(world, now, table.scan().count(), None)
    kinds = {it.name: str(it.type) for it in table.schema if it.name not in ("id", "day")}
    if kinds != oracle.columns:
        raise Violation(f"the table's columns are {kinds}, and were to be {oracle.columns}")
    _compare_listings(world)
    _check_markers(world)
    _last_has_marker(world)
    _compare_findings(world, table.verify())


def _compare_findings(world: World, findings: Iterable[Finding]) -> None:
    """``verify`` names every file that came back for good, and nothing but those and what a
    resolution has kept."""
    left = world.left & world.store.objects.keys()
    unnamed = {it.key for it in findings if it.kind == "unnamed"}
    if left - unnamed:
        raise Violation(f"verify does not name {left - unnamed}, which came back")
    kept = world.oracle.kept
    expected = {it.key for it in findings if it.kind == "unnamed" and it.partition in kept} | left
    found = [it for it in findings if it.kind != "unnamed" or it.key not in expected]
    if found:
        raise Violation(f"verify finds {found}")


def _check_markers(world: World) -> None:
    """A ``_SUCCESS`` stands for what a listing of its partition shows, whenever it is there."""
    oracle = world.oracle
    for name in {name for named in oracle.named for name in named} - set(oracle.kept):
        found = world.store.objects.get(ROOT.marker_key(name))
        job = None if found is None else SuccessMarker.parse(found.body, name).job
        if job == oracle.touches(name)[-1]:
            listed = readers.ids_in(world, readers.data_keys(world, name))
            if listed != ids(oracle.state, name):
                raise Violation(f"{name} has the marker of {job}, and a listing shows {listed}")


def _last_has_marker(world: World) -> None:
    """Where the last job of a partition was to leave a marker, that one is there. That of a table
    without partitions may be a job's that changed nothing."""
    oracle = world.oracle
    if not world.plan.partitioned:
        return
    for name in {name for named in oracle.named for name in named}:
        last = oracle.touches(name)[-1]
        effect = oracle.effects[last]
        found = world.store.objects.get(ROOT.marker_key(name))
        marker = None if found is None else SuccessMarker.parse(found.body, name).job
        if isinstance(effect, Write) and effect.marks and marker != last:
            raise Violation(f"{name} was changed last by {last}, and has the marker of {marker}")


def _compare_listings(world: World) -> None:
    oracle = world.oracle
    names = set(oracle.state) | {world.partition(day) for day in (1, 2, 3)}
    for name in sorted(names):
        listed = readers.ids_in(world, readers.data_keys(world, name))
        wanted = ids(oracle.state, name)
        if listed != wanted and (name not in oracle.kept or wanted - listed):
            raise Violation(f"a listing of {name} shows {listed}, the table has {wanted}")


def require_writable(world: World) -> None:
    """A plain append to every partition goes through."""
    before = len(world.oracle.commits)
    world.carry_out(world, Operation(99_990, "append", process=7, days=(1, 2, 3)))
    if len(world.oracle.commits) != before + 1:
        raise Violation(f"nobody can append any more: {world.trace[-1]}")
