"""Steps of a job, from its opening to its end.

=========  ====================================================================================
step       requests
=========  ====================================================================================
open       PUT ``open/J.json`` and GET hint at once; LIST; GET crc and the entries since at once. If
           this process has opened the log before: PUT and LIST at once; GET the entries since
hand over  PUT ``jobs/J.json``: from now on other processes may commit it (``publishing.py``)
commit     PUT the entry
finish     the layout's own steps; PUT ``N.crc`` and ``runs/<key>``; DELETE ``open/J``
abandon    DELETE ``jobs/J``; DELETE ``open/J``. Never data
withdraw   if other processes may commit it: fence; then as abandon
=========  ====================================================================================

The open record is written before the base is read, and removed last. So purge, which lists data,
then open records, then the log, sees for every file its open job or its entry. An abort deletes no
data, since a sleeping publisher of the same job may still commit it unless there is a fence; purge
deletes it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..committer.errors import (
    DamagedError,
    JobFencedError,
    OtherJobError,
    OutcomeUnknownError,
    RefusedError,
    StoreRefusedError,
    StoreUnreachableError,
    UnfinishedCommitError,
    ZeroRenameError,
)
from ..committer.store.requests import All, Delete, Done, Found, Get, Put, Refused, Step, Unknown
from .actions import AppTransaction
from .change import RUN, LogChange
from .checksum import keeps_actions, write_checksum
from .committing import EntryCommitted, commit_change
from .entries import LogEntry
from .fencing import fence_job
from .job_files import JobFiles, open_body, report_body, version_of_report
from .kept_entries import kept_body
from .log_layout import LogLayout
from .opening import LogDepth, OpenedLog, open_log, read_entries
from .replay import LogState
from .searching import JobVerdict, RunDone, find_run, has_hidden_fence

logger = logging.getLogger("zero_rename.log.job_steps")

#: How often a request is sent that may be repeated without a check.
_TRIES = 10


@dataclass(frozen=True)
class OpenedLogJob:
    """An open job with its base.

    :param opened_at: when its open record was written, by the store's clock.
    :param done: an earlier commit of the job's run. The caller finishes that one, and closes this
        job.
    """

    job: str
    log: OpenedLog
    opened_at: float
    done: RunDone | None = None


def repeat(request: Put | Delete) -> Step[float]:
    """Repeat an unconditional write until it is answered; return that time, by the store's clock.

    :raises OutcomeUnknownError: it was never answered, and may have been carried out.
    """
    answer: Done | Refused | Unknown | None = None
    for _ in range(_TRIES):
        try:
            answer = yield from request
        except (StoreRefusedError, StoreUnreachableError) as error:
            if answer is None:
                raise
            answer = Unknown(error.message)
            break
        if isinstance(answer, Done):
            return answer.date
    raise OutcomeUnknownError(
        f"The store did not answer a write of a record: {answer}. Run it again.", key=request.key
    )


def open_log_job(
    layout: LogLayout,
    jobs: Iterator[str],
    owner: Mapping[str, Any],
    depth: LogDepth = LogDepth.BLIND,
    run: str | None = None,
    before: LogState | None = None,
) -> Step[OpenedLogJob]:
    """Open a job: write its open record, and read its base at the same time.

    :param jobs: ids that were never used. If the store does not answer the write of an open record,
        the job takes the next id: the unanswered write may arrive at any time, even after the job's
        end, and another process would then take the job for dead.
    :param run: the key that the job commits under, if any.
    :param before: a former state, as for :func:`~.opening.open_log`.
    :raises JobFencedError: another process took the job for dead before its base was read.
    """
    job = next(jobs)
    answer, opened = yield from All(
        (_record(layout, job, owner, run), _or_error(layout, depth, before))
    )
    if isinstance(opened, ZeroRenameError):
        yield from close_refused(layout, job)
        raise opened
    for _ in range(_TRIES):
        if isinstance(answer, Done):
            break
        job = next(jobs)
        answer = yield from _record(layout, job, owner, run)
    else:
        raise StoreUnreachableError(
            f"The store did not answer the writing of a job's record: {answer}. Nothing was "
            "written but such records, which recovery removes.",
            key=JobFiles(layout.control).open(job),
        )
    # The record must be there before the base is used. Both are answered now, so it is. If the base
    # was read before the record was written, it is just older: entries since are judged.
    if (yield from has_hidden_fence(layout, opened, job, answer.date)):
        raise JobFencedError("The job was declared dead. Nothing was written.", job=job)
    done = None
    if run is not None:
        done = yield from find_run(layout, opened.state, run, job)
    return OpenedLogJob(job, opened, answer.date, done)


def _or_error(
    layout: LogLayout, depth: LogDepth, before: LogState | None
) -> Step[OpenedLog | ZeroRenameError]:
    """Open the log, or return the error: the caller first removes the job's open record."""
    try:
        return (yield from open_log(layout, depth, before=before))
    except ZeroRenameError as error:
        return error


