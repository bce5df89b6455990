"""Logs that this process has opened: another look at one costs a listing, and the entries since."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import MutableMapping
from dataclasses import replace
from weakref import WeakKeyDictionary

from ..committer.format.layout import TableRoot
from ..committer.store.driver import Driver
from ..log import opening
from ..log.opening import OpenedLog

#: Tables of a store of which it is known.
_TABLES = 64
SEEN: MutableMapping[Driver, OrderedDict[str, OpenedLog]] = WeakKeyDictionary()


def seen_log(driver: Driver, root: TableRoot) -> OpenedLog | None:
    """Return what the last opening of a table's log has shown, if there was one."""
    return SEEN.get(driver, {}).get(root.url)


def note_log(driver: Driver, root: TableRoot, opened: OpenedLog) -> None:
    """Note what an opening of a table's log has shown, but for tombstones and too many files."""
    logs = SEEN.setdefault(driver, OrderedDict())
    state = opened.state
    if not state.exists or opened.overwritten:
        logs.pop(root.url, None)
        return
    kept = state.all_files and len(state.files or ()) <= opening.MANY
    files = state.files if kept else None
    state = replace(state, files=files, all_files=True, removed=None)
    logs[root.url] = replace(opened, state=state, listed=None)
    logs.move_to_end(root.url)
    while len(logs) > _TABLES:
        logs.popitem(last=False)
