"""Restore: the table becomes what it was at a version, as far as its files are still there.

================================  =========================================================
a file of that version            then
================================  =========================================================
live                              stays
removed, tombstone, object there  comes back
removed, tombstone out of date    lost: purge may be deleting it
forgotten by purge, no tombstone  lost
object gone                       lost: another engine's VACUUM took it
================================  =========================================================

The plan reads the whole table: any change since is a conflict, and so is an entry that forgets a
file which is to come back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..committer.store.requests import All, Found, Head, Step
from .actions import FORGOTTEN, AddFile
from .change import RESTORE, LogBase, LogChange
from .log_layout import LogLayout
from .opening import LogDepth, OpenedLog, open_log
from .replay import LogState
from .scope import ALL


@dataclass(frozen=True)
class LogRestore:
    """A change that restores a version.

    :param lost: paths of that version that nothing brings back.
    """

    opened: OpenedLog
    change: LogChange
    lost: tuple[str, ...]


def plan_restore(
    layout: LogLayout, job: str, version: int, now: int, owner: Mapping[str, Any]
) -> Step[LogRestore]:
    """Plan the restore of a version; whoever commits it says first what is lost.

    :param now: milliseconds, by the store's clock.
    """
    opened = yield from open_log(layout, LogDepth.WHOLE)
    former = yield from open_log(layout, LogDepth.FILES, version)
    state, then = opened.state, former.state
    there, lost = yield from find_returned(layout, state, then.live.values(), now)
    assert then.metadata is not None
    assert state.metadata is not None
    metadata = layout.restored(then.metadata, state.metadata)
    change = LogChange(
        job,
        LogBase(state.version, state.table_id),
        removes=frozenset(state.live.keys() - then.live.keys()),
        returned=there,
        reads=ALL,
        metadata=metadata if metadata != state.metadata else None,
        operation=RESTORE,
        owner=owner,
    )
    return LogRestore(opened, change, lost)


def find_returned(
    layout: LogLayout, state: LogState, wanted: Iterable[AddFile], now: int
) -> Step[tuple[tuple[AddFile, ...], tuple[str, ...]]]:
    """Find the files that can be brought back, of those that are not live; and the paths of the
    others.

    :param state: with its tombstones.
    :param now: milliseconds, by the store's clock.
    """
    kept_since = now - int(layout.retention(state) * 1000)
    returned: list[AddFile] = []
    lost: list[str] = []
    for add in wanted:
        if add.path in state.live:
            continue
        tombstone = (state.removed or {}).get(add.path)
        at = FORGOTTEN if tombstone is None else tombstone.removed_at
        if at == FORGOTTEN or at <= kept_since:
            lost.append(add.path)
        else:
            returned.append(replace(add, changes_data=True))
    found = yield from All(tuple(Head(layout.key_of(add.path, state)) for add in returned))
    there = [add for add, it in zip(returned, found, strict=True) if isinstance(it, Found)]
    lost += [add.path for add, it in zip(returned, found, strict=True) if not isinstance(it, Found)]
    return tuple(there), tuple(sorted(lost))
