"""Runs whose rows lie in files of a Delta table, by the entries of its log.

=============================  =================================================================
a file                         the runs of its rows
=============================  =================================================================
of a job of this package       the run of that job's entry, whose number is in the file's tags
of another engine              the entry that added it, if it was read; otherwise unknown
of an entry that rewrote rows  the runs of the files that the entry removed; for a merge or an
                               update also its own run
=============================  =================================================================
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from ..committer.format.job_spec import NOBODY, OnConflict, Owner
from ..committer.format.records.partition_ranks import NO_RANKS, PartitionRanks
from ..committer.format.records.typed_json import Unfit, from_members
from ..committer.store.requests import Found, Get, Step
from ..committer.upkeep.conflicts.met_runs import RunCommit
from ..log.actions import AddFile, AppTransaction, RemoveFile
from ..log.change import RESTORE, RUN
from ..log.entries import LogEntry, LogFolder
from ..log.job_files import JobFiles, owner_of_report
from ..log.judging import replaced_by
from ..log.log_layout import LogLayout
from ..log.opening import read_entries
from ..log.ranks import emptied_by, newest_in
from ..log.replay import LogState, Partition
from ..log.scope import NONE, Scope
from ..log.settling import settles_of
from .delta_files import rows_of_add, version_of_job

#: How many entries are followed at most to find the writers of rewritten rows.
_MOST = 256
#: Operations of jobs of this package that rewrite rows.
_REWRITES = frozenset({"MERGE", "DELETE", "OPTIMIZE"})


@dataclass(frozen=True)
class EntryParts:
    """The changes of an entry, by partition.

    :param lost: removed files whose partition is unknown.
    :param emptied: the ranks that the entry records for partitions without a file.
    """

    added: dict[Partition, list[AddFile]] = field(default_factory=partial(defaultdict, list))
    removed: dict[Partition, list[RemoveFile]] = field(default_factory=partial(defaultdict, list))
    lost: list[RemoveFile] = field(default_factory=list)
    emptied: Mapping[Partition, PartitionRanks] = field(default_factory=dict)

    @property
    def changed(self) -> set[Partition]:
        """The partitions whose rows the entry changes."""
        both = (*self.added.items(), *self.removed.items())
        return {place for place, files in both if any(it.changes_data for it in files)}


@dataclass(frozen=True)
class Writers:
    """The entries whose runs wrote the rows of files.

    :param versions: the versions of these entries.
    :param lost: versions that files name, but whose entries were cleaned.
    :param unknown: paths of files for which it is not known who added them.
    """

    versions: frozenset[int]
    lost: frozenset[int]
    unknown: frozenset[str]


@dataclass
class LogRuns:
    """The entries of a log that were read, and the files that they added and removed.

    :param entries: by version; ``None`` for an entry that was cleaned.
    :param added: for files of other engines, the version of the entry that added each.
    :param gone: removed files, as the states before had them.
    :param seen: files that these entries have added.
    """

    folder: LogFolder
    entries: dict[int, LogEntry | None] = field(default_factory=dict)
    added: dict[str, int] = field(default_factory=dict)
    gone: dict[str, AddFile] = field(default_factory=dict)
    seen: dict[str, AddFile] = field(default_factory=dict)
    _parts: dict[int, EntryParts] = field(default_factory=dict)

    def note(self, entry: LogEntry, before: LogState) -> None:
        """Record the files that an entry adds and removes.

        :param before: a former state with its files. All entries between it and this entry must
            have been recorded.
        """
        self.entries[entry.version] = entry
        for remove in entry.of(RemoveFile):
            file = self.seen.get(remove.path) or before.live.get(remove.path)
            if file is not None:
                self.gone[remove.path] = file
        for add in entry.of(AddFile):
            self.seen[add.path] = add
            if version_of_job(add) is None:
                self.added[add.path] = entry.version

    def read(self, versions: Iterable[int]) -> Step[None]:
        """Read entries that were not read yet."""
        new = sorted(set(versions) - self.entries.keys())
        found = yield from read_entries(self.folder, new)
        self.entries |= dict(zip(new, found, strict=True))

    def writers(
        self, files: Iterable[AddFile | RemoveFile], place: Partition, state: LogState
    ) -> Step[Writers]:
        """Find the entries whose runs wrote the rows of a partition's files."""
        found, followed = set[int](), set[int]()
        lost, unknown = set[int](), set[str]()
        todo: list[AddFile | RemoveFile] = list(files)
        while todo and len(followed) < _MOST:
            unknown |= {it.path for it in todo if self._version(it) is None}
            versions = {it for file in todo if (it := self._version(file)) is not None} - followed
            yield from self.read(versions)
            followed, todo = followed | versions, []
            for version in sorted(versions):
                entry = self.entries[version]
                if entry is None:
                    lost.add(version)
                elif not writes_again(entry, state):
                    found.add(version)
                else:
                    if any(it.changes_data for it in entry.of(AddFile)):
                        found.add(version)
                    parts = self.parts(entry, state)
                    todo += (*parts.removed.get(place, ()), *parts.lost)
        unknown |= {it.path for it in todo}
        return Writers(frozenset(found), frozenset(lost), frozenset(unknown))

    def _version(self, file: AddFile | RemoveFile) -> int | None:
        tagged = version_of_job(file)
        if tagged is None and file.path in self.gone:
            tagged = version_of_job(self.gone[file.path])
        return self.added.get(file.path) if tagged is None else tagged

    def commits(
        self, versions: Collection[int], place: Partition, state: LogState
    ) -> list[RunCommit]:
        """Return the commits of entries in a partition, the oldest first; entries that were not
        read are left out."""
        found = (self.entries.get(version) for version in sorted(versions))
        return [self.commit(it, place, state) for it in found if it is not None]

    def commit(self, entry: LogEntry, place: Partition, state: LogState) -> RunCommit:
        """Return the commit of an entry in one partition.

        :param state: a state with the columns by which partitions are identified.
        """
        parts = self.parts(entry, state)
        own = [it for it in parts.added.get(place, ()) if _is_own(it, entry)]
        counts = [rows_of_add(it) for it in own]
        base = entry.ours.get("base") if entry.job else entry.info.members.get("readVersion")
        return RunCommit(
            key_of(entry),
            entry.job or f"version {entry.version}",
            entry.written_at,
            owner_of(entry),
            newest_in(own) if own else parts.emptied.get(place, NO_RANKS).newest,
            None if -1 in counts else sum(counts),
            entry.version,
            base if isinstance(base, int) else entry.version - 1,
            takes_place(entry, state).has(place),
            _on_conflict(entry),
            settles=place in settles_of(entry),
        )

    def parts(self, entry: LogEntry, state: LogState) -> EntryParts:
        """Return the changes of an entry by partition."""
        if entry.version not in self._parts:
            self._parts[entry.version] = self._sorted(entry, state)
        return self._parts[entry.version]

    def _sorted(self, entry: LogEntry, state: LogState) -> EntryParts:
        made = EntryParts(emptied=emptied_by(entry))
        for add in entry.of(AddFile):
            if (place := state.partition(add)) is not None:
                made.added[place].append(add)
        for remove in entry.of(RemoveFile):
            place = state.partition(self.gone.get(remove.path, remove))
            if place is None:
                made.lost.append(remove)
            else:
                made.removed[place].append(remove)
        return made


