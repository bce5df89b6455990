"""Conflicts of a change with the entries that came since its base.

==============================  ===========================================  ====================
the change                      meets                                        then
==============================  ===========================================  ====================
any                             the entry of its job, by a publisher         committed
a fence of a job                the entry of that job                        not fenced
any                             the fence of its job                         fenced
any                             the transaction of its run                   repeated
new columns, or all is read     ``metaData``                                 conflict
another protocol                ``protocol``                                 conflict
any                             an entry of its own application since        passes
append                          a replace of its partition                   conflict
append                          an append, a compaction, a merge, a delete   passes
replace, ``fail``               any change of rows in its partitions         conflict
replace, ``last_wins``          the same                                     removes these, too
replace or append, newest run   rows of a newer rank, whenever they came     superseded
the same                        rows of the same rank that came since        conflict
its run lost a conflict         its settlement, whenever that came           superseded
``removes``, ``adds``           a removal of the same file                   conflict
``removes``                     a checkpoint that has copied the file        removes the copy
``returned``                    a removal of the file, also by purge         conflict
``forgets``, ``returned``       an entry that brings the file back           conflict
``former``                      a restore, which may bring its rows back     conflict
``reads``                       any change of rows there                     conflict
restore                         other ranks of a partition without a file    conflict
repair                          a restore, a removal of rows by a condition  conflict
==============================  ===========================================  ====================

What is not known (a tombstone without its partition) counts as a conflict. A repair commits rows
that the jobs since have not seen. Some of these may have removed such rows on purpose: the jobs
that removed rows without naming the partitions that they replace. So a repair conflicts with them.
"""

from __future__ import annotations

from ..committer.errors import CommitConflictError, JobFencedError
from .actions import AddFile, LogMetadata, LogProtocol, RemoveFile
from .change import FENCE, REPAIR, RESTORE, RUN, LogChange, Overtaking
from .entries import LogEntry
from .ranks import LogSupersededError, emptied_by, gave_way, is_met, lost_to
from .replay import LogState, Partition
from .scope import ALL, NONE, Scope, read_scope
from .settling import settles_of

#: The parameter of an overwrite by Spark that replaces only the partitions of its rows.
_DYNAMIC = "isDynamicPartitionOverwrite"


class RunRepeated(Exception):
    """Another attempt of this run has committed by an entry, so the run's work is done."""

    def __init__(self, entry: LogEntry) -> None:
        super().__init__(entry.version)
        self.entry = entry


class JobDecided(Exception):
    """The job of this change, or the job that it fences, has committed by an entry of another
    process."""

    def __init__(self, entry: LogEntry) -> None:
        super().__init__(entry.version)
        self.entry = entry


class LogOvertakenError(CommitConflictError):
    """A change conflicts with an entry since its base.

    :param places: the partitions that both concern.
    :param met: the job of that entry; ``None``: another engine wrote it.
    """

    def __init__(
        self, message: str, job: str, places: frozenset[Partition], met: str | None
    ) -> None:
        super().__init__(message, job=job, remedy="Run it again on the present state.")
        self.overtaken = True
        self.places, self.met = places, met


def replaced_by(entry: LogEntry, before: LogState) -> Scope:
    """Return the partitions that an entry replaces as a whole."""
    if entry.job is not None:
        return read_scope(entry.ours.get("replaced"))
    parameters = entry.info.members.get("operationParameters")
    mode = parameters.get("mode") if isinstance(parameters, dict) else None
    if mode != "Overwrite" and "REPLACE" not in entry.operation and entry.operation != RESTORE:
        return NONE
    if isinstance(parameters, dict) and (
        parameters.get("predicate") or parameters.get(_DYNAMIC) in (True, "true")
    ):
        touched = [before.partition(it) for it in entry.changes]
        known = frozenset(it for it in touched if it is not None)
        return Scope(known) if len(known) == len(set(touched)) else ALL
    return ALL


