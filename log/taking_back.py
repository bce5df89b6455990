"""Undoing of compactions by another job: their files are removed, their source files come back.

A compaction changes no row. So a job that needs the files that it removed can undo it in its own
entry, without writing rows:

=================================  ==========================================================
a file that the compactions        in the job's entry
=================================  ==========================================================
have written, live                 removed
have written and also removed      nothing: it was between two compactions
have removed, of the job's run     nothing: the job replaces its rows
have removed, of others            comes back, unchanged
=================================  ==========================================================

A file can come back as long as purge and VACUUM spare it: for the table's retention, less a margin
for the commit and for clocks. The entry is judged like that of a restore: it conflicts with an
entry that forgets one of these files meanwhile, or that changes a file that it removes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from dataclasses import replace as changed

from ..committer.errors import SnapshotGoneError, TableMismatchError
from ..committer.store.requests import All, Found, Head, Step
from .actions import FORGOTTEN, AddFile, RemoveFile
from .entries import LogEntry
from .log_layout import LogLayout
from .opening import LogDepth, open_log
from .partitions import Partition
from .replay import LogState
from .vacuum import spared_for


@dataclass(frozen=True)
class TakenBack:
    """The files by which a change undoes compactions.

    :param removes: paths of files that the compactions wrote.
    :param returned: files that the compactions removed, and that come back.
    """

    removes: frozenset[str] = frozenset()
    returned: tuple[AddFile, ...] = ()


@dataclass(frozen=True)
class Compaction:
    """A compaction of one partition by an entry: the paths that it added and removed."""

    entry: LogEntry
    partition: Partition | None
    added: frozenset[str]
    removed: frozenset[str]


def compaction_of(
    entry: LogEntry, partition: Partition | None, state: LogState
) -> Compaction | None:
    """Return an entry's compaction of a partition; ``None``: the entry did not compact it, or may
    have changed rows."""
    files = (*entry.of(AddFile), *entry.of(RemoveFile))
    if entry.operation != "OPTIMIZE" or any(it.changes_data for it in files) or partition is None:
        return None
    there = [it for it in files if state.partition(it) in (partition, None)]
    added = frozenset(it.path for it in there if isinstance(it, AddFile))
    removed = frozenset(it.path for it in there if isinstance(it, RemoveFile))
    return Compaction(entry, partition, added, removed) if added and removed else None


def take_back(
    layout: LogLayout,
    state: LogState,
    compactions: Collection[Compaction],
    without: Collection[str],
    now: int,
) -> Step[TakenBack | None]:
    """Find the files by which compactions can be undone; ``None``: this is not possible any more.

    :param state: the present state, with its live files.
    :param without: paths of files that must not come back.
    :param now: Unix milliseconds.
    """
    added = frozenset().union(*(it.added for it in compactions))
    removed = frozenset().union(*(it.removed for it in compactions))
    removes, paths = added - removed, removed - added - frozenset(without)
    if removes - state.live.keys() or paths & state.live.keys():
        return None
    whole = yield from open_log(layout, LogDepth.WHOLE, state.version)
    kept_since = now - int(spared_for(layout.retention(state)) * 1000)
    if not all(_is_kept(whole.state.removed or {}, path, kept_since) for path in paths):
        return None
    returned = yield from _as_they_were(layout, compactions, paths)
    if returned is None:
        return None
    found = yield from All(tuple(Head(layout.key_of(add.path, state)) for add in returned))
    if not all(isinstance(it, Found) for it in found):
        return None  # Another engine's VACUUM deleted it.
    return TakenBack(removes, returned)


def _is_kept(tombstones: Mapping[str, RemoveFile], path: str, kept_since: int) -> bool:
    at = tombstones[path].removed_at if path in tombstones else FORGOTTEN
    return at != FORGOTTEN and at > kept_since


def _as_they_were(
    layout: LogLayout, compactions: Collection[Compaction], paths: frozenset[str]
) -> Step[tuple[AddFile, ...] | None]:
    """Read removed files from the states before the compactions; ``None``: such a state was cleaned
    from the log, had a feature that cannot be read, or lacks a file."""
    found: dict[str, AddFile] = {}
    for version in sorted({it.entry.version for it in compactions}):
        try:
            before = yield from open_log(layout, LogDepth.FILES, version - 1)
        except (SnapshotGoneError, TableMismatchError):
            return None
        found |= {path: before.state.live[path] for path in paths & before.state.live.keys()}
    if paths - found.keys():
        return None
    # Their rows were in the table before.
    return tuple(changed(found[path], changes_data=False) for path in sorted(paths))
