"""End of a job of a Delta table: it is committed by an entry, held back, aborted or withdrawn."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from ..committer.commit.newest_run import name_ranks
from ..committer.commit.state.job_state import Aborted, Committed, OpenedJob, UnpublishedJob
from ..committer.errors import CommitConflictError, StoreRefusedError, StoreUnreachableError
from ..committer.format.job_spec import OnRepeat
from ..committer.format.layout import new_job_id
from ..committer.format.records.pending_file import PendingFile, TaskResult
from ..committer.store.requests import Step
from ..layouts.delta.delta_layout import DeltaLayout
from ..log.actions import LogMetadata
from ..log.change import LogChange
from ..log.committing import EntryCommitted
from ..log.job_files import JobFiles
from ..log.job_steps import abandon_job, commit_job, withdraw_job
from ..log.judging import LogOvertakenError
from ..log.opening import LogDepth, OpenedLog, open_log
from ..log.ranks import LogSupersededError
from ..log.searching import RunDone
from .after_commit import checkpoint_where_due, close_former_attempts, tell_overwritten
from .delta_entry import Amend, planned_change, seconds_behind
from .delta_files import name_told
from .delta_ranks import LeftOut, without_superseded
from .delta_report import committed, repeated_commit
from .unpublished import delete_files, leave_unpublished


def end_delta_job(
    layout: DeltaLayout,
    opened: OpenedJob,
    log: OpenedLog | None,
    amend: Amend,
    results: Sequence[TaskResult],
    tasks: int,
    note: Callable[[OpenedLog], None] = lambda _: None,
) -> Step[Committed | UnpublishedJob]:
    """Commit a job, or hold it back if it is to be published later.

    Nothing is done if its run has loaded before, or waits to be published.

    :param log: the state that it began on; ``None``: it is read again.
    :param note: receives the log with the state after a commit.
    """
    before = opened.repeated or opened.unpublished
    if before is not None:
        return before
    now = int((time.time() + seconds_behind(opened)) * 1000)
    log, change = yield from planned_change(layout, opened, log, amend, results, tasks, now)
    if not opened.spec.publish:
        waits = leave_unpublished(opened.root, layout, log.state, change, opened.opened_at, now)
        return (yield from waits)
    files = [file for result in results for file in result.files]
    return (yield from _commit(layout, opened, log, change, files, now, note))


def _commit(
    layout: DeltaLayout,
    opened: OpenedJob,
    log: OpenedLog,
    change: LogChange,
    files: Sequence[PendingFile],
    now: int,
    note: Callable[[OpenedLog], None],
) -> Step[Committed]:
    spec = opened.spec
    done, left = yield from _commit_what_counts(layout, opened, log, change, now)
    if isinstance(done, EntryCommitted):
        # The job is committed. No reader sees these files, and purge deletes them.
        with suppress(StoreRefusedError, StoreUnreachableError):
            yield from delete_files(left.keys)
        tell_overwritten(opened.root, done)
        if done.state is not None:
            note(replace(log, state=done.state, overwritten=done.overwritten))
        yield from checkpoint_where_due(layout, opened.root, log.state, done.entry)
        yield from close_former_attempts(layout, opened, now)
        # A job that joins another one's table has metadata in its change, but not in its entry.
        metadata = [*filter(None, [change.metadata]), *done.entry.of(LogMetadata)]
        state = replace(log.state, metadata=metadata[-1]) if metadata else log.state
        return replace(committed(opened.root, state, done.entry), rewritten=not change.changes_data)
    yield from delete_files(file.key for file in files)
    if spec.on_repeat is OnRepeat.SKIP:
        run = spec.idempotency_key or ""
        return (yield from repeated_commit(opened.root, layout, log.state, done, run))
    raise CommitConflictError(
        "Another attempt of this run has committed meanwhile. This one was not committed.",
        table=opened.root.url,
        job=opened.job,
        key=JobFiles(layout.control).run(spec.idempotency_key or ""),
        remedy="Nothing is to be done if that attempt's rows are right; else clear the run.",
    )


def _commit_what_counts(
    layout: DeltaLayout, opened: OpenedJob, log: OpenedLog, change: LogChange, now: int
) -> Step[tuple[EntryCommitted | RunDone, LeftOut]]:
    """Commit a change. If the job's policy allows it, leave out partitions that newer runs have
    loaded."""
    left = LeftOut(rows=change.told.get("leftOut", 0))
    while True:
        try:
            return (yield from commit_job(layout, log, change, now)), left
        except LogOvertakenError as error:
            raise _named_conflict(opened, error) from error
        except LogSupersededError as error:
            change, left = without_superseded(layout, opened, log.state, change, left, error)


def _named_conflict(opened: OpenedJob, error: LogOvertakenError) -> CommitConflictError:
    """Build the error of a job that conflicts with another one. It names the partitions that both
    concern, since the search for conflicts needs them."""
    made = CommitConflictError(error.message, job=error.job, remedy=error.remedy)
    made.overtaken = True
    schema, by = opened.schema, opened.partition_by
    made.gave_way = {name_told(it, schema, by): error.met or "" for it in error.places}
    name_ranks(opened, made)
    return made


def abort_delta_job(
    layout: DeltaLayout, opened: OpenedJob, results: Sequence[TaskResult]
) -> Step[Aborted]:
    """Abort a job of this process that was not handed over: no other process can commit it."""
    yield from delete_files(file.key for result in results for file in result.files)
    yield from abandon_job(layout, opened.job)
    return Aborted(opened.job, opened.root.url, 0)


def withdraw_delta_job(
    layout: DeltaLayout, opened: OpenedJob, results: Sequence[TaskResult]
) -> Step[Aborted | Committed]:
    """Abort a job whose entry may have been sent, after fencing it; or find that it is committed.

    :raises OtherJobError: the job would have made the table, and without a table it cannot be
        fenced. It is not known whether its entry will come, and its files stay.
    """
    now = int(time.time() * 1000)
    verdict = yield from withdraw_job(layout, opened.job, opened.opened_at, new_job_id(), now)
    if verdict.entry is None:
        yield from delete_files(file.key for result in results for file in result.files)
        return Aborted(opened.job, opened.root.url, 0)
    log = yield from open_log(layout, LogDepth.BLIND)
    return committed(opened.root, log.state, verdict.entry)