def judge(change: LogChange, before: LogState, entry: LogEntry) -> None:
    """Refuse a change that conflicts with an entry since its base.

    :param before: the state before the entry.
    :raises JobDecided: the entry is that of the change's job, or of a job that it fences.
    :raises JobFencedError: the entry fences the change's job.
    :raises RunRepeated: the entry is that of another attempt of the change's run.
    :raises LogOvertakenError: the entry conflicts with the change.
    """
    if entry.job is not None and entry.job in {change.job, *change.fences}:
        raise JobDecided(entry)
    if entry.transaction(FENCE + change.job):
        raise JobFencedError(
            f"Another process declared the job dead, in version {entry.version}. "
            "It was not committed.",
            job=change.job,
        )
    if change.run is not None and entry.transaction(RUN + change.run):
        raise RunRepeated(entry)
    is_own = entry.job is not None and entry.job in change.own
    if entry.of(LogMetadata) and (change.metadata is not None or (change.reads.all and not is_own)):
        raise _overtaken(change, before, entry, "changed the columns or properties")
    if entry.of(LogProtocol) and change.protocol is not None:
        # The change was built on the former features.
        raise _overtaken(change, before, entry, "changed the table's features")
    if change.former is not None and entry.operation == RESTORE:
        raise _overtaken(
            change, before, entry, "restored a version, which may have rows of this run"
        )
    if change.operation == RESTORE and any(map(change.reads.has, emptied_by(entry))):
        # The files cannot show this, if a partition had none before the entry and has none after.
        raise _overtaken(change, before, entry, "changed the ranks of a partition without a file")
    if change.operation == REPAIR and _removes_by_condition(entry):
        raise _overtaken(change, before, entry, "removed rows, perhaps such as these")
    if change.settles and change.settles.keys() & settles_of(entry).keys():
        raise _overtaken(change, before, entry, "settled the conflict, too")
    removed = {it.path for it in entry.of(RemoveFile)}
    wanted = {*change.removes, *(it.path for it in (*change.returned, *change.adds))}
    if both := sorted(removed & wanted):
        raise _overtaken(change, before, entry, f"removed {both[0]}")
    unnamed = {it.path for it in (*change.returned, *change.forgets)}
    if both := sorted(unnamed & {it.path for it in entry.of(AddFile)}):
        raise _overtaken(change, before, entry, f"added {both[0]}")
    if is_own:
        return  # The application that computed the rows knows its own entries.
    for file in entry.changes:
        partition = before.partition(file)
        if change.reads.has(partition):
            what = f"changed {_place_words(before, partition)}, which was read"
            raise _overtaken(change, before, entry, what)
        replaces = change.overtaking is Overtaking.FAIL and change.replaced.has(partition)
        if replaces:
            raise _overtaken(change, before, entry, f"changed {_place_words(before, partition)}")
    filled = Scope(frozenset(it for a in change.adds if (it := before.partition(a)) is not None))
    replaced = replaced_by(entry, before)
    if change.overtaking is Overtaking.NEWEST_RUN:
        _judge_equals(change, before, entry, filled, replaced)
    if change.changes_data and change.overtaking is Overtaking.FAIL and replaced.meets(filled):
        raise _overtaken(change, before, entry, "replaced a partition that this job adds to")
    if change.reads.meets(replaced) or (
        change.overtaking is Overtaking.FAIL and change.replaced.meets(replaced)
    ):
        raise _overtaken(change, before, entry, "replaced a partition, of which no file was left")


def _removes_by_condition(entry: LogEntry) -> bool:
    """Return whether an entry removed rows without naming partitions: by a condition or a restore.
    It might also have removed rows that it did not see."""
    if entry.operation == RESTORE or entry.ours.get("replacedWhere"):
        return True
    removes = any(it.changes_data for it in entry.of(RemoveFile))
    return removes and not (entry.job is not None and entry.ours.get("replaced"))


def _judge_equals(
    change: LogChange, before: LogState, entry: LogEntry, filled: Scope, replaced: Scope
) -> None:
    """Refuse a run that conflicts with a run of the same rank, since neither of them gives way.

    :param filled: the partitions that the change adds to; ``replaced``: those that the entry
        replaces.
    """
    named = {before.partition(it) for it in entry.changes} | replaced.partitions
    for place in named:
        meets = change.replaced.has(place) or (filled.has(place) and replaced.has(place))
        if place is not None and meets and is_met(entry, before, place, change.ranks.of(place)):
            what = f"changed {_place_words(before, place)} for a run as new as this"
            raise _overtaken(change, before, entry, what)


def judge_settled(change: LogChange, state: LogState) -> None:
    """Refuse a run that has lost a settled conflict over a partition that it touches. The age of
    the settlement does not matter.

    :raises LogSupersededError: the run gives way; the error names the partitions.
    """
    if change.overtaking is Overtaking.LAST_WINS:
        return
    touched = change.touched(state)
    if touched and (found := lost_to(state, touched, change.run, change.settles)):
        raise LogSupersededError(change.job, found)


def judge_ranks(change: LogChange, state: LogState) -> None:
    """Refuse a run under ``newest_run`` if a partition that it touches has rows of a newer run.

    The state decides this, not the entries since the base: the newer run may have come long before.

    :raises LogSupersededError: the run gives way; the error names the partitions.
    :raises InvalidInputError: the ranks are of two kinds.
    """
    if change.overtaking is not Overtaking.NEWEST_RUN:
        return
    found = gave_way(state, change.touched(state), change.ranks, change.replaced, change.run)
    if found := {place: it for place, it in found.items() if place not in change.settles}:
        raise LogSupersededError(change.job, found)


def _place_words(state: LogState, partition: Partition | None) -> str:
    """Return the words for a partition, for one that is not known, or for an unpartitioned
    table."""
    if partition is None or state.metadata is None:
        return "rows of a partition that is not known"
    columns = state.metadata.partition_columns
    values = zip(columns, ("null" if it is None else it for it in partition), strict=True)
    return f"partition {'/'.join(map('='.join, values))}" if columns else "the table"


def _overtaken(
    change: LogChange, before: LogState, entry: LogEntry, what: str
) -> LogOvertakenError:
    by = f"job {entry.job}" if entry.job else "another engine"
    return LogOvertakenError(
        f"Version {entry.version} of {by} {what}. This job was not committed.",
        change.job,
        _met_in(change, before, entry),
        entry.job,
    )


def _met_in(change: LogChange, before: LogState, entry: LogEntry) -> frozenset[Partition]:
    """Return the partitions that both a change and an entry concern."""
    filled = {before.partition(it) for it in (*change.adds, *change.returned)}
    named = {before.partition(it) for it in entry.changes} | replaced_by(entry, before).partitions
    return frozenset(
        it
        for it in named
        if it is not None and (it in filled or change.reads.has(it) or change.replaced.has(it))
    )
