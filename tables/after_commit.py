"""Work after a commit: a checkpoint of the log where one is due, a warning of lost entries, the
close of what killed attempts of the run have left open."""

from __future__ import annotations

import logging

from ..committer.commit.state.job_state import OpenedJob
from ..committer.errors import ZeroRenameError
from ..committer.format.layout import TableRoot, new_job_id
from ..committer.store.listing import list_objects
from ..committer.store.requests import All, Found, Get, Head, Step
from ..layouts.delta.delta_layout import DeltaLayout
from ..log.checkpointing import make_checkpoint
from ..log.committing import EntryCommitted
from ..log.entries import LogEntry
from ..log.job_files import JobFiles, run_of_record
from ..log.job_steps import recover_job
from ..log.replay import LogState

logger = logging.getLogger("zero_rename.tables.after_commit")

#: How many commits lie between checkpoints, if the table has no property for it. Delta's engines
#: write one after 10; this package opens tables by checksum files.
CHECKPOINT_INTERVAL = 50
#: How many open records a job reads in search of earlier attempts of its run.
_READ = 16


def checkpoint_where_due(
    layout: DeltaLayout, root: TableRoot, state: LogState, entry: LogEntry
) -> Step[None]:
    """Write a checkpoint if enough commits have come since the last one, so that openings and other
    engines read few entries. The job is committed already: a failure is only logged.

    :param entry: the job's entry. The store's time of it says which tombstones are old: by a host's
        clock that is ahead, the checkpoint would leave out younger ones, whose files a purge then
        deletes.
    """
    if not entry.version or entry.version % checkpoint_interval(state):
        return
    try:
        yield from make_checkpoint(layout, int(entry.written_at * 1000))
    except ZeroRenameError as error:
        logger.warning("%s: no checkpoint was written: %s", root.url, error)


def checkpoint_interval(state: LogState) -> int:
    """Return after how many commits a table gets its next checkpoint."""
    asked = state.property_of("delta.checkpointInterval")
    return int(asked) if asked.isdecimal() and int(asked) else CHECKPOINT_INTERVAL


def close_former_attempts(layout: DeltaLayout, opened: OpenedJob, now: int) -> Step[None]:
    """Close the jobs that killed attempts of a job's run have left open, after its commit.

    They cannot commit any more under the run's key. Jobs here send no heartbeats, so other runs
    would take them for living for as long as a job may take. A scheduler that knows the attempts of
    its runs does it by itself (``orchestration/runs/outcomes``), for its retries alone. Jobs that
    wait to be published are left alone. In a table of directories a job does it as it opens.

    This takes one request, and one for each of the last 16 other open jobs. The job is committed
    already: a failure is only logged.

    :param now: Unix milliseconds, for a fence's readers.
    """
    spec = opened.spec
    if spec.idempotency_key is None or spec.owner.task_id is not None:
        return
    records = JobFiles(layout.control)
    try:
        listing = yield from list_objects(records.opened)
        before = (it.key for it in listing.objects if it.last_modified < opened.opened_at)
        others = [it for it in before if records.job_of(it) != opened.job]
        last = sorted(others)[-_READ:]  # By the time of their opening, with which their ids begin.
        found = yield from All(tuple(Get(key) for key in last))
        for record in found:
            if not isinstance(record, Found):
                continue
            if run_of_record(record.body, record.key) != spec.idempotency_key:
                continue
            job = records.job_of(record.key)
            if isinstance((yield from Head(records.handed_over(job))), Found):
                continue
            yield from recover_job(layout, job, new_job_id(), now)
    except ZeroRenameError as error:
        logger.warning(
            "%s: what an earlier attempt of the run left open stays for recovery: %s",
            opened.root.url,
            error,
        )


def tell_overwritten(root: TableRoot, done: EntryCommitted) -> None:
    """Log a warning about entries that a writer without conditional writes has overwritten."""
    if done.overwritten:
        logger.warning(
            "%s: the entries of versions %s of its log are not those that were committed: a writer "
            "without conditional writes has written over them, and what they added or removed is "
            "lost from the table. Their files are still there. Let that writer use a log store "
            "that writes conditionally, then commit them again: zero-rename repair %s --apply",
            root.url,
            ", ".join(map(str, done.overwritten)),
            root.url,
        )
