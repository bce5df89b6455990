"""Cache of logs that this process has opened: opening one again takes a listing and the new
entries."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import replace
from weakref import WeakKeyDictionary

from ..committer.format.layout import TableRoot
from ..committer.store.driver import Driver
from ..log import opening
from ..log.opening import OpenedLog
from ..log.replay import LogState

#: How many tables of a store are remembered, before all are forgotten.
_TABLES = 64
#: The last state, by driver and the table's URL.
SEEN: MutableMapping[Driver, dict[str, LogState]] = WeakKeyDictionary()


def seen_log(driver: Driver, root: TableRoot) -> LogState | None:
    """Return the state of the last opening of a table's log; ``None``: there was none."""
    return SEEN.get(driver, {}).get(root.url)


def note_log(driver: Driver, root: TableRoot, opened: OpenedLog) -> None:
    """Remember the state of an opened log, without tombstones, and without files if there are too
    many."""
    logs = SEEN.setdefault(driver, {})
    state = opened.state
    if not state.exists or opened.overwritten:
        logs.pop(root.url, None)
        return
    kept = state.all_files and len(state.files or ()) <= opening.MANY
    files = state.files if kept else None
    if len(logs) >= _TABLES:
        logs.clear()  # Single operations on a dictionary are safe beside other threads.
    logs[root.url] = replace(state, files=files, all_files=True, removed=None)