def _record(
    layout: LogLayout, job: str, owner: Mapping[str, Any], run: str | None
) -> Step[Done | Refused | Unknown]:
    return (yield from Put(JobFiles(layout.control).open(job), open_body(job, owner, run)))


def commit_job(
    layout: LogLayout, opened: OpenedLog, change: LogChange, now: int
) -> Step[EntryCommitted | RunDone]:
    """Commit an open job, and finish it."""
    answer = yield from commit_change(layout, opened, change, now)
    overwritten = yield from finish_job(layout, change.job, answer)
    if isinstance(answer, EntryCommitted):
        found = tuple(sorted({*opened.overwritten, *overwritten}))
        return replace(answer, overwritten=found)
    return answer


def leaves_no_entry(error: RefusedError | DamagedError) -> bool:
    """Return whether a commit that raised an error has certainly left no entry. After an error of
    the store this is not certain: the entry may have been written before. A damaged record stops a
    commit before its entry is written; one that is met later is reported as another error."""
    return not isinstance(error, StoreRefusedError | StoreUnreachableError)


def commit_or_abandon(
    layout: LogLayout, opened: OpenedLog, change: LogChange, now: int
) -> Step[EntryCommitted | RunDone]:
    """Commit and finish a job (:func:`commit_job`) that writes nothing but its entry; close it if
    it is refused, or if the log is damaged."""
    try:
        return (yield from commit_job(layout, opened, change, now))
    except (RefusedError, DamagedError) as error:
        if leaves_no_entry(error):
            yield from close_refused(layout, change.job)
        raise


def finish_job(
    layout: LogLayout, job: str, done: EntryCommitted | RunDone, handed_over: bool = False
) -> Step[tuple[int, ...]]:
    """Carry out what the job's entry demands, and close the job; idempotent, by any process.

    :param handed_over: other processes might have committed the job: remove the record for them,
        too.
    :return: versions whose committed entry another writer has overwritten.
    :raises UnfinishedCommitError: the job is committed; another call finishes it.
    :raises OtherJobError: an earlier attempt of the run is committed and could not be finished.
        This job is not committed.
    """
    records, overwritten = JobFiles(layout.control), ()
    at = done.entry.version if done.entry is not None else "before its base"
    try:
        if done.entry is not None:
            yield from layout.finish(done.entry)
            overwritten = yield from _report(layout, done, done.entry)
        if handed_over:
            yield from repeat(Delete(records.handed_over(job)))
        yield from repeat(Delete(records.open(job)))
    except ZeroRenameError as error:
        if isinstance(done, RunDone):
            other = (done.entry.job if done.entry is not None else None) or ""
            raise OtherJobError(
                f"Another attempt of the run is committed (version {at}), and not finished: "
                f"{error.message} This job was not committed.",
                job=job,
                other=other,
                remedy="Run it again.",
            ) from error
        raise UnfinishedCommitError(
            f"The job is committed (version {at}), and not finished: {error.message}",
            job=job,
            remedy="Recovery finishes it; do not run it again.",
        ) from error
    return overwritten


