"""Creation of checkpoints, after a commit and outside of it: a failure here loses nothing."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from ..committer.errors import RecordDamagedError
from ..committer.store.requests import Delete, Done, Put, Step
from .checkpoint import write_checkpoint
from .file_columns import adds_as_columns
from .log_layout import LogLayout
from .opening import LogDepth, OpenedLog, list_log, open_as_columns, open_log
from .replay import LogState


def make_checkpoint(layout: LogLayout, now: int) -> Step[int | None]:
    """Write a checkpoint of the present state; return its version, or ``None`` if that is unsure.

    The hint is written only after the checkpoint is known to be there: other engines fail on a hint
    at a missing checkpoint. If an entry was overwritten meanwhile, the checkpoint is deleted again.
    A sound checkpoint that is there already is not written again: its age proves which entries
    were written at numbers that other engines had cleaned.

    :param now: Unix milliseconds, by the store's clock.
    :raises TableMismatchError: the table has a feature that this package cannot write.
    """
    opened, files = yield from open_as_columns(layout)
    is_there = opened.state.exists and opened.state.checkpoint == opened.state.version
    try:
        made = _checkpoint_of(layout, opened, files.columns(), now)
    except RecordDamagedError:
        # The checkpoint before is damaged, but the entries that it was made of may still be there.
        # Or it has a file that is both live and removed: a state of objects has it only once.
        opened = yield from open_log(layout, LogDepth.WHOLE)
        made = _checkpoint_of(layout, opened, adds_as_columns(opened.state.live.values()), now)
        is_there = False
    if made is None:
        return None
    return opened.state.version if is_there else (yield from _put(layout, opened.state, *made))


def _checkpoint_of(
    layout: LogLayout, opened: OpenedLog, files: Iterable[pa.StructArray], now: int
) -> tuple[bytes, bytes] | None:
    """Build the bodies of a checkpoint and of its hint; ``None``: the state is not certain.

    :param files: the state's live files, as columns.
    """
    state = opened.state
    if not state.exists or opened.overwritten:
        return None
    # An unknown feature may have actions of its own, which would be lost with the entries.
    layout.check_writable(state, removes_rows=False)
    return write_checkpoint(state, now - int(layout.retention(state) * 1000), files)


def _put(layout: LogLayout, state: LogState, body: bytes, hint: bytes) -> Step[int | None]:
    key = layout.folder.checkpoint(state.version)
    answer = yield from Put(key, body, content_type="application/vnd.apache.parquet")
    if not isinstance(answer, Done):
        return None
    if (yield from _is_written_over(layout, state)):
        yield from Delete(key)
        return None
    yield from Put(layout.folder.hint, hint)
    return state.version


def _is_written_over(layout: LogLayout, state: LogState) -> Step[bool]:
    """Return whether an entry of the state was overwritten since it was read. Then readers of the
    checkpoint would see the lost entry instead of the present one."""
    listed = yield from list_log(layout.folder, min(state.etags, default=state.version))
    return any(
        version in listed.entries and listed.entries[version].etag != etag
        for version, etag in state.etags.items()
    )
