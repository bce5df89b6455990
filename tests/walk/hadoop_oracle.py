"""What must hold of runs by Hadoop's committers, told by who has written the files that are there.

At every look, while others are at work:

* where a sensor by partitions is ready, the files of the job that it names are there, and after
  overwrites no others;
* where a sensor by run is ready, the run's files are those that its report counts, of jobs that it
  names, until another run changes the partition, or unless it reports that one wrote beside it.

When all runs have ended, and recovery has settled what they left:

* both sensors still say so;
* where rows of two attempts of overwrites are left, a run says that it failed by a conflict, and no
  sensor is ready;
* where a run that succeeded has written last, only its rows are there, of the jobs in its report;
* rows that a run appends and reports are there once, and as many files as it reports;
* where each run gives way to newer ones, no rows are older than a run that succeeded.

Partitions are left out that *last_wins* let two runs write at once: whose rows are there is chance.

Whatever happens, no upload of an application is aborted that may write, no run loads a partition
that it has lost by a settlement, a settlement leaves the rows of its winner alone, and no process
ends in a foreign error. These are held where it happens: in the application, at the settlement and
in the strand.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from walk.hadoop_task import FAILED, Task
from walk.hadoop_world import Author, CommittedJob, HadoopWorld
from walk.oracle import Violation
from walk.world import ROOT

from zero_rename.committer.errors import (
    CommitConflictError,
    OutcomeUnknownError,
    RefusedError,
    VerificationError,
)
from zero_rename.committer.format.job_spec import OnConflict
from zero_rename.orchestration.job_query import READY, JobQuery
from zero_rename.orchestration.s3a.written_partitions import WrittenPartition, written_partitions
from zero_rename.s3a.runs.ledger import runs_prefix

#: Ends of a run that say that others' rows may lie beside its own.
_SAYS_SO = (CommitConflictError, VerificationError, OutcomeUnknownError, RefusedError)


def look(world: HadoopWorld, tasks: Sequence[Task]) -> None:
    """Ask all sensors, and compare what they say with the files.

    :raises Violation: a sensor is ready, and its files are not there.
    """
    plan = world.plan
    if not _has_overlap(world):
        for partition, ready in _written(world).items():
            if partition not in world.shared:
                _check_partition(world, partition, ready)
    if plan.replaces or not any(run.replaces for run in plan.runs):
        for task in tasks:
            _check_run(world, task)


def check_end(world: HadoopWorld, tasks: Sequence[Task]) -> None:
    """Compare what runs and sensors say with the files, when all have ended.

    :raises Violation: something is not as it should be.
    """
    look(world, tasks)
    if _has_overlap(world):
        return  # A conflict is on record: whose rows are there is not known.
    for partition in sorted({*world.plan.partitions} - world.shared):
        its = [it for it in tasks if partition in it.run.partitions]
        if all(it.run.replaces for it in its):
            _check_mixed(world, partition, its)
            _check_last(world, partition, its)
        for task in its:
            if task.is_done and not task.run.replaces:
                _check_appended(world, partition, task)
        if world.plan.replaces:
            _check_newest(world, partition, its)


def _written(world: HadoopWorld) -> dict[str, WrittenPartition]:
    return written_partitions(world.sensor, world.plan.partitions, None)[0]


def _has_overlap(world: HadoopWorld) -> bool:
    """Return whether an attempt reports that another one wrote at the same time."""
    keys = world.store.keys(runs_prefix(ROOT))
    return any(b'"overlapped"' in world.store.objects[key].body for key in keys)


def _jobs(world: HadoopWorld, job: str | None) -> list[CommittedJob]:
    """The committed jobs of a UUID, be it of a job or of an attempt."""
    return [it for it in world.committed if job in (it.uuid, it.attempt)]


def _check_partition(world: HadoopWorld, partition: str, ready: WrittenPartition) -> None:
    """Hold what a sensor by partitions says against the files."""
    jobs = _jobs(world, ready.job)
    wanted = {key for job in jobs for key in job.keys_in(partition)}
    there = {*world.files(partition)}
    runs = world.plan.runs
    replaced = world.plan.replaces and jobs and wanted != there
    lost = not any(run.replaces for run in runs) and not wanted <= there
    if replaced or lost:
        said = f"{partition} is ready by {ready.job}, with {sorted(wanted)}"
        raise Violation(f"{said}; there are {world.authors_in(partition)}")


def _check_run(world: HadoopWorld, task: Task) -> None:
    """Hold what a sensor by run says against the files."""
    query = JobQuery(ROOT.url, idempotency_key=task.run.key)
    found = query.after(query.ask(world.table()), task.state)
    report = found.report or {}
    if found.state != READY or "overlapped" in report:
        return
    for entry in report["partitions"]:
        partition = entry["partition"]
        mine = [it for it in world.authors_in(partition) if it.run == task.run.id]
        if task.run.replaces:
            if world.touched.get(partition) != task.run.id:
                continue
            mine = world.authors_in(partition)
        _check_entry(task, entry, report["jobs"], mine)
    if not task.run.replaces and (left := {*task.run.partitions} - _reported(report)):
        raise Violation(f"{task.run.id} is ready, and its report has no {sorted(left)}")


def _reported(report: dict[str, Any]) -> set[str]:
    return {it["partition"] for it in report["partitions"]}


def _check_entry(
    task: Task, entry: dict[str, Any], jobs: Collection[str], there: Collection[Author]
) -> None:
    """Hold a report's entry of a partition against the authors of the files there."""
    if len(there) != entry["files"] or {it.job for it in there} - {*jobs}:
        raise Violation(f"{task.run.id} reports {entry} of {jobs}; there are {there}")


