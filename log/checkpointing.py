"""Making a checkpoint, after a commit and outside of it: failing here loses nothing."""

from __future__ import annotations

from ..committer.errors import RecordDamagedError
from ..committer.store.requests import Done, Put, Step
from .checkpoint import write_checkpoint
from .file_columns import adds_as_columns
from .log_layout import LogLayout
from .opening import LogDepth, OpenedLog, open_as_columns, open_log
from .replay import LogState


def make_checkpoint(layout: LogLayout, now: int) -> Step[int | None]:
    """Write a checkpoint of the present state; return its version, ``None`` if it is not certain.

    The hint is written once the checkpoint is known to be there: a hint of one that is not would
    make other engines fail.

    :param now: milliseconds, by the store's clock.
    :raises TableMismatchError: the table has a feature that is not written here.
    """
    opened, files = yield from open_as_columns(layout)
    if not _is_certain(layout, opened):
        return None
    try:
        body, hint = write_checkpoint(
            opened.state, _kept_since(layout, opened.state, now), files.columns()
        )
    except RecordDamagedError:
        # Of the checkpoint before. The entries may be there that it was made of; or it has a file
        # that is both live and removed, of which objects are made in turn.
        opened = yield from open_log(layout, LogDepth.WHOLE)
        if not _is_certain(layout, opened):
            return None
        state = opened.state
        live = adds_as_columns(state.live.values())
        body, hint = write_checkpoint(state, _kept_since(layout, state, now), live)
    return (yield from _put(layout, opened.state.version, body, hint))


def _is_certain(layout: LogLayout, opened: OpenedLog) -> bool:
    if not opened.state.exists or opened.overwritten:
        return False
    # What a feature keeps in actions that are not known here would be lost with its entries.
    layout.check_writable(opened.state, removes_rows=False)
    return True


def _kept_since(layout: LogLayout, state: LogState, now: int) -> int:
    """The time of the oldest tombstones that are kept, in milliseconds."""
    return now - int(layout.retention(state) * 1000)


def _put(layout: LogLayout, version: int, body: bytes, hint: bytes) -> Step[int | None]:
    key = layout.folder.checkpoint(version)
    answer = yield from Put(key, body, content_type="application/vnd.apache.parquet")
    if not isinstance(answer, Done):
        return None
    yield from Put(layout.folder.hint, hint)
    return version
