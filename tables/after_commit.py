"""Work after a commit: a checkpoint of the log where one is due, a warning of lost entries."""

from __future__ import annotations

import logging

from ..committer.errors import ZeroRenameError
from ..committer.format.layout import TableRoot
from ..committer.store.requests import Step
from ..layouts.delta.delta_layout import DeltaLayout
from ..log.checkpointing import make_checkpoint
from ..log.committing import EntryCommitted
from ..log.entries import LogEntry
from ..log.replay import LogState

logger = logging.getLogger("zero_rename.tables.after_commit")

#: How many commits lie between checkpoints, if the table has no property for it. Delta's engines
#: write one after 10; this package opens tables by checksum files.
CHECKPOINT_INTERVAL = 50


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
