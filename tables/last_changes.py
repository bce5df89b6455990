"""Last changes of partitions of a Delta table: which entry changed the rows of each, of whose job.

Entries are read from the newest down, as far as partitions are asked for that none has changed yet.
A compaction changes no rows, so it is none.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ..committer.commit.state.job_state import Committed
from ..committer.format.job_spec import Owner
from ..committer.format.layout import TableRoot
from ..committer.store.requests import Step
from ..layouts.delta.columns import arrow_schema
from ..log.entries import ListedLog, LogEntry, LogFolder
from ..log.opening import list_log, read_entries
from ..log.replay import LogState
from ..log.scope import read_scope
from .delta_files import name_told
from .delta_runs import owner_of
from .delta_steps import committed

#: Entries that are read at once.
_AT_ONCE = 64
#: Entries that are read where nothing says since when.
_MOST = 256

#: Entries that are kept from one look to the next.
_KEPT = 1024


@dataclass(frozen=True)
class Since:
    """What counts as a change: what came after a version and after a time.

    :param version: ``None``: any.
    :param time: by the store's clock, in Unix seconds; ``None``: any.
    """

    version: int | None = None
    time: float | None = None

    @property
    def is_any(self) -> bool:
        return self.version is None and self.time is None

    def entries(self, listed: ListedLog) -> list[int]:
        """The versions after it that are on record, newest first."""
        least = -1 if self.version is None else self.version
        after = -1.0 if self.time is None else self.time
        found = (v for v, it in listed.entries.items() if v > least and it.last_modified > after)
        return sorted(found, reverse=True)

    def may_have_lost(self, listed: ListedLog) -> bool:
        """Tell whether entries after it may have been cleaned."""
        oldest = min(listed.entries, default=None)
        if oldest in (None, 0):
            return False
        by_version = self.version is None or oldest > self.version + 1
        by_time = self.time is None or listed.entries[oldest].last_modified > self.time
        return by_version and by_time


@dataclass(frozen=True)
class LastChange:
    """The last change of a partition's rows.

    :param at: when the store wrote its entry, in Unix seconds.
    :param done: what the entry did; its job is ``""`` where another engine wrote it.
    """

    version: int
    at: float
    done: Committed


@dataclass(frozen=True)
class EntryChange:
    """What an entry changed.

    :param partitions: those whose rows it changed.
    :param done: as of :class:`LastChange`.
    :param owner: who ran its job, as far as that is known.
    """

    version: int
    partitions: frozenset[str]
    done: Committed
    owner: Owner


@dataclass(frozen=True)
class ChangesSince:
    """Changes of rows, oldest first, as far as they were read.

    :param read: the last version that was looked at: a further look goes on after it.
    """

    found: tuple[EntryChange, ...]
    read: int


@dataclass(frozen=True)
class LastChanges:
    """The last changes of partitions that were asked for.

    :param of: by partition, of those that were changed.
    :param cleaned: changes may have been made by entries that were cleaned.
    """

    of: dict[str, LastChange]
    cleaned: bool


def last_changes(
    root: TableRoot,
    folder: LogFolder,
    state: LogState,
    partitions: Collection[str],
    since: Since,
    known: dict[int, LogEntry],
) -> Step[LastChanges]:
    """Find the last change of each of some partitions.

    :param state: with the table's files, which tell partitions that tombstones do not.
    :param known: entries that were read before, which is added to.
    """
    listed = yield from list_log(folder, 0 if since.version is None else since.version + 1)
    versions = since.entries(listed)
    wanted = versions[:_MOST] if since.is_any else versions
    found: dict[str, LastChange] = {}
    if len(known) > _KEPT:
        known.clear()
    for start in range(0, len(wanted), _AT_ONCE):
        some = [v for v in wanted[start : start + _AT_ONCE] if v <= state.version]
        unread = [v for v in some if v not in known]
        read = yield from read_entries(folder, unread)
        known.update({it.version: it for it in read if it is not None})
        for entry in (known[v] for v in some if v in known):
            for name in _changed(state, entry).intersection(partitions).difference(found):
                done = committed(root, state, entry)
                found[name] = LastChange(entry.version, entry.written_at, done)
        if len(found) == len(set(partitions)):
            break
    return LastChanges(found, since.may_have_lost(listed) or len(wanted) < len(versions))


def changes_since(
    root: TableRoot, folder: LogFolder, state: LogState, since: Since, most: int
) -> Step[ChangesSince]:
    """Find the entries that changed rows.

    :param state: of the table; what has come after it is left for a further look.
    :param most: entries that are read at the most.
    """
    listed = yield from list_log(folder, 0 if since.version is None else since.version + 1)
    versions = [v for v in reversed(since.entries(listed)) if v <= state.version][:most]
    found: list[EntryChange] = []
    for start in range(0, len(versions), _AT_ONCE):
        read = yield from read_entries(folder, versions[start : start + _AT_ONCE])
        for entry in (it for it in read if it is not None):
            if names := _changed(state, entry):
                done, owner = committed(root, state, entry), owner_of(entry)
                found.append(EntryChange(entry.version, frozenset(names), done, owner))
    seen = state.version if since.version is None else since.version
    return ChangesSince(tuple(found), versions[-1] if versions else seen)


def _changed(state: LogState, entry: LogEntry) -> set[str]:
    """The partitions whose rows an entry changed, or that it replaced by nothing."""
    assert state.metadata is not None
    schema, by = arrow_schema(state.metadata), state.metadata.partition_columns
    replaced = read_scope(entry.ours.get("replaced"))
    named = {()} if replaced.all and not by else replaced.partitions
    files = {state.partition(it) or () for it in entry.changes}
    return {name_told(it, schema, by) for it in named | files}
