"""Copies: files that a checkpoint has moved to the table's own place, and who meets them.

========================================  ====================================================
a change that a checkpoint meets          then
========================================  ====================================================
removes a file that it has copied         removes the copy instead, and stands
brings back a file that it has copied     brings the copy back, or leaves it where it is
removes files by their partition          removes the copy with what else lies there
is a checkpoint of the same file          conflict: one copy is enough
========================================  ====================================================

A copy has its source's bytes, statistics and tags, so that its job, version and ranks are those of
its rows; one tag more names the source. Bytes are the same, so whoever has read the source has read
the copy.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from .actions import AddFile, RemoveFile
from .change import CHECKPOINT, COPY_OF, LogChange
from .entries import LogEntry
from .replay import LogState


def copy_of(add: AddFile, path: str) -> AddFile:
    """The copy of a live file at another path."""
    return replace(add, path=path, changes_data=False, tags={**add.tags, COPY_OF: add.path})


def copies_in(entry: LogEntry) -> dict[str, AddFile]:
    """The copies that an entry has put in place of files, by the path of their source."""
    if entry.operation != CHECKPOINT:
        return {}
    removed = {it.path for it in entry.of(RemoveFile)}
    made = ((it.tags.get(COPY_OF), it) for it in entry.of(AddFile))
    return {source: it for source, it in made if source is not None and source in removed}


def with_copies(files: Iterable[AddFile], state: LogState) -> dict[str, AddFile]:
    """Put copies in place of files that are not live, by path: the copy that is, or else the last
    one that was removed.

    :param state: with its tombstones.
    """
    tombstones = sorted((state.removed or {}).values(), key=lambda it: it.removed_at)
    gone = {it.tags[COPY_OF]: it.path for it in tombstones if COPY_OF in it.tags}
    live = {it.tags[COPY_OF]: it for it in state.live.values() if COPY_OF in it.tags}
    found: dict[str, AddFile] = {}
    for it in files:
        if it.path not in state.live and it.path in live:
            it = live[it.path]
        elif it.path not in state.live and it.path in gone:
            it = copy_of(it, gone[it.path])
        found[it.path] = it
    return found


def follow_copies(change: LogChange, entry: LogEntry) -> LogChange:
    """Let a change remove the copies that an entry since its base has put in place of files."""
    if change.operation == CHECKPOINT or not change.removes:
        return change
    moved = {source: it.path for source, it in copies_in(entry).items() if source in change.removes}
    if not moved:
        return change
    return replace(change, removes=frozenset(moved.get(path, path) for path in change.removes))
