"""Overview of a table: every partition with its state, recent jobs, jobs under way, failures.

For a page that is looked at often, by people who may not write: nothing is changed, not even a
commit applied that is decided, which readers of rows do. The index is asked first, so that a table
of thousands of partitions takes a few dozen requests; only heads that have changed since are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ..commit.close import list_uploads
from ..commit.state.context import Context
from ..commit.state.found_table import find_table
from ..errors import StoreRefusedError
from ..format.job_spec import Coordination, Readers
from ..format.layout import TableRoot
from ..format.records.decision import Verdict
from ..store.listing import list_objects
from ..store.requests import All, ListedUpload, Step
from ..upkeep.recovery import known
from .recent_jobs import SeenJob, recent_jobs
from .run_failures import RunFailure, standing_failures
from .seen_partitions import SeenPartition, SeenState, partitions_there
from .under_way import JobUnderWay, jobs_under_way

#: Seconds within which two runs that wrote one partition are taken for a conflict.
TOGETHER = 3600.0
#: Seconds for which that is said.
_TOLD_FOR = 7 * 24 * 3600.0


@dataclass(frozen=True)
class TableOverview:
    """A table at one look, which is not one state of it: jobs go on meanwhile.

    :param now: the store's time, seconds since the epoch.
    :param partition_by: ``None`` where its first job has not made the table yet.
    :param partitions: by name.
    :param jobs: decided last, newest first.
    :param behind_index: heads that were read because the index does not know them.
    :param notes: what could not be read, and why.
    :param temporary: its files lie in a fast root, and need never become durable.
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
    temporary: bool = False


def look_over(context: Context, most_jobs: int) -> Step[TableOverview]:
    """As :meth:`.table.Table.overview`."""
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
    writes_whole = table is None or table.readers is Readers.HEADS
    under_way, (jobs, unread) = yield from All(
        (
            jobs_under_way(context, there.claims, uploads, writes_whole),
            recent_jobs(context, opened.date, most_jobs),
        )
    )
    failures = yield from standing_failures(context, opened.date, jobs)
    partitions = with_states(there.partitions, under_way, jobs, failures, opened.date)
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
        (*refused, *(str(error) for error in unread)),
        temporary=table is not None and table.is_temporary,
    )


def _uploads(context: Context) -> Step[tuple[list[ListedUpload], tuple[str, ...]]]:
    """Uploads under way, which tell where jobs are at work; who may not list them does without."""
    try:
        return (yield from list_uploads(context)), ()
    except StoreRefusedError as error:
        if not error.lacks_right:
            raise
        return [], ("Uploads under way cannot be listed with these credentials.",)


def with_states(
    there: Mapping[str, SeenPartition],
    under_way: Iterable[JobUnderWay],
    jobs: Iterable[SeenJob],
    failures: Iterable[RunFailure],
    now: float,
) -> tuple[SeenPartition, ...]:
    """Partitions by name, each with its most pressing state; those too that a job or a run was to
    make and has not yet."""
    seen = dict(there)
    for partition, why in _conflicts(jobs, now).items():
        _press(seen, partition, SeenState.CONFLICTED, why)
    at_work = {
        job.idempotency_key
        for job in under_way
        if job.idempotency_key is not None and job.is_running
    }
    for failure in failures:
        if failure.idempotency_key in at_work:
            continue  # Its next try is under way.
        kind = SeenState.CONFLICTED if failure.gave_way else SeenState.FAILED
        for partition in failure.partitions:
            _press(seen, partition, kind, failure.message)
    for job in under_way:
        if job.decided is not Verdict.ABORT:  # Nothing of that one will be visible.
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


def _conflicts(jobs: Iterable[SeenJob], now: float) -> dict[str, str]:
    """Partitions whose last job replaced, within an hour, what another run had written; both of a
    scheduler: whoever replaces his own work by hand knows."""
    last: dict[str, list[tuple[SeenJob, bool]]] = {}
    for job in jobs:  # Newest first.
        for change in job.changes:
            of_it = last.setdefault(change.partition, [])
            if len(of_it) < 2:
                of_it.append((job, change.replaced))
    found = {}
    for partition, of_it in last.items():
        if len(of_it) < 2 or now - of_it[0][0].decided_at > _TOLD_FOR:
            continue
        (later, replaced), (former, _) = of_it
        apart = later.decided_at - former.decided_at
        runs = {later.idempotency_key, former.idempotency_key}
        if replaced and len(runs) == 2 and None not in runs and apart <= TOGETHER:
            found[partition] = (
                f"{later.job} replaced what {former.job}, of another run, had written "
                f"{apart:.0f} s before."
            )
    return found
