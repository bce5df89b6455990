"""Last changes of a Delta table's partitions, with the entries and jobs that made them.

Entries are read from the newest down, until the last change of every requested partition is found.
A compaction changes no rows, so it does not count.

Tombstones of other engines may lack the values of their partition. Then the state before the entry
names it. If that part of the log was cleaned, or had a feature that cannot be read, such a
tombstone is left out.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from ..committer.commit.state.job_state import Committed
from ..committer.errors import SnapshotGoneError, TableMismatchError
from ..committer.format.job_spec import Owner
from ..committer.format.layout import TableRoot
from ..committer.store.requests import Step
from ..layouts.delta.columns import arrow_schema
from ..layouts.delta.delta_layout import DeltaLayout
from ..log.actions import RemoveFile
from ..log.entries import ListedLog, LogEntry
from ..log.opening import LogDepth, list_log, open_log, read_entries
from ..log.replay import LogState
from ..log.scope import read_scope
from .delta_files import name_told
from .delta_report import committed
from .delta_runs import owner_of

#: How many entries are read at once.
_AT_ONCE = 64
#: How many entries are read at most if there is no condition since when.
_MOST = 256

#: How many entries are kept from one poll to the next.
_KEPT = 1024


@dataclass(frozen=True)
class Since:
    """The entries that count as changes: those after a version and after a time.

    :param version: ``None``: any.
    :param time: Unix seconds by the store's clock; ``None``: any.
    """

    version: int | None = None
    time: float | None = None

    @property
    def is_any(self) -> bool:
        return self.version is None and self.time is None

    def entries(self, listed: ListedLog) -> list[int]:
        """Return the listed versions that count, the newest first."""
        least = -1 if self.version is None else self.version
        after = -1.0 if self.time is None else self.time
        found = (v for v, it in listed.entries.items() if v > least and it.last_modified > after)
        return sorted(found, reverse=True)

    def may_have_lost(self, listed: ListedLog) -> bool:
        """Return whether entries that count may have been cleaned."""
        oldest = min(listed.entries, default=None)
        if oldest in (None, 0):
            return False
        by_version = self.version is None or oldest > self.version + 1
        by_time = self.time is None or listed.entries[oldest].last_modified > self.time
        return by_version and by_time


@dataclass(frozen=True)
class LastChange:
    """The last change of a partition's rows.

    :param version: the version of the entry.
    :param at: when the store wrote the entry, in Unix seconds.
    :param done: the report of the entry; its job is ``""`` if another engine wrote it.
    """

    version: int
    at: float
    done: Committed


@dataclass(frozen=True)
class EntryChange:
    """The change of rows by an entry.

    :param partitions: the partitions whose rows it changed.
    :param done: as in :class:`LastChange`.
    :param owner: the owner of its job, if it is known.
    """

    version: int
    partitions: frozenset[str]
    done: Committed
    owner: Owner


@dataclass(frozen=True)
class ChangesSince:
    """Changes of rows that were read, the oldest first.

    :param read: the last version that was read; the next poll goes on after it.
    :param cleaned: there may have been changes by entries that were cleaned.
    """

    found: tuple[EntryChange, ...]
    read: int
    cleaned: bool = False


@dataclass(frozen=True)
class LastChanges:
    """The last changes of the requested partitions.

    :param of: the last change by partition, for those that were changed.
    :param cleaned: there may be changes by entries that were cleaned, or that were not read.
    """

    of: dict[str, LastChange]
    cleaned: bool


def last_changes(
    root: TableRoot,
    layout: DeltaLayout,
    state: LogState,
    partitions: Collection[str],
    since: Since,
    known: dict[int, LogEntry],
    newest: bool = False,
) -> Step[LastChanges]:
    """Find the last change of each requested partition.

    :param state: the present state.
    :param known: entries that were read before, by version; those that are read now are added. One
        that was overwritten since, or belongs to a table that was here before, is read again.
    :param newest: stop at the first entry that changed one of them.
    """
    folder = layout.folder
    listed = yield from list_log(folder, 0 if since.version is None else since.version + 1)
    versions = since.entries(listed)
    wanted = versions[:_MOST] if since.is_any else versions
    found: dict[str, LastChange] = {}
    enough = min(len(set(partitions)), 1) if newest else len(set(partitions))
    if len(known) > _KEPT:
        known.clear()
    for start in range(0, len(wanted), _AT_ONCE):
        some = [v for v in wanted[start : start + _AT_ONCE] if v <= state.version]
        unread = [v for v in some if v not in known or known[v].etag != listed.entries[v].etag]
        read = yield from read_entries(folder, unread)
        for version in unread:
            known.pop(version, None)
        known.update({it.version: it for it in read if it is not None})
        for entry in (known[v] for v in some if v in known):
            named = yield from _naming(layout, state, entry)
            for name in _changed(named, entry).intersection(partitions).difference(found):
                done = committed(root, named, entry)
                found[name] = LastChange(entry.version, entry.written_at, done)
            if len(found) >= enough:
                break
        if len(found) >= enough:
            break
    return LastChanges(found, since.may_have_lost(listed) or len(wanted) < len(versions))


def changes_since(
    root: TableRoot, layout: DeltaLayout, state: LogState, since: Since, most: int
) -> Step[ChangesSince]:
    """Find the entries that changed rows.

    :param state: a state of the table; later entries are left to the next poll.
    :param most: the greatest number of entries to read.
    """
    folder = layout.folder
    listed = yield from list_log(folder, 0 if since.version is None else since.version + 1)
    versions = [v for v in reversed(since.entries(listed)) if v <= state.version][:most]
    found: list[EntryChange] = []
    for start in range(0, len(versions), _AT_ONCE):
        read = yield from read_entries(folder, versions[start : start + _AT_ONCE])
        for entry in (it for it in read if it is not None):
            named = yield from _naming(layout, state, entry)
            if names := _changed(named, entry):
                done, owner = committed(root, named, entry), owner_of(entry)
                found.append(EntryChange(entry.version, frozenset(names), done, owner))
    seen = state.version if since.version is None else since.version
    read = versions[-1] if versions else seen
    return ChangesSince(tuple(found), read, since.may_have_lost(listed))


def _naming(layout: DeltaLayout, state: LogState, entry: LogEntry) -> Step[LogState]:
    """Return the state whose files name the partitions of an entry's tombstones, if these do not
    name theirs. It has the columns of ``state``."""
    assert state.metadata is not None
    unnamed = (it for it in entry.of(RemoveFile) if it.changes_data and it.values is None)
    if not entry.version or not state.metadata.partition_columns or not any(unnamed):
        return state
    try:
        before = yield from open_log(layout, LogDepth.FILES, entry.version - 1)
    except (SnapshotGoneError, TableMismatchError):
        return state
    return replace(before.state, metadata=state.metadata)


def _changed(state: LogState, entry: LogEntry) -> set[str]:
    """Return the partitions whose rows an entry changed, including those that it replaced by
    nothing."""
    assert state.metadata is not None
    schema, by = arrow_schema(state.metadata), state.metadata.partition_columns
    replaced = read_scope(entry.ours.get("replaced"))
    named = {()} if replaced.all and not by else replaced.partitions
    files = {state.partition(it) if by else () for it in entry.changes}
    return {name_told(it, schema, by) for it in named | files if it is not None}
