"""Logs that this process has opened: another look at one costs a listing, and the entries since."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import replace
from weakref import WeakKeyDictionary

from ..committer.format.layout import TableRoot
from ..committer.store.driver import Driver
from ..log import opening
from ..log.opening import OpenedLog
from ..log.replay import LogState

#: Tables of a store after which all are forgotten.
_TABLES = 64
#: By the driver and the table's URL.
SEEN: MutableMapping[Driver, dict[str, LogState]] = WeakKeyDictionary()


def seen_log(driver: Driver, root: TableRoot) -> LogState | None:
    """Return the state that the last opening of a table's log has shown, if there was one."""
    return SEEN.get(driver, {}).get(root.url)


def note_log(driver: Driver, root: TableRoot, opened: OpenedLog) -> None:
    """Note what an opening of a table's log has shown, but for tombstones and too many files."""
    logs = SEEN.setdefault(driver, {})
    state = opened.state
    if not state.exists or opened.overwritten:
        logs.pop(root.url, None)
        return
    kept = state.all_files and len(state.files or ()) <= opening.MANY
    files = state.files if kept else None
    if len(logs) >= _TABLES:
        logs.clear()  # Other threads may be at work, which each operation of a dictionary bears.
    logs[root.url] = replace(state, files=files, all_files=True, removed=None)