def writes_again(entry: LogEntry, state: LogState) -> bool:
    """Return whether an entry has rewritten rows of files that it removed."""
    if entry.job is not None:
        return rewrites(entry)
    removes = bool(entry.of(RemoveFile)) and bool(entry.of(AddFile))
    return removes and entry.operation != RESTORE and replaced_by(entry, state) == NONE


def rewrites(entry: LogEntry) -> bool:
    """Return whether a job of this package has rewritten rows, by this entry or by the one that it
    repairs."""
    return entry.job is not None and (
        entry.operation in _REWRITES or entry.ours.get("rowChanges") is not None
    )


def takes_place(entry: LogEntry, state: LogState) -> Scope:
    """Return the partitions where an entry has replaced all rows by its own."""
    return NONE if entry.operation == RESTORE else replaced_by(entry, state)


def key_of(entry: LogEntry) -> str:
    """Return the key of an entry's run; if it has none, its job, or else its version."""
    for transaction in entry.of(AppTransaction):
        if entry.job is not None and transaction.app.startswith(RUN):
            return transaction.app.removeprefix(RUN)
    return entry.job or f"version {entry.version}"


def owner_of(entry: LogEntry) -> Owner:
    """Return the owner of an entry's job; for another engine, the engine's name."""
    if entry.job is None:
        engine = str(entry.info.members.get("engineInfo") or "another engine")
        return Owner(application=engine.partition("/")[0].partition(":")[0])
    told = entry.ours.get("owner")
    try:
        return from_members(Owner, told) if isinstance(told, dict) else NOBODY
    except Unfit:
        return NOBODY  # Perhaps written by a later version, which records more.


def owner_in_report(layout: LogLayout, run: str, version: int) -> Step[Owner | None]:
    """Read the owner of a run's last job from the run's report.

    :param version: of the run's last entry.
    :return: ``None``: the report does not have it.
    """
    found = yield from Get(JobFiles(layout.control).run(run))
    owner = owner_of_report(found.body, version) if isinstance(found, Found) else None
    try:
        return None if owner is None else from_members(Owner, dict(owner))
    except Unfit:
        return None  # Perhaps written by a later version, which records more.


def _on_conflict(entry: LogEntry) -> OnConflict:
    told = entry.ours.get("onConflict")
    return OnConflict(told) if told in set(OnConflict) else OnConflict.FAIL


def _is_own(file: AddFile, entry: LogEntry) -> bool:
    return entry.job is None or file.tags.get("job") == entry.job
