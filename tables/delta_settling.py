"""Settlements of conflicts over partitions of a Delta table, each by an entry that names a winner.

==========================  =====================================================================
the rows of the winner      the entry
==========================  =====================================================================
are what readers see        only names the runs
were removed, and are kept  brings back the partition's former files, and removes its present ones
are lost                    none: refused
==========================  =====================================================================

The entry is bound to the version at which the conflict was found: any change of the partition since
is a conflict. It removes no rows of runs that are not in the conflict.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..committer.commit.settled import SettledPartition
from ..committer.errors import (
    CommitConflictError,
    InvalidInputError,
    OtherJobError,
    SnapshotGoneError,
    TableMismatchError,
    counted,
    first_few,
)
from ..committer.format.layout import TableRoot
from ..committer.format.records.run_conflict import ConflictingRun, RunConflict, SettledBy
from ..committer.format.settling import SettledRuns, Settling
from ..committer.store.requests import Step
from ..committer.upkeep.conflicts.conflict_settling import RERUN_REMEDY
from ..layouts.delta.columns import arrow_schema
from ..layouts.delta.delta_layout import DeltaLayout
from ..log.actions import AddFile, LogMetadata, RemoveFile
from ..log.change import RESTORE, SETTLE, LogBase, LogChange
from ..log.entries import LogEntry
from ..log.opening import LogDepth, OpenedLog, open_log, read_entries
from ..log.replay import LogState, Partition
from ..log.restoring import find_returned
from ..log.scope import ALL, Scope
from ..log.settling import settled_in, settles_of
from .delta_files import log_partition
from .delta_runs import LogRuns, key_of, takes_place
from .delta_upkeep import rival_jobs

#: How many entries are read at once.
_AT_ONCE = 64
#: The name of a run of another engine begins so; the version of its entry follows.
_VERSION = "version "


@dataclass(frozen=True)
class LogSettlementPlan:
    """A plan to settle a conflict.

    :param how: how the conflict is settled.
    :param losers: the keys of the runs whose rows are not visible afterwards.
    :param opened: the state that the plan was made on.
    :param change: the change of the entry; ``None``: ``job`` has settled the conflict in this way
        already.
    """

    how: SettledBy
    losers: tuple[str, ...]
    opened: OpenedLog
    change: LogChange | None
    job: str | None = None


def plan_log_settlement(
    root: TableRoot,
    layout: DeltaLayout,
    conflict: RunConflict,
    winner: ConflictingRun,
    job: str,
    now: int,
    owner: Mapping[str, Any],
) -> Step[LogSettlementPlan]:
    """Plan the entry after which readers see the winner's rows in the partition.

    :param winner: the run that is to stand.
    :param job: the open job that will commit the entry.
    :param now: Unix milliseconds, by the store's clock.
    :raises InvalidInputError: the partition has changed since the conflict was found; or the rows
        are not kept; or rows of runs that are not in the conflict would be removed.
    :raises OtherJobError: an open job writes the partition, or may write it.
    """
    yield from _refuse_log_jobs(layout, conflict, job)
    opened = yield from open_log(layout, LogDepth.WHOLE)
    place, state = _place_of(root, conflict, opened.state), opened.state
    others = {it.key for it in conflict.runs if it.key != winner.key}
    known = settled_in(state).get(place)
    if known is not None and known.runs.stands == winner.key and known.version > conflict.version:
        (entry,) = yield from read_entries(layout.folder, [known.version])
        how = SettledBy.RESTORE if entry and entry.operation == RESTORE else SettledBy.KEPT
        done = entry.job if entry is not None else None
        return LogSettlementPlan(how, known.runs.losers, opened, None, done)
    runs = LogRuns(layout.folder)
    yield from _refuse_changed(runs, conflict, place, state)
    yield from _note_engines(layout, runs, conflict)
    there = [it for it in state.live.values() if state.partition(it) == place]
    present = yield from _content(runs, there, place, state)
    if winner.key in present and not others & present:
        held, former = present, _PastFiles({it.path: it for it in there}, state.metadata)
    else:
        former = yield from _find_kept(layout, runs, conflict, winner, place)
        held = yield from _content(runs, former.files.values(), place, state)
    _refuse_lost_rows(conflict, winner, present - held, RERUN_REMEDY)
    losers = tuple(sorted(others - held))
    change = LogChange(
        job,
        LogBase(conflict.version, state.table_id),
        reads=Scope(frozenset([place])),
        operation=SETTLE,
        settles={place: Settling(SettledRuns(winner.key, losers), conflict.highest_rank(winner))},
        owner=owner,
    )
    removes = frozenset(it.path for it in there) - former.files.keys()
    if not removes and former.files.keys() <= state.live.keys():
        return LogSettlementPlan(SettledBy.KEPT, losers, opened, change)
    _refuse_vectors(conflict, winner, former.files.values())
    _refuse_columns(layout, conflict, winner, former.metadata, state)
    returned, lost = yield from find_returned(layout, state, former.files.values(), now)
    if lost:
        raise InvalidInputError(
            f"The rows of {winner} in {conflict.name} are not kept any more: "
            f"{counted(len(lost), 'file')} of them cannot be brought back, such as {lost[0]}. "
            "Nothing was changed.",
            key=layout.key_of(lost[0], state),
            remedy=f"{RERUN_REMEDY} How long they are kept is the table's property "
            "delta.deletedFileRetentionDuration.",
        )
    restore = replace(change, removes=removes, returned=returned, operation=RESTORE)
    return LogSettlementPlan(SettledBy.RESTORE, losers, opened, restore)


def read_log_settled(
    root: TableRoot, layout: DeltaLayout, seen: Mapping[str, int]
) -> Step[dict[str, SettledPartition]]:
    """Read the settlements of conflicts over partitions, and the jobs that made them.

    :param seen: by partition, the version at which its conflict was found.
    :return: for a conflict that was settled since then, the settlement and its job; for any other
        partition, the job that has changed it since and its version, and an older settlement, if
        any.
    """
    state = (yield from open_log(layout, LogDepth.FILES)).state
    settled, found = settled_in(state), dict[str, SettledPartition]()
    for name, version in seen.items():
        it = settled.get(_place(root, name, state))
        if it is not None and it.version > version:
            (entry,) = yield from read_entries(layout.folder, [it.version])
            job = None if entry is None else entry.job
            found[name] = SettledPartition(it.version, job, it.runs)
    others = {name: version for name, version in seen.items() if name not in found}
    moved = yield from _moved(layout, root, state, others)
    for name, version in others.items():
        last, it = moved.get(name), settled.get(_place(root, name, state))
        runs = None if it is None else it.runs
        job, version = (None, version) if last is None else (last.job, last.version)
        found[name] = SettledPartition(version, job, runs)
    return found


def refuse_moved(
    layout: DeltaLayout, root: TableRoot, state: LogState, planned: Mapping[str, int]
) -> Step[None]:
    """Refuse a job that a plan lets load partitions again, if one of them has changed since the
    plan. Changes after the state are found by the job's commit.

    :param planned: by partition, the version that the plan has seen.
    :raises CommitConflictError: a partition has changed. Nothing was written.
    """
    if moved := (yield from _moved(layout, root, state, planned)):
        named, entry = sorted(moved.items())[0]
        by = f"job {entry.job}" if entry.job else "another engine"
        raise CommitConflictError(
            f"Version {entry.version} of {by} has changed {named} since a plan let this run load "
            "it again. Nothing was written.",
            remedy="Plan again: what is in conflict, or stale, then is another question.",
        )


def check_log_rerun(
    root: TableRoot, layout: DeltaLayout, conflict: RunConflict, winner: ConflictingRun
) -> Step[None]:
    """Check that the winning run may load a partition in conflict again. Changes nothing.

    :raises InvalidInputError: this would remove rows of runs that are not in the conflict.
    :raises OtherJobError: an open job writes the partition, or may write it.
    """
    yield from _refuse_log_jobs(layout, conflict, but="")
    state = (yield from open_log(layout, LogDepth.FILES)).state
    place, runs = _place_of(root, conflict, state), LogRuns(layout.folder)
    yield from _note_engines(layout, runs, conflict)
    there = [it for it in state.live.values() if state.partition(it) == place]
    present = yield from _content(runs, there, place, state)
    remedy = "Clear the run that is to stand by hand, and then those."
    _refuse_lost_rows(conflict, winner, present, remedy)


def _refuse_log_jobs(layout: DeltaLayout, conflict: RunConflict, but: str) -> Step[None]:
    """Check that no open job may write the partition of a conflict. A job that names no partitions
    may write any.

    :param but: a job that does not count.
    :raises OtherJobError: there is such a job.
    """
    found = yield from rival_jobs(layout, [conflict.partition], appends=False, run=None)
    for rival in found:
        if rival.job != but:
            raise OtherJobError(
                f"{rival.job} is at work, and may write {conflict.name}. Nothing was changed.",
                job=rival.job,
                remedy="Settle the conflict when that job has ended. One whose driver has died "
                "ends by recovery.",
            )


@dataclass(frozen=True)
class _PastFiles:
    """The files that a partition had at some time, by path, and the table's columns then."""

    files: dict[str, AddFile] = field(default_factory=dict)
    metadata: LogMetadata | None = None


