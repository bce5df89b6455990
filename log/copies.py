"""Copies of files that a checkpoint has moved from a data root into the table's own folder.

========================================  ====================================================
a change after the checkpoint             then
========================================  ====================================================
removes a file that was copied            removes the copy instead; no conflict
brings back a file that was copied        keeps the copy if it is live, or brings it back; or
                                          the file, if only that is kept
removes files by their partition          removes the copy with all other files there
is a checkpoint of the same file          conflict: one copy is enough
========================================  ====================================================

A copy has the bytes, statistics and tags of its source, so the tags name the job, version and ranks
of its rows. One more tag names the source. A job that has read the source has read the copy, since
the bytes are the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from .actions import FORGOTTEN, AddFile, RemoveFile
from .change import CHECKPOINT, COPY_OF, LogChange
from .entries import LogEntry
from .replay import LogState


def copy_of(add: AddFile, path: str) -> AddFile:
    """Return a copy of a live file at another path."""
    return replace(add, path=path, changes_data=False, tags={**add.tags, COPY_OF: add.path})


def copies_in(entry: LogEntry) -> dict[str, AddFile]:
    """Return the copies by which an entry has replaced files, by the paths of these files."""
    if entry.operation != CHECKPOINT:
        return {}
    removed = {it.path for it in entry.of(RemoveFile)}
    made = ((it.tags.get(COPY_OF), it) for it in entry.of(AddFile))
    return {source: it for source, it in made if source is not None and source in removed}


def with_copies(files: Iterable[AddFile], state: LogState) -> dict[str, AddFile]:
    """Return files by path, each that is not live replaced by the live file with the same rows, if
    there is one."""
    wanted = [*files]
    gone = {source_of(it) for it in wanted if it.path not in state.live}
    live = {source: it for it in state.live.values() if (source := source_of(it)) in gone}
    same = (it if it.path in state.live else live.get(source_of(it), it) for it in wanted)
    return {it.path: it for it in same}


def removed_copies(files: Iterable[AddFile], state: LogState) -> dict[str, list[AddFile]]:
    """Find removed files with the same rows as given files: the file, its copies or its source.

    :param state: a state with tombstones.
    :return: by the path of each given file, the last removed first; without files that purge has
        forgotten.
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
        # A tombstone by another engine may lack the tag that names the source of a copy.
        same = [*families[source_of(it)], *([by_path[path]] if path in by_path else [])]
        same.sort(key=lambda tombstone: (tombstone.removed_at, COPY_OF in tombstone.tags))
        found[path] = [_moved(it, tombstone.path) for tombstone in reversed(same)]
    return found


def source_of(file: AddFile | RemoveFile) -> str:
    """Return the path of a copy's source; of any other file its own path."""
    return file.tags.get(COPY_OF) or file.path  # Another engine may write null.


def _moved(add: AddFile, path: str) -> AddFile:
    """Return a file under the path of its copy or of its source."""
    tags, source = {**add.tags}, source_of(add)
    tags.pop(COPY_OF, None)
    return replace(add, path=path, tags=tags if path == source else {**tags, COPY_OF: source})


def follow_copies(change: LogChange, entry: LogEntry) -> LogChange:
    """Return the change, with copies removed in place of the files that an entry has copied."""
    if change.operation == CHECKPOINT or not change.removes:
        return change
    moved = {source: it.path for source, it in copies_in(entry).items() if source in change.removes}
    if not moved:
        return change
    return replace(change, removes=frozenset(moved.get(path, path) for path in change.removes))
