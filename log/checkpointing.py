"""Making a checkpoint, after a commit and outside of it: failing here loses nothing."""

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
    """Write a checkpoint of the present state; return its version, ``None`` if it is not certain.

    The hint is written once the checkpoint is known to be there: a hint of one that is not would
    make other engines fail. Where an entry was written over meanwhile, the checkpoint is taken
    away again. One that is there and sound stays as it is: its age proves which entries came into
    numbers that others had cleaned.

    :param now: milliseconds, by the store's clock.
    :raises TableMismatchError: the table has a feature that is not written here.
    """
    opened, files = yield from open_as_columns(layout)
    is_there = opened.state.exists and opened.state.checkpoint == opened.state.version
    try:
        made = _checkpoint_of(layout, opened, files.columns(), now)
    except RecordDamagedError:
        # The checkpoint before is damaged, and the entries that it was made of may be there. Or it
        # has a file as both live and removed: a state by objects has it once.
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

    :param files: its live files.
    """
    state = opened.state
    if not state.exists or opened.overwritten:
        return None
    # What a feature keeps in actions that are not known here would be lost with its entries.
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
    """Tell whether somebody has written over an entry that a state was made of, since it was read:
    readers of a checkpoint would see what is lost, and not what is there."""
    listed = yield from list_log(layout.folder, min(state.etags, default=state.version))
    return any(
        version in listed.entries and listed.entries[version].etag != etag
        for version, etag in state.etags.items()
    )
