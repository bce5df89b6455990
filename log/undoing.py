"""Undo: partitions become what they were before a job's entry, unless later ones have built on it.

==========================================  ================================================
a partition that the entry has changed      then
==========================================  ================================================
holds what the entry left                   becomes what it was
the same, written again by compactions      becomes what it was
the same, copied by checkpoints             becomes what it was; what was copied stays a copy
holds what later entries have made of it    refused: they are to be undone first
holds what the entry has no part in         stays: it was undone, or restored
held rows of a run that has loaded again    refused: they would be there twice
==========================================  ================================================

A content that comes again is the one that it was before, whoever brings it back. So an entry and
its undoing leave nothing behind, an undoing can be undone, and so can an entry whose undoing was.
The entry is a restore's, of these partitions. Columns stay as they are, if the files fit them; else
they come back with the files, where no others are left that need them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
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
#: Entries that are read at once.
_AT_ONCE = 64


@dataclass(frozen=True)
class LogUndo:
    """A change that undoes a job's entry.

    :param version: of the entry.
    :param undone: the job of the last entry that has taken away what the entry did, where nothing
        is left to undo; ``None``: another engine's.
    """

    version: int
    restore: LogRestore
    undone: str | None = None


def plan_undo(
    layout: LogLayout, job: str, undone: str, version: int, now: int, owner: Mapping[str, Any]
) -> Step[LogUndo]:
    """Plan the undoing of a job; whoever commits it says first what is lost.

    :param job: whose entry it will be.
    :param undone: the job to undo, whose entry has ``version``.
    :param now: milliseconds, by the store's clock.
    :raises InvalidInputError: later entries have built on it, or were cleaned; or its files do not
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
    metadata = _columns(layout, before, state, places)
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

    :param version: of the job's entry.
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
    """Refuse to bring rows of a run back that has loaded again since, into other partitions: it
    would be there twice.

    :param since: the entries after the one that is undone, newest first.
    """
    # A run that a plan let load some partitions alone has left its rows in others.
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
    """The versions of the entries that wrote rows of files, those before a rewriting, too."""
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
    layout: LogLayout, before: LogState, state: LogState, places: Scope
) -> LogMetadata | None:
    """The columns that come back with the files; ``None``: the present ones stay."""
    then, now = before.metadata, state.metadata
    assert now is not None
    if then is None or layout.columns_fit(then, now):
        return None
    if any(not places.has(state.partition(it)) for it in state.live.values()):
        return None  # Files that stay have the present ones: this is refused.
    return layout.restored(then, now)


# What partitions held


@dataclass(frozen=True, eq=False)
class _PastContent:
    """What a partition held at some time.

    :param version: of the entry that made it of ``former``; ``None``: it was there before.
    """

    version: int | None = None
    former: _PastContent | None = None


class _PartitionPast:
    """What a partition held from a version on, entry by entry.

    :ivar steps: what entries made of what, by version.
    """

    def __init__(self, held: int) -> None:
        self.now = _PastContent()
        self.steps: dict[int, tuple[_PastContent, _PastContent]] = {}
        self._held = held
        self._known = {held: self.now}

    def change(self, version: int, marks: int, changes_rows: bool) -> None:
        """Note what an entry has changed.

        :param marks: of the files that it added and removed.
        :param changes_rows: ``False``: the same rows lie in other files.
        """
        self._held ^= marks
        made = _PastContent(version, self.now) if changes_rows else self.now
        there = self._known.setdefault(self._held, made)
        if there is not self.now:
            self.steps[version] = self.now, there
            self.now = there


class _Past:
    """What partitions held from a version on.

    :ivar places: the partition of each live file, by path, and its mark. A copy has its source's:
        it holds the same.
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
        """Note an entry, under the columns that the table has with it."""
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
        """The partitions whose rows an entry has changed."""
        return self._changed[version]

    def in_effect(self, version: int) -> list[Partition]:
        """The partitions that hold what an entry, and perhaps others after it, have made."""
        now = self._contents()
        return [it for it in self.changed(version) if self._built_on(version, it, now) is not None]

    def undone_by(self, version: int) -> int:
        """The last entry that has taken away what an entry, which is not in effect, had done."""
        found = set[int]()
        for place in self.changed(version):
            for at, (held, holds) in self._partitions[place].steps.items():
                was = self._built_on(version, place, {place: held}) is not None
                if at > version and was and self._built_on(version, place, {place: holds}) is None:
                    found.add(at)
        return max(found)

    def first_to_undo(self, version: int) -> list[int]:
        """The versions to undo before an entry can be, in their order."""
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
        """The versions that have built on an entry, or on one of them in another partition."""
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
        """The versions that made a partition's content of what an entry left there, the newest
        first; ``None``: it was not made of that."""
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
    """A number of a file: those of a partition's files, combined, tell its content."""
    return int.from_bytes(blake2b(source_of(add).encode(), digest_size=16).digest())
