"""Making a checkpoint, after a commit and outside of it: failing here loses nothing."""

from __future__ import annotations

from ..committer.store.requests import Done, Put, Step
from .checkpoint import write_checkpoint
from .log_layout import LogLayout
from .opening import LogDepth, open_log


def make_checkpoint(layout: LogLayout, now: int) -> Step[int | None]:
    """Write a checkpoint of the present state; return its version, ``None`` if it is not certain.

    The hint is written once the checkpoint is known to be there: a hint of one that is not would
    make other engines fail.

    :param now: milliseconds, by the store's clock.
    :raises TableMismatchError: the table has a feature that is not written here.
    """
    opened = yield from open_log(layout, LogDepth.WHOLE)
    state = opened.state
    if not state.exists or opened.overwritten:
        return None
    # What a feature keeps in actions that are not known here would be lost with its entries.
    layout.check_writable(state, removes_rows=False)
    kept_since = now - int(layout.retention(state) * 1000)
    body, hint = write_checkpoint(state, kept_since)
    answer = yield from Put(
        layout.folder.checkpoint(state.version), body, content_type="application/vnd.apache.parquet"
    )
    if not isinstance(answer, Done):
        return None
    yield from Put(layout.folder.hint, hint)
    return state.version
