"""Copies: files that a checkpoint has moved to the table's own place, and who meets them.

========================================  ====================================================
a change that a checkpoint meets          then
========================================  ====================================================
removes a file that it has copied         removes the copy instead, and stands
brings back a file that it has copied     leaves the copy where it is, or brings it back; or
                                          the file, where it alone is kept
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

from .actions import FORGOTTEN, AddFile, RemoveFile
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
    """Put, in place of each file that is not live, the live one that has its rows, if there is one;
    return all by path."""
    wanted = [*files]
    gone = {source_of(it) for it in wanted if it.path not in state.live}
    live = {source: it for it in state.live.values() if (source := source_of(it)) in gone}
    same = (it if it.path in state.live else live.get(source_of(it), it) for it in wanted)
    return {it.path: it for it in same}


def removed_copies(files: Iterable[AddFile], state: LogState) -> dict[str, list[AddFile]]:
    """Find the removed files that have the rows of some files, by the path of those: the file, its
    copies or its source, the last one that was removed first.

    :param state: with its tombstones.
    :return: none of those that purge has forgotten.
    """
    wanted = {it.path: it for it in files}
    families: dict[str, list[RemoveFile]] = {source_of(it): [] for it in wanted.values()}
    by_path = {}
    for tombstone in (state.removed or {}).values():
        if tombstone.removed_at == FORGOTTEN:
            continue
        if tombstone.path in wanted:
            by_path[tombstone.path] = tombstone
        elif (source := source_of(tombstone)) in families:
            families[source].append(tombstone)
    found = {}
    for path, it in wanted.items():
        # Another engine's tombstone may lack the tags that say whose copy it was.
        same = [*families[source_of(it)], *([by_path[path]] if path in by_path else [])]
        same.sort(key=lambda tombstone: (tombstone.removed_at, COPY_OF in tombstone.tags))
        found[path] = [_moved(it, tombstone.path) for tombstone in reversed(same)]
    return found


def source_of(file: AddFile | RemoveFile) -> str:
    """Return the path of a copy's source; of any other file its own path."""
    return file.tags.get(COPY_OF) or file.path  # Another engine may write null.


def _moved(add: AddFile, path: str) -> AddFile:
    """A file as it is in another place: there is a copy of it, or its source."""
    tags, source = {**add.tags}, source_of(add)
    tags.pop(COPY_OF, None)
    return replace(add, path=path, tags=tags if path == source else {**tags, COPY_OF: source})


def follow_copies(change: LogChange, entry: LogEntry) -> LogChange:
    """Let a change remove the copies that an entry since its base has put in place of files."""
    if change.operation == CHECKPOINT or not change.removes:
        return change
    moved = {source: it.path for source, it in copies_in(entry).items() if source in change.removes}
    if not moved:
        return change
    return replace(change, removes=frozenset(moved.get(path, path) for path in change.removes))