def _report(
    layout: LogLayout, done: EntryCommitted | RunDone, entry: LogEntry
) -> Step[tuple[int, ...]]:
    """Write the run's report, the checksum file and a copy of the entry. All are written before the
    open record is removed."""
    records = JobFiles(layout.control)
    for transaction in entry.of(AppTransaction):
        if transaction.app.startswith(RUN):
            run = transaction.app.removeprefix(RUN)
            yield from _put_report(records, run, entry)
    state = done.state if isinstance(done, EntryCommitted) else None
    body = write_checksum(state, entry) if state is not None else None
    if not keeps_actions(body, entry):
        yield from Put(records.kept_entry(entry.job or ""), kept_body(entry))
    if body is None:
        return ()
    key = layout.folder.checksum(entry.version)
    answer = yield from Put(key, body, if_none_match=True)
    if not isinstance(answer, Refused):
        # No answer depends on a checksum file. If its write stays unanswered, the next job writes
        # one.
        if isinstance(answer, Unknown) and keeps_actions(body, entry):
            yield from Put(records.kept_entry(entry.job or ""), kept_body(entry))
        return ()
    # Another writer's checksum file has this number: the entry may be overwritten, too.
    (there,) = yield from read_entries(layout.folder, [entry.version])
    if there is not None and there.txn_id == entry.txn_id:
        return ()
    if keeps_actions(body, entry):  # Only the checksum file that was refused has them.
        yield from Put(records.kept_entry(entry.job or ""), kept_body(entry))
    return (entry.version,)


def _put_report(records: JobFiles, run: str, entry: LogEntry) -> Step[None]:
    """Write a run's report, unless it already names a later entry: a job may be finished late."""
    owner, version = entry.ours.get("owner"), entry.version
    body = report_body(run, entry.job or "", version, owner if isinstance(owner, dict) else None)
    put = Put(records.run(run), body, if_none_match=True)
    for _ in range(_TRIES):
        answer = yield from put
        if isinstance(answer, Done):
            return
        there = yield from Get(put.key)
        if not isinstance(there, Found):
            put = replace(put, if_none_match=True, if_match=None)
        elif version_of_report(there.body, there.key) >= version:
            return
        else:
            put = replace(put, if_none_match=False, if_match=there.etag)
    raise OutcomeUnknownError(
        "The store did not take the report of a run. Run it again.", key=put.key
    )


def abandon_job(layout: LogLayout, job: str) -> Step[None]:
    """Close a job that can never commit: its entry was never sent and it was not handed over, or it
    is fenced. Its files are deleted by purge.
    """
    records = JobFiles(layout.control)
    yield from repeat(Delete(records.handed_over(job)))
    yield from repeat(Delete(records.open(job)))


def close_refused(layout: LogLayout, job: str) -> Step[None]:
    """Close a job that was refused. The caller raises why it was: a failure here is only logged."""
    try:
        yield from abandon_job(layout, job)
    except ZeroRenameError as error:
        logger.warning("the open record of job %s stays for recovery: %s", job, error)


def withdraw_job(
    layout: LogLayout, job: str, opened_at: float, fencer: str, now: int
) -> Step[JobVerdict]:
    """Abort a job that was handed over, or whose process is taken for dead, after fencing it.

    :param opened_at: when its open record was written; the record may be removed by now.
    :param fencer: the id of this process, for the fence's entry.
    :return: the verdict; if another process has committed the job before, it is finished, and the
        verdict has its entry.
    """
    verdict = yield from fence_job(layout, job, opened_at, fencer, now)
    if verdict.entry is not None:
        yield from finish_job(layout, job, EntryCommitted(verdict.entry), handed_over=True)
    else:
        yield from abandon_job(layout, job)
    return verdict


def recover_job(layout: LogLayout, job: str, recoverer: str, now: int) -> Step[JobVerdict | None]:
    """Withdraw a job whose process is taken for dead; ``None``: the job is closed."""
    record = yield from Get(JobFiles(layout.control).open(job))
    if not isinstance(record, Found):
        return None
    return (yield from withdraw_job(layout, job, record.last_modified, recoverer, now))
