"""Overview of a table: every partition with its state, recent jobs, jobs under way, failures.

It is for a page that is read often, by people who may not write. So it changes nothing; it does not
even apply a decided commit, as readers of rows do. The index is read first, so a table of thousands
of partitions takes a few dozen requests; only heads that have changed since are read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from ..commit.close import list_uploads
from ..commit.state.context import Context
from ..commit.state.found_table import find_table
from ..commit.state.tolerance import or_damage
from ..errors import DamagedError, StoreRefusedError
from ..format.job_spec import Coordination
from ..format.layout import TableRoot
from ..format.records.decision import Verdict
from ..format.records.run_conflict import ConflictRecord, RunConflict
from ..store.listing import list_objects
from ..store.requests import All, ListedUpload, Step
from ..upkeep.conflicts.conflict_record import read_conflicts
from ..upkeep.recovery import known
from .recent_jobs import SeenJob, recent_jobs
from .rival_jobs import TableShape, stored_names
from .run_failures import RunFailure, standing_failures
from .seen_partitions import SeenPartition, SeenState, partitions_there
from .under_way import JobUnderWay, jobs_under_way


@dataclass(frozen=True)
class TableOverview:
    """Overview of a table. It is not one state of the table: jobs go on meanwhile.

    :param now: the store's time, Unix seconds.
    :param partition_by: ``None`` if its first job has not made the table yet.
    :param partitions: by name.
    :param jobs: decided last, newest first.
    :param behind_index: number of heads that were read because the index does not know them.
    :param notes: what could not be read, and why.
    :param conflicts: of runs over partitions, as the last look for conflicts has found them; last
        those that are settled.
    """

    root: TableRoot
    now: float
    partition_by: tuple[str, ...] | None
    coordination: Coordination
    partitions: tuple[SeenPartition, ...]
    jobs: tuple[SeenJob, ...]
    under_way: tuple[JobUnderWay, ...]
    failures: tuple[RunFailure, ...]
    behind_index: int
    notes: tuple[str, ...] = ()
    conflicts: tuple[RunConflict, ...] = ()


def look_over(context: Context, most_jobs: int) -> Step[TableOverview]:
    """Read the overview that :meth:`.table.Table.overview` returns."""
    found = yield from find_table(context)
    context, coordination = yield from known(context, found)
    table = found.record if found is not None and found.counts else None
    there, opened, (uploads, refused) = yield from All(
        (
            partitions_there(context, table),
            list_objects(context.root.open_prefix),
            _uploads(context),
        )
    )
    under_way, (jobs, unread), record = yield from All(
        (
            jobs_under_way(context, there.claims, uploads),
            recent_jobs(context, opened.date, most_jobs),
            or_damage(read_conflicts(context.root.conflicts_key)),
        )
    )
    damage = [*unread.values(), *([record] if isinstance(record, DamagedError) else [])]
    found = ConflictRecord("") if isinstance(record, DamagedError) else record.said
    failures = yield from standing_failures(context, opened.date, jobs)
    # Jobs and runs name partitions as their programs do.
    shape = None if table is None else (table.schema, table.partition_by)
    under_way = [replace(it, partitions=_stored(it.partitions, shape)) for it in under_way]
    failures = [replace(it, partitions=_stored(it.partitions, shape)) for it in failures]
    conflicts = (*found.open, *reversed(found.settled))
    partitions = with_states(there.partitions, under_way, conflicts, failures)
    return TableOverview(
        context.root,
        opened.date,
        None if table is None else table.partition_by,
        coordination,
        partitions,
        tuple(jobs),
        tuple(under_way),
        tuple(failures),
        there.behind_index,
        (*refused, *(str(error) for error in damage)),
        conflicts=conflicts,
    )


def _stored(partitions: Collection[str], shape: TableShape | None) -> tuple[str, ...]:
    return tuple(sorted(set(stored_names(partitions, shape))))


def _uploads(context: Context) -> Step[tuple[list[ListedUpload], tuple[str, ...]]]:
    """List the uploads under way, which show where jobs are at work.

    Without the right to list them, the overview goes on without them.

    :returns: the uploads, and notes on what could not be listed.
    """
    try:
        return (yield from list_uploads(context)), ()
    except StoreRefusedError as error:
        if not error.lacks_right:
            raise
        return [], ("Uploads under way cannot be listed with these credentials.",)


def with_states(
    there: Mapping[str, SeenPartition],
    under_way: Iterable[JobUnderWay],
    conflicts: Iterable[RunConflict],
    failures: Iterable[RunFailure],
) -> tuple[SeenPartition, ...]:
    """Give each partition its most pressing state, and sort by name.

    Partitions that a job or a run was to make and has not made yet are added.
    """
    seen = dict(there)
    settled: set[tuple[str, str]] = set()
    for conflict in conflicts:
        if conflict.is_settled:
            settled.update((conflict.partition, it.key) for it in conflict.runs)
        else:
            _press(seen, conflict.partition, SeenState.CONFLICTED, str(conflict))
    at_work = {
        job.idempotency_key
        for job in under_way
        if job.idempotency_key is not None and job.is_running
    }
    for failure in failures:
        if failure.idempotency_key in at_work:
            continue  # Its next attempt is under way.
        kind = SeenState.CONFLICTED if failure.gave_way else SeenState.FAILED
        for partition in failure.partitions:
            if not (failure.gave_way and (partition, failure.idempotency_key) in settled):
                _press(seen, partition, kind, failure.message)
    for job in under_way:
        if job.decided is not Verdict.ABORT:  # Nothing of an aborted job will be visible.
            for partition in job.partitions:
                _press(seen, partition, *_of_job(job))
    return tuple(seen[name] for name in sorted(seen))


def _of_job(job: JobUnderWay) -> tuple[SeenState, str]:
    silent = f"{job.silent_for:.0f} s"
    if job.damage:
        return SeenState.FAILED, f"{job.job} is open: {job.damage}"
    if job.is_dead:
        said = job.decided or "undecided"
        return SeenState.FAILED, f"{job.job} is open, {said}, and silent for {silent}."
    if job.decided is Verdict.COMMIT:
        return SeenState.RUNNING, f"{job.job} is committed and makes its files visible."
    return SeenState.RUNNING, f"{job.job} writes it; last heartbeat {silent} ago."


def _press(seen: dict[str, SeenPartition], name: str, state: SeenState, why: str) -> None:
    known = seen.get(name, SeenPartition(name, state, None, 0, 0, 0, None, None))
    if name not in seen or state.pressing > known.state.pressing:
        seen[name] = replace(known, state=state, why=why)