def _check_mixed(world: HadoopWorld, partition: str, tasks: Sequence[Task]) -> None:
    """Tell of a partition with rows of two attempts of which nobody tells."""
    there = world.authors_in(partition)
    if len({it.attempt for it in there}) < 2:
        return
    if partition in _written(world):
        raise Violation(f"{partition} is ready, with rows of several attempts: {there}")
    if not any(it.state == FAILED and isinstance(it.error, _SAYS_SO) for it in tasks):
        raise Violation(f"{partition} has rows of several attempts, and no run says so: {there}")


def _check_last(world: HadoopWorld, partition: str, tasks: Sequence[Task]) -> None:
    """Tell of a run that has written a partition last, and whose report is not what is there."""
    last = world.touched.get(partition)
    task = next((it for it in tasks if it.run.id == last and it.is_done), None)
    if task is None:
        return
    report, there = task.report or {}, world.authors_in(partition)
    if {it.run for it in there} - {task.run.id}:
        raise Violation(f"{task.run.id} has written {partition} last; there are {there}")
    # Where it names no partition, its last attempt need not have touched this one.
    reports = bool(task.run.named) or partition in _reported(report)
    failed = any(it.state == FAILED for it in tasks)
    if reports and not failed and {it.job for it in there} - {*report["jobs"]}:
        raise Violation(f"{task.run.id} reports {report['jobs']}; in {partition} are {there}")
    for entry in report["partitions"]:
        if entry["partition"] == partition and entry["files"] != len(there):
            raise Violation(f"{task.run.id} reports {entry}; there are {there}")


def _check_appended(world: HadoopWorld, partition: str, task: Task) -> None:
    """Tell of rows of a run that are lost, there twice, or not those that it reports."""
    report = task.report or {}
    mine = [it for it in world.authors_in(partition) if it.run == task.run.id]
    if len({it.attempt for it in mine}) > 1:
        raise Violation(f"{task.run.id} has appended twice to {partition}: {mine}")
    appends = not any(run.replaces for run in world.plan.runs)
    if appends and not mine:
        raise Violation(f"{task.run.id} has appended to {partition}, and nothing is there")
    entry = next((it for it in report["partitions"] if it["partition"] == partition), None)
    if mine and entry is not None:
        _check_entry(task, entry, report["jobs"], mine)


def _check_newest(world: HadoopWorld, partition: str, tasks: Sequence[Task]) -> None:
    """Tell of rows that are older than a run that has succeeded, under *newest_run*."""
    if any(it.run.policy.on_conflict is not OnConflict.NEWEST_RUN for it in tasks):
        return
    newest = max((it.run.number for it in tasks if it.is_done), default=-1)
    there = {it.run for it in world.authors_in(partition)}
    older = [it.run.id for it in tasks if it.run.number < newest and it.run.id in there]
    if older:
        raise Violation(f"run-{newest} has succeeded; in {partition} are rows of {older}")
