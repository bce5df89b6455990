"""Publishing of handed-over jobs: any process that knows a job's id writes its entry later.

=============  ============  ==========================  ==========================================
``open/J``     ``jobs/J``    the log, since the opening  a publisher of J
=============  ============  ==========================  ==========================================
there          there         no entry of J, no fence     judges all entries since the job's own
                                                         base, and writes the entry
there          there         the entry of J              finishes it
there          there         the fence of J              refused: the job was aborted
there          there         another entry of its run    refused: its rows would be there twice
there          absent        any                         nothing: its owner is at work, or another
                                                         process closes it
absent         any           any                         nothing: the job is closed
=============  ============  ==========================  ==========================================

A job may wait as long as the table keeps removed files, counted from its opening. After that the
VACUUM of another engine may delete its files, since no entry names them. So publishing is then
refused, and recovery may fence the job. Files in a data root may be lost earlier, together with
that root, so publishing checks that they are there. ``jobs/J`` is removed before ``open/J``, so
that no closed job seems to wait.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..committer.errors import CommitConflictError, JobFencedError, OtherJobError, first_few
from ..committer.store.requests import All, Found, Get, Head, Put, Step
from .change import LogChange
from .committing import EntryCommitted, commit_change
from .job_files import JobFiles, hand_over, take_over
from .job_steps import finish_job, repeat
from .log_layout import LogLayout
from .opening import open_log
from .replay import LogState
from .searching import RunDone, search_since_opened
from .vacuum import spared_for


@dataclass(frozen=True)
class WaitingJob:
    """A job that was handed over and is not closed.

    :param opened_at: when its open record was written; ``now``: when it was read; both by the
        store's clock.
    """

    change: LogChange
    opened_at: float
    now: float


def hand_over_job(layout: LogLayout, change: LogChange) -> Step[None]:
    """Allow other processes to commit a job.

    :raises OtherJobError: the job would make the table; without a log it could not be fenced.
    """
    if change.base.version < 0:
        raise OtherJobError(
            "A job that makes the table cannot be published later. Nothing was handed over.",
            job=change.job,
            other=change.job,
            remedy="Make the table first, by a job without rows.",
        )
    yield from repeat(Put(JobFiles(layout.control).handed_over(change.job), hand_over(change)))


def read_waiting(layout: LogLayout, job: str) -> Step[WaitingJob | None]:
    """Read a job that waits to be published; ``None``: it does not wait.

    :raises RecordDamagedError: its record cannot be read.
    """
    records = JobFiles(layout.control)
    opened, record = yield from All((Get(records.open(job)), Get(records.handed_over(job))))
    if not isinstance(opened, Found) or not isinstance(record, Found):
        return None
    change = take_over(record.body, record.key)
    return WaitingJob(change, opened.last_modified, opened.date)


def _unchecked(state: LogState) -> Step[None]:
    yield from ()


def publish_job(
    layout: LogLayout, job: str, now: int, check: Callable[[LogState], Step[None]] = _unchecked
) -> Step[EntryCommitted | None]:
    """Commit a job that was handed over, by any process; ``None``: it does not wait.

    :param now: Unix milliseconds, for the entry's readers.
    :param check: a step that may raise an error to refuse the job; it receives the present state.
    :raises JobFencedError: the job was aborted.
    :raises CommitConflictError: the job conflicts with an entry since its base, or its run has
        committed meanwhile, or it has waited for too long, or its files are lost. It still waits.
    """
    waiting = yield from read_waiting(layout, job)
    if waiting is None:
        return None
    opened = yield from open_log(layout, waiting.change.depth)
    verdict = yield from search_since_opened(layout, opened.state, job, waiting.opened_at)
    if verdict.fenced:
        raise JobFencedError("The job was aborted. It was not published.", job=job)
    if verdict.entry is not None:
        done: EntryCommitted | RunDone = EntryCommitted(verdict.entry)
    else:
        _refuse_late(layout, opened.state, waiting)
        yield from _refuse_lost(layout, opened.state, waiting.change)
        yield from check(opened.state)
        # Purge judges the age of tombstones by the store's clock.
        now = max(now, int(waiting.now * 1000))
        done = yield from commit_change(layout, opened, waiting.change, now)
    if isinstance(done, RunDone):
        raise _loaded_again(job, done)
    overwritten = yield from finish_job(layout, job, done, handed_over=True)
    found = tuple(sorted({*opened.overwritten, *overwritten}))
    return EntryCommitted(done.entry, done.state, done.met, found)


def kept_for(layout: LogLayout, state: LogState) -> float:
    """Return how long after its opening a job may wait, in seconds: no VACUUM deletes its files in
    that time."""
    return spared_for(layout.retention(state))


def _refuse_late(layout: LogLayout, state: LogState, waiting: WaitingJob) -> None:
    age, retention = waiting.now - waiting.opened_at, layout.retention(state)
    if age < kept_for(layout, state):
        return
    raise CommitConflictError(
        f"The job has waited for {age / 86400:.1f} days, and the table keeps files that no entry "
        f"names for {retention / 86400:.1f}: some of its own may be gone. It was not published.",
        job=waiting.change.job,
        remedy="Load its rows again. Where an audit takes longer, lengthen "
        "delta.deletedFileRetentionDuration of the table.",
    )


def _refuse_lost(layout: LogLayout, state: LogState, change: LogChange) -> Step[None]:
    """Refuse a job whose files were lost with a data root while it waited.

    :raises CommitConflictError: a file is missing.
    :raises StoreUnreachableError: the data root cannot be reached.
    """
    keys = {layout.key_of(it.path, state): it.path for it in change.adds}
    beside = [key for key in keys if not key.startswith(layout.data)]
    found = yield from All(tuple(Head(key) for key in beside))
    gone = [keys[key] for key, it in zip(beside, found, strict=True) if not isinstance(it, Found)]
    if gone:
        raise CommitConflictError(
            f"Files of this job are gone from the data root: {first_few(gone)}. It was not "
            "published.",
            job=change.job,
            remedy="Abort the job, and load its rows again.",
        )


def _loaded_again(job: str, done: RunDone) -> CommitConflictError:
    by = f"job {done.entry.job}, " if done.entry is not None and done.entry.job else ""
    return CommitConflictError(
        f"The run of this job has loaded again meanwhile: {by}version {done.version}, is in the "
        "table. This job was not published.",
        job=job,
        remedy="Abort the job. To see its rows in the place of the other's, load the run again.",
    )