def _place_of(root: TableRoot, conflict: RunConflict, state: LogState) -> Partition:
    return _place(root, conflict.partition, state)


def _place(root: TableRoot, name: str, state: LogState) -> Partition:
    if state.metadata is None:
        raise InvalidInputError("There is no table any more. Nothing was changed.", table=root.url)
    return log_partition(name, arrow_schema(state.metadata), state.metadata.partition_columns)


def _content(
    runs: LogRuns, files: Iterable[AddFile], place: Partition, state: LogState
) -> Step[frozenset[str]]:
    """Find the keys of the runs whose rows are in files of a partition. Files whose run is unknown,
    and runs whose entries were cleaned, get names that no key has."""
    found = yield from runs.writers(files, place, state)
    known = {key_of(it) for v in found.versions if (it := runs.entries[v]) is not None}
    unknown = {f"an unknown writer of {path}" for path in found.unknown}
    return frozenset({*known, *unknown, *(f"{_VERSION}{it}" for it in found.lost)})


def _moved(
    layout: DeltaLayout, root: TableRoot, state: LogState, seen: Mapping[str, int]
) -> Step[dict[str, LogEntry]]:
    """Find the partitions that have changed since a version, each with its last change.

    :param seen: by partition, this version.
    :raises InvalidInputError: entries since then were cleaned from the log.
    """
    places = {_place(root, name, state): name for name in seen}
    runs, moved = LogRuns(layout.folder), dict[str, LogEntry]()
    since = range(min(seen.values(), default=state.version) + 1, state.version + 1)
    for start in range(0, len(since), _AT_ONCE):
        yield from runs.read(since[start : start + _AT_ONCE])
    for version in since:
        entry = runs.entries[version]
        if entry is None:
            raise InvalidInputError(
                f"Whether {first_few(sorted(seen))} has changed since version {since[0] - 1} "
                f"nobody can tell: entry {version} was cleaned from the log. Nothing was changed.",
                table=root.url,
                remedy="Look for conflicts again, and settle what is there then.",
            )
        changed = _changed(runs, entry, state)
        named = (name for place, name in places.items() if changed.has(place))
        moved |= {name: entry for name in named if version > seen[name]}
    return moved


