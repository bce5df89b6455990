"""Operations on unpublished jobs of a Delta table: publish, abort, and read their rows."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from functools import partial

from ..committer.commit.newest_run import superseded_run
from ..committer.commit.state.job_state import Aborted, Committed
from ..committer.errors import (
    CommitConflictError,
    InvalidInputError,
    JobFencedError,
    SupersededRunError,
    TableNotFoundError,
)
from ..committer.format.layout import TableRoot
from ..committer.format.records.store_facts import StoreFacts
from ..committer.store.requests import Step
from ..layouts.delta.columns import arrow_schema
from ..layouts.delta.delta_layout import DeltaLayout
from ..log.actions import AddFile, LogMetadata
from ..log.change import FENCE
from ..log.committing import EntryCommitted
from ..log.entries import LogEntry
from ..log.opening import LogDepth, list_log, open_log, read_entries
from ..log.publishing import publish_job, read_waiting
from ..log.ranks import LogSupersededError
from ..log.replay import LogState
from .after_commit import checkpoint_where_due, tell_overwritten
from .data_root import reached_as_now
from .delta_files import partition_name
from .delta_ranks import superseded_by
from .delta_report import committed
from .store_check import ATOMIC, refuse_second_writer
from .unpublished import abort_waiting

#: How many entries are read at once in a search.
AT_ONCE = 64
#: The first step before another attempt of a run whose job cannot be published any more.
_ABORT_FIRST = "abort the job first: until then other attempts of its run write nothing and name it"


def publish(root: TableRoot, layout: DeltaLayout, job: str) -> Step[Committed]:
    """Publish a job that waits. If it is published already, the report says *repeated*.

    :raises RefusedError: the job is not in the log. It still waits, unless it was aborted.
    :raises CommitStateUnknownError: the job may be in the log, or may still arrive there.
    :raises UnfinishedCommitError: the job is in the log, and could not be finished.
    """
    now = int(time.time() * 1000)
    alone = partial(_refuse_beside_others, root, layout, job)
    try:
        done = yield from publish_job(layout, job, now, alone)
    except LogSupersededError as error:
        raise (yield from _superseded(layout, job, error)) from error
    except CommitConflictError as error:
        if error.overtaken:
            error.remedy = f"To load its rows again, {_ABORT_FIRST}."
        raise
    if done is None:
        entry, state = yield from _entry_of(root, layout, job, "published")
        return replace(committed(root, _named_by(state, entry), entry), repeated=True)
    return (yield from _told(root, layout, done))


def _refuse_beside_others(
    root: TableRoot, layout: DeltaLayout, job: str, state: LogState
) -> Step[None]:
    """Refuse to publish while another job is open, if the store supports only one writer at a
    time."""
    atomic = state.property_of(ATOMIC, "true") == "true"
    yield from refuse_second_writer(root, layout, job, StoreFacts(atomic=atomic))


def abort(root: TableRoot, layout: DeltaLayout, job: str) -> Step[Aborted]:
    """Abort a job that waits, and delete its files. If it is aborted already, nothing happens.

    :raises CommitConflictError: the job is published.
    """
    waiting = yield from read_waiting(layout, job)
    entry: LogEntry | None = None
    if waiting is not None:
        entry = (yield from abort_waiting(layout, waiting, int(time.time() * 1000))).entry
    else:
        with suppress(JobFencedError):
            entry, _ = yield from _entry_of(root, layout, job, "aborted")
    if entry is not None:
        raise CommitConflictError(
            f"The job is published, in version {entry.version}. It was not aborted.",
            job=job,
            remedy=f"To take it back, undo it: zero-rename undo {root.url} --job {job}.",
        )
    return Aborted(job, root.url, 0)


def rows_of_job(root: TableRoot, layout: DeltaLayout, job: str) -> Step[LogState]:
    """Return a state with only the files that a job adds, published or not, and with the columns of
    that job."""
    waiting = yield from read_waiting(layout, job)
    if waiting is not None:
        metadata, adds = waiting.change.columns, waiting.change.adds
        version = waiting.change.base.version
    else:
        entry, _ = yield from _entry_of(root, layout, job, "read")
        opened = yield from open_log(layout, LogDepth.BLIND, entry.version)
        metadata, version = opened.state.metadata, entry.version
        adds = tuple(it for it in entry.of(AddFile) if it.tags.get("job") == job)
    assert metadata is not None
    metadata = yield from reached_as_now(layout, metadata)
    files = {it.path: it for it in adds}
    return LogState(version, metadata=metadata, files=files)


def _told(root: TableRoot, layout: DeltaLayout, done: EntryCommitted) -> Step[Committed]:
    """Return the report of a job that is published now, and write a checkpoint if one is due."""
    tell_overwritten(root, done)
    state = done.state
    if state is None or state.metadata is None:
        state = (yield from open_log(layout, LogDepth.BLIND)).state
    yield from checkpoint_where_due(layout, root, state, done.entry)
    return committed(root, _named_by(state, done.entry), done.entry)


def _named_by(state: LogState, entry: LogEntry) -> LogState:
    metadata = entry.of(LogMetadata)
    return replace(state, metadata=metadata[-1]) if metadata else state


def _entry_of(
    root: TableRoot, layout: DeltaLayout, job: str, undone: str
) -> Step[tuple[LogEntry, LogState]]:
    """Find the entry of a job that does not wait, and read the present state without its files.

    :param undone: what was not done to the job, for the error.
    :raises JobFencedError: the job was aborted.
    :raises InvalidInputError: the log has no entry of the job.
    """
    state = (yield from open_log(layout, LogDepth.BLIND)).state
    if not state.exists:
        raise TableNotFoundError("There is no Delta table here.", table=root.url)
    if FENCE + job in state.transactions:
        raise _aborted(job, undone)
    listed = yield from list_log(layout.folder)
    versions = sorted(listed.entries, reverse=True)
    for start in range(0, len(versions), AT_ONCE):
        for entry in (yield from read_entries(layout.folder, versions[start : start + AT_ONCE])):
            if entry is not None and entry.job == job:
                return entry, state
            if entry is not None and entry.transaction(FENCE + job):
                raise _aborted(job, undone)
    raise InvalidInputError(
        f"No job {job} waits in this table, and its log has no entry of one. Nothing was {undone}.",
        table=root.url,
        remedy=f"See which jobs wait: zero-rename publish {root.url}. One that is at work waits "
        "once it has ended.",
    )


def _aborted(job: str, undone: str) -> JobFencedError:
    return JobFencedError(
        f"The job was aborted, by somebody or since its run was loaded again. It was not {undone}.",
        job=job,
        remedy="Load its rows again, or publish the job that waits in its place.",
    )


def _superseded(
    layout: DeltaLayout, job: str, error: LogSupersededError
) -> Step[SupersededRunError]:
    """Build the error that names the partitions in which a job gives way."""
    waiting = yield from read_waiting(layout, job)
    metadata = None if waiting is None else waiting.change.columns
    if metadata is None:
        return error
    schema, by = arrow_schema(metadata), metadata.partition_columns
    named = {
        partition_name(place, schema, by): superseded_by(other)
        for place, other in error.found.items()
    }
    made = superseded_run(named, skips=False)
    made.remedy = (
        "Abort the job if those rows are to stay. To load its own in their place, with "
        f"on_conflict=last_wins, {_ABORT_FIRST}."
    )
    return made
