"""Unpublished jobs of a Delta table: their rows are written and can be audited before publishing.

==================================  ==============================================================
event while a job waits             then
==================================  ==============================================================
it is published                     all entries since it opened are judged against its own
it is aborted                       it is fenced, and its files are deleted
its run is loaded again,            the later job waits in its place: the earlier one is fenced
unpublished                         before the later one can be published
its run is loaded again, published  it cannot be published any more
another attempt of its run skips    the attempt writes nothing, and names the job that waits
recovery, maintenance, purge        leave it and its files alone for the retention since it opened
==================================  ==============================================================
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ..committer.commit.state.job_state import SMALL, PartitionCommit, UnpublishedJob
from ..committer.errors import (
    CommitConflictError,
    InvalidInputError,
    StoreRefusedError,
    StoreUnreachableError,
    UnfinishedAbortError,
)
from ..committer.format.job_spec import NOBODY, JobSpec, OnRepeat, OnSuperseded, Owner
from ..committer.format.layout import TableRoot, new_job_id
from ..committer.format.records.typed_json import Unfit, from_members
from ..committer.store.listing import list_objects
from ..committer.store.requests import All, DeleteMany, Found, Get, Step
from ..layouts.delta.columns import arrow_schema
from ..layouts.delta.delta_layout import DeltaLayout
from ..log.actions import AddFile
from ..log.change import LogChange
from ..log.job_files import JobFiles, run_of_record
from ..log.job_steps import withdraw_job
from ..log.publishing import WaitingJob, hand_over_job, kept_for, read_waiting
from ..log.replay import LogState
from ..log.searching import JobVerdict, find_run
from .data_root import reached_as_now
from .delta_files import name_told, rows_of_add


def check_held_back(root: TableRoot, spec: JobSpec) -> None:
    """Refuse policies that a job cannot keep if its entry is written later.

    :raises InvalidInputError: the job has such a policy; the error names it.
    """
    unkept = {
        "on_repeat": (spec.on_repeat is OnRepeat.APPEND, "on_repeat='replace_own'"),
        "on_superseded": (spec.on_superseded is OnSuperseded.SKIP, "on_superseded='fail'"),
        "row_changes": (bool(spec.row_changes), "a merge, an update or a deletion that commits"),
    }
    for name, (is_asked, instead) in unkept.items():
        if is_asked:
            asked = "a change of rows" if name == "row_changes" else f"{name}={getattr(spec, name)}"
            raise InvalidInputError(
                f"publish=False is given with {asked}, which a job that is published later does "
                "not keep; nothing was sent.",
                table=root.url,
                remedy=f"Ask for {instead}, or leave publish out.",
            )


def leave_unpublished(
    root: TableRoot,
    layout: DeltaLayout,
    state: LogState,
    change: LogChange,
    opened_at: float,
    now: int,
) -> Step[UnpublishedJob]:
    """Hand a job over to be published later. It replaces the jobs that its run has left before,
    which are fenced first.

    :param state: the state that the job began on.
    :raises CommitConflictError: one of these jobs was published meanwhile. Nothing was handed over.
    """
    former = []
    if change.run is not None:
        former = yield from waiting_of_run(layout, change.run, but=change.job)
    for waiting in former:
        verdict = yield from abort_waiting(layout, waiting, now)
        if verdict.entry is not None:
            raise CommitConflictError(
                f"Job {waiting.change.job} of the same run was published meanwhile, in version "
                f"{verdict.entry.version}. This job was not handed over.",
                job=change.job,
                remedy="Run it again, if its rows are to take the place of those.",
            )
    yield from hand_over_job(layout, change)
    return as_unpublished(root, layout, state, change, opened_at)


def abort_waiting(layout: DeltaLayout, waiting: WaitingJob, now: int) -> Step[JobVerdict]:
    """Fence a job that waits, and delete its files; or find that it is published.

    :raises UnfinishedAbortError: the job is fenced, but its files were not all deleted; purge
        deletes them.
    """
    job = waiting.change.job
    verdict = yield from withdraw_job(layout, job, waiting.opened_at, new_job_id(), now)
    if verdict.entry is None:
        assert waiting.change.columns is not None
        metadata = yield from reached_as_now(layout, waiting.change.columns)
        state = LogState(metadata=metadata)
        own = tuple(f"{folder}{job}/" for folder in layout.data_folders(state))
        keys = (layout.key_of(it.path, state) for it in waiting.change.adds)
        try:
            yield from delete_files(key for key in keys if key.startswith(own))
        except (StoreRefusedError, StoreUnreachableError) as error:
            raise UnfinishedAbortError(
                f"The job is aborted, and files of it were not deleted: {error.message}",
                job=job,
                remedy="Purge deletes them: zero-rename purge.",
            ) from error
    return verdict


def delete_files(keys: Iterable[str]) -> Step[None]:
    """Delete files that no entry names. If some stay, readers do not see them, and purge deletes
    them."""
    names = sorted(keys)
    for start in range(0, len(names), 1000):
        yield from DeleteMany(tuple((key, None) for key in names[start : start + 1000]))


def waiting_of_run(layout: DeltaLayout, run: str, but: str = "") -> Step[list[WaitingJob]]:
    """Read the jobs of a run that wait, the oldest first.

    :param but: a job that is left out.
    """
    records = JobFiles(layout.control)
    jobs = sorted((yield from waiting_jobs(layout)) - {but})
    opened = yield from All(tuple(Get(records.open(job)) for job in jobs))
    of_run = [
        job
        for job, it in zip(jobs, opened, strict=True)
        if isinstance(it, Found) and run_of_record(it.body, it.key) == run
    ]
    found = yield from All(tuple(read_waiting(layout, job) for job in of_run))
    return sorted((it for it in found if it is not None), key=lambda it: it.opened_at)


def waiting_jobs(layout: DeltaLayout) -> Step[set[str]]:
    """List the jobs that were handed over. Those without an open record are closed."""
    records = JobFiles(layout.control)
    listing = yield from list_objects(records.waiting)
    return {records.job_of(key) for key in listing.keys}


def unpublished_of_run(
    root: TableRoot, layout: DeltaLayout, state: LogState, run: str, but: str = ""
) -> Step[UnpublishedJob | None]:
    """Find the job of a run that waits and may still be published; ``None``: there is no such job.

    :param state: the present state.
    :param but: a job that is left out.
    """
    found = yield from waiting_of_run(layout, run, but)
    if not found:
        return None
    done = yield from find_run(layout, state, run, but)
    last = None if done is None else done.version
    kept = kept_for(layout, state)
    for waiting in reversed(found):
        change = waiting.change
        if change.former == last and waiting.now - waiting.opened_at < kept:
            return as_unpublished(root, layout, state, change, waiting.opened_at)
    return None


def all_unpublished(
    root: TableRoot, layout: DeltaLayout, state: LogState, jobs: Collection[str]
) -> Step[list[UnpublishedJob]]:
    """Read jobs that wait, the oldest first; jobs that do not wait any more are left out."""
    found = yield from All(tuple(read_waiting(layout, job) for job in sorted(jobs)))
    waiting = sorted((it for it in found if it is not None), key=lambda it: it.opened_at)
    return [as_unpublished(root, layout, state, it.change, it.opened_at) for it in waiting]


def as_unpublished(
    root: TableRoot, layout: DeltaLayout, state: LogState, change: LogChange, opened_at: float
) -> UnpublishedJob:
    """Return the description of a job that waits.

    :param state: the state of its table, whose retention says how long it may wait.
    """
    return UnpublishedJob(
        change.job,
        root.url,
        _partitions(state, change),
        opened_at,
        opened_at + kept_for(layout, state),
        _owner(change),
        change.run,
    )


def _owner(change: LogChange) -> Owner:
    try:
        return from_members(Owner, dict(change.owner))
    except Unfit:
        return NOBODY


def _partitions(state: LogState, change: LogChange) -> tuple[PartitionCommit, ...]:
    """Return the effect of a change on the partitions that it names or adds to."""
    metadata = change.metadata or change.columns or state.metadata
    assert metadata is not None
    schema, by = arrow_schema(metadata), metadata.partition_columns
    added: dict[str, list[AddFile]] = {
        name_told(place, schema, by): [] for place in change.replaced.partitions
    }
    for add in change.adds:
        place = tuple(add.values.get(name) or None for name in by)
        added.setdefault(name_told(place, schema, by), []).append(add)
    return tuple(
        PartitionCommit(
            name,
            0,
            len(files),
            sum(max(0, rows_of_add(it)) for it in files),
            sum(it.size for it in files),
            0,
            sum(it.size < SMALL for it in files),
        )
        for name, files in sorted(added.items())
    )
