"""Undo of a job: its partitions return to what they held before, if no later entry built on it.

==========================================  ================================================
a partition that the entry has changed      then
==========================================  ================================================
holds what the entry left                   returns to its former content
the same, rewritten by compactions          returns to its former content
the same, copied by checkpoints             returns to it; copied files stay copies
holds what later entries made of that       refused: these must be undone first
holds nothing that came from the entry      stays: it was undone, or restored
held rows of a run that has loaded again    refused: they would be there twice
==========================================  ================================================

If a former content comes back, it counts as the same content, no matter which entry brought it
back. So an entry and its undoing cancel out. An undoing can be undone, and then the entry can be
undone again.

The new entry is a restore of these partitions. The table's columns stay if the files fit them.
Otherwise the former columns come back with the files, provided that no other file needs the
present ones. With them come the properties that the undone entry has changed; those that others
have changed since stay.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

from ..committer.errors import InvalidInputError, SnapshotGoneError, first_few
from ..committer.store.requests import Step
from .actions import AddFile, LogMetadata, RemoveFile
from .change import REWRITES
from .copies import source_of, with_copies
from .entries import LogEntry
from .log_layout import LogLayout
from .opening import LogDepth, open_log, read_entries
from .partitions import Partition, partition_of
from .replay import LogState
from .restoring import LogFiles, LogRestore, bring_back, find_ranks
from .scope import ALL, Scope

_RELOAD = "Restore a version, or load the partitions again."
#: How many entries are read at once.
_AT_ONCE = 64


@dataclass(frozen=True)
class LogUndo:
    """A change that undoes a job's entry.

    :param version: the version of the entry to undo.
    :param restore: the change.
    :param undone: if nothing is left to undo, the job of the last entry that removed the effect of
        that entry; ``None``: something is left, or another engine wrote that last entry.
    """

    version: int
    restore: LogRestore
    undone: str | None = None


def plan_undo(
    layout: LogLayout, job: str, undone: str, version: int, now: int, owner: Mapping[str, Any]
) -> Step[LogUndo]:
    """Plan the undoing of a job. Before the commit the caller must report the lost files.

    :param job: the job that will commit the undoing.
    :param undone: the job to undo, whose entry has ``version``.
    :param now: Unix milliseconds, by the store's clock.
    :raises InvalidInputError: later entries have built on the entry, or were cleaned or
        overwritten; the entry changed no row; a run would have its rows twice; or the files do not
        fit the present columns.
    """
    opened = yield from open_log(layout, LogDepth.WHOLE)
    before, state = (yield from _state_before(layout, undone, version)), opened.state
    entries = yield from _read(layout, undone, range(version, state.version + 1))
    past = _past_of(before, entries)
    if past.places.keys() != state.live.keys() or entries[0].job != undone:
        raise InvalidInputError(
            f"The entries since {undone} do not add up to what the table holds: some were written "
            "over. Nothing was changed.",
            job=undone,
            remedy="Run `zero-rename verify`; `zero-rename repair` commits again what was written "
            "over.",
        )
    if not past.changed(version):
        raise InvalidInputError(
            f"{undone} has changed no row, so there is nothing to undo. Nothing was changed.",
            job=undone,
        )
    if blocking := past.first_to_undo(version):
        raise _built_on(undone, version, [entries[it - version] for it in blocking])
    places = Scope(frozenset(past.in_effect(version)))
    ranks = yield from find_ranks(layout, state, before, places)
    held = (it for it in before.live.values() if places.has(before.partition(it)))
    then = LogFiles(with_copies(held, state), before.metadata, ranks)
    made = next(reversed(entries[0].of(LogMetadata)), before.metadata)
    metadata = _columns(layout, before, made, state, places)
    within = places if metadata is None else ALL  # No other file may need the present columns.
    plan = yield from bring_back(layout, opened, then, within, metadata, job, now, owner)
    yield from _refuse_loaded_again(layout, undone, past, entries[:0:-1], plan.change.returned)
    done = None if places else entries[past.undone_by(version) - version].job
    return LogUndo(version, plan, done)


def _state_before(layout: LogLayout, undone: str, version: int) -> Step[LogState]:
    if not version:
        return LogState()
    try:
        return (yield from open_log(layout, LogDepth.FILES, version - 1)).state
    except SnapshotGoneError as error:
        raise InvalidInputError(
            f"What partitions held before {undone} nobody can tell: entries before version "
            f"{version} were cleaned from the log. Nothing was changed.",
            job=undone,
            remedy=_RELOAD,
        ) from error


def _read(layout: LogLayout, undone: str, versions: range) -> Step[list[LogEntry]]:
    found: list[LogEntry] = []
    for start in range(0, len(versions), _AT_ONCE):
        some = versions[start : start + _AT_ONCE]
        for version, entry in zip(
            some, (yield from read_entries(layout.folder, some)), strict=True
        ):
            if entry is None:
                raise InvalidInputError(
                    f"Whether others have built on {undone} nobody can tell: entry {version} was "
                    "cleaned from the log. Nothing was changed.",
                    job=undone,
                    remedy=_RELOAD,
                )
            found.append(entry)
    return found


def _built_on(undone: str, version: int, entries: list[LogEntry]) -> InvalidInputError:
    """Build the error that names the entries to undo first, newest first.

    :param version: the version of the job's entry.
    """
    named = [
        f"version {it.version} of {f'job {it.job}' if it.job else 'another engine'}"
        for it in entries
    ]
    remedy = "Undo those first, in this order"
    if not all(it.job for it in entries):
        remedy = "Another engine's entry is no job that can be undone"
    if version:
        remedy += (
            "; or restore the partitions as of the version before the job's, which takes all of "
            "them away"
        )
    return InvalidInputError(
        f"Others have changed the same partitions after {undone}: {first_few(named)}. Nothing was "
        "changed.",
        job=undone,
        remedy=f"{remedy}.",
    )


def _refuse_loaded_again(
    layout: LogLayout,
    undone: str,
    past: _Past,
    since: Iterable[LogEntry],
    returned: Iterable[AddFile],
) -> Step[None]:
    """Refuse to bring back rows of a run that has loaded again since, into other partitions: the
    run's rows would be there twice.

    :param since: the entries after the one that is undone, newest first.
    :param returned: the files that would come back.
    """
    # A run that a plan let load only some partitions has kept its rows in the others, so its entry
    # (with "narrows") does not count.
    again = [
        it
        for it in since
        if isinstance(it.ours.get("former"), int)
        and not it.ours.get("narrows")
        and past.in_effect(it.version)
    ]
    versions = (yield from _written_by(layout, returned)) if again else set[str]()
    for entry in again:
        former = entry.ours.get("former")
        while isinstance(former, int):
            if str(former) in versions:
                raise InvalidInputError(
                    f"A run whose rows {undone} has removed has loaded again since, in version "
                    f"{entry.version} of job {entry.job}: it would be there twice. Nothing was "
                    "changed.",
                    job=undone,
                    remedy="Undo that job first; or restore the partitions as of a version.",
                )
            (earlier,) = yield from read_entries(layout.folder, [former])
            former = None if earlier is None else earlier.ours.get("former")


def _written_by(layout: LogLayout, files: Iterable[AddFile]) -> Step[set[str]]:
    """Return the versions of the entries that wrote the rows of files. For rewritten rows these
    include the entries that wrote them before."""
    found, todo = set[str](), {it.tags.get("v") or "" for it in files}
    while todo := {it for it in todo - found if it.isdecimal()}:
        found |= todo
        entries = yield from read_entries(layout.folder, sorted(map(int, todo)))
        removed = [
            remove
            for it in entries
            if it is not None and it.operation in REWRITES
            for remove in it.of(RemoveFile)
        ]
        todo = {it.tags.get("v") or "" for it in removed}
    return found


def _columns(
    layout: LogLayout, before: LogState, made: LogMetadata | None, state: LogState, places: Scope
) -> LogMetadata | None:
    """Return the columns that come back with the files; ``None``: the present ones stay.

    :param made: the columns and properties after the entry that is undone.
    """
    then, now = before.metadata, state.metadata
    assert now is not None
    if then is None or layout.columns_fit(then, now):
        return None
    if any(not places.has(state.partition(it)) for it in state.live.values()):
        # Files that stay need the present columns. The caller then refuses the undoing.
        return None
    assert made is not None
    properties = _properties(then.properties, made.properties, now.properties)
    return layout.restored(replace(then, properties=properties), now)


def _properties(
    then: Mapping[str, str], made: Mapping[str, str], now: Mapping[str, str]
) -> dict[str, str]:
    """Return the present properties without the changes of an entry.

    :param then: the properties before the entry; ``made``: those after it.
    """
    names = {it for it in {*then, *made} if then.get(it) != made.get(it) == now.get(it)}
    kept = {name: it for name, it in now.items() if name not in names}
    return kept | {name: then[name] for name in names if name in then}


# Contents of partitions


@dataclass(frozen=True, eq=False)
class _PastContent:
    """A content of a partition at some time.

    :param version: the version of the entry that made it from ``former``; ``None``: it was there
        before all entries in question.
    """

    version: int | None = None
    former: _PastContent | None = None


class _PartitionPast:
    """The contents of a partition from a version on, entry by entry.

    :ivar steps: by version, the contents before and after an entry that changed rows.
    """

    def __init__(self, held: int) -> None:
        self.now = _PastContent()
        self.steps: dict[int, tuple[_PastContent, _PastContent]] = {}
        self._held = held
        self._known = {held: self.now}

    def change(self, version: int, marks: int, changes_rows: bool) -> None:
        """Record the change of the partition by an entry.

        :param marks: the combined marks of the files that it added and removed.
        :param changes_rows: ``False``: the same rows now lie in other files.
        """
        self._held ^= marks
        made = _PastContent(version, self.now) if changes_rows else self.now
        there = self._known.setdefault(self._held, made)
        if there is not self.now:
            self.steps[version] = self.now, there
            self.now = there


class _Past:
    """The contents of a table's partitions from a version on.

    :ivar places: by path, the partition and the mark of each live file. A copy has the mark of its
        source, since it has the same rows.
    """

    def __init__(self, before: LogState) -> None:
        self.places = {
            it.path: (before.partition(it) or (), _mark(it)) for it in before.live.values()
        }
        self._partitions: dict[Partition, _PartitionPast] = {}
        self._changed: dict[int, set[Partition]] = defaultdict(set)
        self._held: dict[Partition, int] = defaultdict(int)
        for place, mark in self.places.values():
            self._held[place] ^= mark

    def note(self, entry: LogEntry, metadata: LogMetadata) -> None:
        """Record an entry.

        :param metadata: the table's columns after the entry.
        """
        marks: dict[Partition, int] = defaultdict(int)
        changes_rows: dict[Partition, bool] = defaultdict(bool)
        for remove in entry.of(RemoveFile):
            if remove.path in self.places:
                place, mark = self.places.pop(remove.path)
                marks[place] ^= mark
                changes_rows[place] |= remove.changes_data
        for add in entry.of(AddFile):
            if add.path in self.places:
                continue
            place, mark = self.places[add.path] = partition_of(add.values, metadata), _mark(add)
            marks[place] ^= mark
            changes_rows[place] |= add.changes_data
        for place, mark in marks.items():
            if place not in self._partitions:
                self._partitions[place] = _PartitionPast(self._held[place])
            past = self._partitions[place]
            past.change(entry.version, mark, changes_rows[place])
            if entry.version in past.steps:
                self._changed[entry.version].add(place)

    def changed(self, version: int) -> set[Partition]:
        """Return the partitions whose rows an entry has changed."""
        return self._changed[version]

    def in_effect(self, version: int) -> list[Partition]:
        """Return the partitions whose content an entry has made, perhaps with others after it."""
        now = self._contents()
        return [it for it in self.changed(version) if self._built_on(version, it, now) is not None]

    def undone_by(self, version: int) -> int:
        """Return the version of the last entry that removed the effect of an entry. That entry must
        not be in effect any more."""
        found = set[int]()
        for place in self.changed(version):
            for at, (held, holds) in self._partitions[place].steps.items():
                was = self._built_on(version, place, {place: held}) is not None
                if at > version and was and self._built_on(version, place, {place: holds}) is None:
                    found.add(at)
        return max(found)

    def first_to_undo(self, version: int) -> list[int]:
        """Return the versions that must be undone before an entry, in this order."""
        now, found = self._contents(), list[int]()
        while blocking := self._blocking(version, now):
            last = max(blocking)
            if last in found:
                break
            found.append(last)
            undone = [it for it in self.changed(last) if self._built_on(last, it, now) is not None]
            now |= {it: self._partitions[it].steps[last][0] for it in undone}
        return found

    def _contents(self) -> dict[Partition, _PastContent]:
        return {place: it.now for place, it in self._partitions.items()}

    def _blocking(self, version: int, now: Mapping[Partition, _PastContent]) -> set[int]:
        """Return the versions that have built on an entry; also, in other partitions, those that
        have built on one of these."""
        found, todo = set[int](), [version]
        while todo:
            of = todo.pop()
            for place in self.changed(of):
                new = set(self._built_on(of, place, now) or ()) - found
                found |= new
                todo += new
        return found

    def _built_on(
        self, version: int, place: Partition, now: Mapping[Partition, _PastContent]
    ) -> list[int] | None:
        """Return the versions that turned what an entry left in a partition into its content, the
        newest first; ``None``: the content was not made from that."""
        left, content = self._partitions[place].steps[version][1], now[place]
        found: list[int] = []
        while content is not left:
            if content.version is None or content.former is None:
                return None
            found.append(content.version)
            content = content.former
        return found


def _past_of(before: LogState, entries: Iterable[LogEntry]) -> _Past:
    past, metadata = _Past(before), before.metadata
    for entry in entries:
        metadata = next(reversed(entry.of(LogMetadata)), metadata)
        assert metadata is not None
        past.note(entry, metadata)
    return past


def _mark(add: AddFile) -> int:
    """Return a number for a file. The numbers of a partition's files, combined by XOR, identify its
    content."""
    rows = source_of(add) if add.vector is None else f"{source_of(add)} {add.vector}"
    return int.from_bytes(blake2b(rows.encode(), digest_size=16).digest())