def _changed(runs: LogRuns, entry: LogEntry, state: LogState) -> Scope:
    """Return the partitions that an entry has changed or settled. These are all partitions if it
    removed files whose partition is unknown."""
    taken = takes_place(entry, state)
    gone = (runs.gone.get(it.path, it) for it in entry.of(RemoveFile) if it.changes_data)
    if taken.all or any(state.partition(it) is None for it in gone):
        return ALL
    named = {*runs.parts(entry, state).changed, *taken.partitions, *settles_of(entry)}
    return Scope(frozenset(named))


def _refuse_changed(
    runs: LogRuns, conflict: RunConflict, place: Partition, state: LogState
) -> Step[None]:
    """Refuse to settle a conflict if its partition has changed since it was found. The settlement's
    entry is bound to the same version.

    :raises InvalidInputError: the partition has changed.
    """
    since = range(conflict.version + 1, state.version + 1)
    for start in range(0, len(since), _AT_ONCE):
        yield from runs.read(since[start : start + _AT_ONCE])
        for version in since[start : start + _AT_ONCE]:
            entry = runs.entries[version]
            if entry is not None and _changed(runs, entry, state).has(place):
                raise InvalidInputError(
                    f"{conflict.name} has changed since the conflict was looked at: version "
                    f"{version} of the table has changed it, and the look saw {conflict.version}. "
                    "Nothing was changed.",
                    remedy="Look for conflicts again, and settle what is there then.",
                )


def _note_engines(layout: DeltaLayout, runs: LogRuns, conflict: RunConflict) -> Step[None]:
    """Read the entries of other engines in the conflict, and record the files that each added and
    removed. The tags of these files do not name their entries."""
    engines = [int(it.job.removeprefix(_VERSION)) for it in conflict.runs if _is_engine(it)]
    yield from runs.read(engines)
    for version in engines:
        entry = runs.entries[version]
        if entry is not None:
            runs.note(entry, (yield from _state_before(layout, version)))


def _state_before(layout: DeltaLayout, version: int) -> Step[LogState]:
    """Read the state before an entry, with its files. If that part of the log was cleaned, or had a
    feature that cannot be read, return an empty state."""
    try:
        if version > 0:
            return (yield from open_log(layout, LogDepth.FILES, version - 1)).state
    except (SnapshotGoneError, TableMismatchError):
        pass
    return LogState()


def _is_engine(run: ConflictingRun) -> bool:
    return run.job.startswith(_VERSION) and not run.gave_way


def _find_kept(
    layout: DeltaLayout,
    runs: LogRuns,
    conflict: RunConflict,
    winner: ConflictingRun,
    place: Partition,
) -> Step[_PastFiles]:
    """Find the files that a partition held when it last had rows of the winner.

    :raises InvalidInputError: the run wrote nothing, or its entry was cleaned from the log.
    """
    if winner.gave_way:
        raise InvalidInputError(
            f"The rows of {winner} in {conflict.name} cannot be brought back: it gave way, and "
            "wrote nothing. Nothing was changed.",
            remedy=RERUN_REMEDY,
        )
    entry = yield from _entry_of(runs, conflict, winner)
    opened = yield from open_log(layout, LogDepth.FILES, entry.version)
    state = opened.state
    there = {it.path: it for it in state.live.values() if state.partition(it) == place}
    kept, metadata = _PastFiles(dict(there), state.metadata), state.metadata
    for version in range(entry.version + 1, conflict.version + 1):
        yield from runs.read([version])
        later = runs.entries[version]
        if later is None:
            break
        metadata = later.of(LogMetadata)[-1] if later.of(LogMetadata) else metadata
        gone = {it.path for it in later.of(RemoveFile)}
        added = {it.path: it for it in later.of(AddFile) if state.partition(it) == place}
        if not (added or gone & there.keys()):
            continue
        there = {**{path: it for path, it in there.items() if path not in gone}, **added}
        if winner.key in (yield from _content(runs, there.values(), place, state)):
            kept = _PastFiles(dict(there), metadata)
    return kept


def _entry_of(runs: LogRuns, conflict: RunConflict, winner: ConflictingRun) -> Step[LogEntry]:
    """Find the entry of the winner's job, at or before the conflict's version.

    :raises InvalidInputError: the entry was cleaned from the log.
    """
    for start in range(conflict.version, -1, -_AT_ONCE):
        some = range(start, max(-1, start - _AT_ONCE), -1)
        yield from runs.read(some)
        for version in some:
            entry = runs.entries[version]
            if entry is not None and winner.job in (entry.job, f"{_VERSION}{version}"):
                return entry
    raise InvalidInputError(
        f"The entry by which {winner} has loaded {conflict.name} was cleaned from the log, so "
        "nobody can tell which rows are its own. Nothing was changed.",
        remedy=RERUN_REMEDY,
    )


def _refuse_lost_rows(
    conflict: RunConflict, winner: ConflictingRun, lost: Collection[str], remedy: str
) -> None:
    """Check that a settlement removes only rows of runs in the conflict.

    :param lost: the runs whose rows would be removed.
    :raises InvalidInputError: rows of other runs would be removed.
    """
    others = sorted(set(lost) - {it.key for it in conflict.runs})
    if others:
        raise InvalidInputError(
            f"{first_few(others)} wrote rows to {conflict.name} that are no part of the conflict: "
            f"they would go, were those of {winner} to stand. Nothing was changed.",
            remedy=remedy,
        )


def _refuse_vectors(
    conflict: RunConflict, winner: ConflictingRun, files: Iterable[AddFile]
) -> None:
    """Refuse to bring back files of which another engine had deleted rows by deletion vectors."""
    if any(it.vector is not None for it in files):
        raise InvalidInputError(
            f"Rows beside those of {winner} in {conflict.name} were deleted by deletion vectors, "
            "which are not supported here: they would come back. Nothing was changed.",
            remedy=RERUN_REMEDY,
        )


def _refuse_columns(
    layout: DeltaLayout,
    conflict: RunConflict,
    winner: ConflictingRun,
    former: LogMetadata | None,
    state: LogState,
) -> None:
    assert state.metadata is not None
    if former is not None and not layout.columns_fit(former, state.metadata):
        raise InvalidInputError(
            f"The rows of {winner} in {conflict.name} have other columns than the table has now. "
            "Nothing was changed.",
            remedy=RERUN_REMEDY,
        )
