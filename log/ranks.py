"""Ranks in a log: how new the runs are that have rows in a partition, for ``newest_run``.

=====================================  =============================================================
a partition                            its ranks
=====================================  =============================================================
has live files                         in their tags: the newest rank of all files; the rank of the
                                       last replace, from the youngest file that names one
has none, and a ranked run emptied it  in a transaction, which has partition and ranks in its name
had none, and then files of other      in that transaction: an append of another engine must not let
engines alone                          a run load that is older than the one that emptied it
=====================================  =============================================================

The files that an entry adds get these ranks:

=====================================  =============================================================
a replace                              its run's rank, as the newest and as that of the last replace
an append                              its run's rank; if a run has emptied the partition, also that
                                       run's
an entry that rewrites rows            the partition's ranks, unchanged
a restore                              none: files come back with their tags, and transactions keep
                                       the ranks that they kept at the restored version
=====================================  =============================================================

Files of other engines have no tags, and a run without a rank is older than any. Ranks are compared
with the state that the entry is made of, not with the entries since the base: the newer run may
have come long before.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ..committer.errors import RecordDamagedError, SupersededRunError
from ..committer.format.records.partition_ranks import NO_RANKS, PartitionRanks
from ..committer.format.run_rank import RunRank, newest_of, rank_from_json, rank_to_json
from .actions import AddFile, AppTransaction
from .entries import LogEntry
from .replay import LogState, Partition
from .scope import Scope
from .settling import lost_in, settled_in

#: The prefix of the applications of transactions with the ranks of partitions without files.
RANKS = "zero_rename.ranks/"
#: The tag of a file that has the ranks of its partition.
TAG = "ranks"


@dataclass(frozen=True)
class LogRanks:
    """The ranks of a change's run.

    :param by_partition: the rank in these partitions; ``None``: the run has no rank there.
    :param other: the rank in all other partitions.
    """

    by_partition: Mapping[Partition, RunRank | None] = field(default_factory=dict)
    other: RunRank | None = None

    def of(self, partition: Partition) -> RunRank | None:
        return self.by_partition.get(partition, self.other)

    def as_json(self) -> object:
        """Return the ranks as JSON that :func:`read_log_ranks` reads."""
        named = [[[*place], _json(rank)] for place, rank in self.by_partition.items()]
        return {"named": named, "other": _json(self.other)}


def read_log_ranks(said: object, key: str) -> LogRanks:
    """Read ranks that :meth:`LogRanks.as_json` wrote.

    :raises RecordDamagedError: the ranks are invalid.
    """
    try:
        if not isinstance(said, dict):
            raise TypeError("no object")
        named = {tuple(place): _rank(rank) for place, rank in said["named"]}
        return LogRanks(named, _rank(said["other"]))
    except (ValueError, TypeError, KeyError) as error:
        raise RecordDamagedError(
            f"The ranks of a job cannot be read: {error}. Nothing was committed.",
            key=key,
            field="ranks",
        ) from error


@dataclass(frozen=True)
class LogSuperseder:
    """The reason why a run gives way in a partition.

    :param job: the job that wrote the partition last; ``""``: unknown.
    :param settled_for: the key of the run that won a settled conflict over the partition; ``None``:
        the run gives way to a newer one.
    """

    job: str
    settled_for: str | None = None


class LogSupersededError(SupersededRunError):
    """A run gives way to newer runs, or to runs that have won settled conflicts.

    :param found: the partitions in which it gives way, each with the reason.
    """

    def __init__(self, job: str, found: Mapping[Partition, LogSuperseder]) -> None:
        super().__init__(
            "Other runs stand in partitions of this one. Nothing was committed.", job=job
        )
        self.found = dict(found)


def ranks_in(state: LogState, scope: Scope) -> dict[Partition, PartitionRanks]:
    """Return the ranks of the partitions of a scope that any run has written.

    :param state: a state with its files and all of its transactions.
    :raises RecordDamagedError: a tag cannot be read.
    """
    found = {place: ranks for place, (_, ranks) in _emptied(state).items() if scope.has(place)}
    files: dict[Partition, list[AddFile]] = defaultdict(list)
    for file in state.live.values():
        place = state.partition(file)
        if place is not None and scope.has(place):
            files[place].append(file)
    tagged = {place: _combined(there) for place, there in files.items()}
    found |= {place: its for place, its in tagged.items() if its != NO_RANKS or place not in found}
    settled = {place: it for place, it in settled_in(state).items() if scope.has(place)}
    return found | {place: it.ranks(found.get(place, NO_RANKS)) for place, it in settled.items()}


def last_jobs(state: LogState, places: Collection[Partition]) -> dict[Partition, str]:
    """Return the job that wrote each partition last; ``""``: no live file names it."""
    last: dict[Partition, AddFile] = {}
    for file in state.files.values() if places and state.files is not None else ():
        place = state.partition(file)
        if place in places and place is not None:
            last[place] = max(last.get(place, file), file, key=_age)
    jobs = {place: it.tags.get("job") for place, it in last.items()}
    return {place: jobs.get(place) or "" for place in places}


def gave_way(
    state: LogState, scope: Scope, ranks: LogRanks, replaced: Scope, run: str | None
) -> dict[Partition, LogSuperseder]:
    """Return the partitions of a scope in which a run gives way to newer ones.

    :param ranks: the run's ranks.
    :param replaced: the partitions that it would replace; it would add to the others.
    :raises InvalidInputError: the ranks are of two kinds.
    """
    there = ranks_in(state, scope)
    found = [
        place
        for place, its in there.items()
        if its.supersede(ranks.of(place), replaced.has(place), run, _where(state, place))
    ]
    return {place: LogSuperseder(job) for place, job in last_jobs(state, found).items()}


def _where(state: LogState, place: Partition) -> str:
    """Return a phrase that names a partition, for an error."""
    columns = () if state.metadata is None else state.metadata.partition_columns
    named = (
        f"{it}={'null' if value is None else value}"
        for it, value in zip(columns, place, strict=True)
    )
    return f"in {'/'.join(named) or 'the table'}"


def lost_to(
    state: LogState, scope: Scope, run: str | None, settles: Collection[Partition] = ()
) -> dict[Partition, LogSuperseder]:
    """Return the partitions of a scope in which a run has lost a settled conflict.

    :param settles: partitions in which the run settles a conflict itself; they do not count.
    """
    lost = {it: said for it, said in lost_in(state, run, settles).items() if scope.has(it)}
    jobs = last_jobs(state, lost)
    return {it: LogSuperseder(jobs[it], said.runs.stands) for it, said in lost.items()}


def is_met(entry: LogEntry, before: LogState, place: Partition, rank: RunRank | None) -> bool:
    """Return whether an entry's run has the given rank in a partition. Then neither run gives way,
    and the conflict test decides."""
    adds = [it for it in entry.of(AddFile) if before.partition(it) == place]
    emptied = emptied_by(entry).get(place, NO_RANKS)
    return rank is not None and rank in (newest_in(adds), emptied.newest)


def newest_in(files: Collection[AddFile]) -> RunRank | None:
    """Return the newest rank in the tags of files; ``None``: they have no ranks."""
    return _combined(files).newest


def emptied_by(entry: LogEntry) -> dict[Partition, PartitionRanks]:
    """Return the ranks in an entry's transactions, by partition: those that it leaves without a
    file."""
    told = (it.app for it in entry.of(AppTransaction) if it.app.startswith(RANKS))
    return dict(map(_read_name, told))


def ranks_said(entry: LogEntry, before: LogState) -> LogRanks:
    """Return the ranks of an entry's run, as the entry's files and transactions have them."""
    files: dict[Partition, list[AddFile]] = defaultdict(list)
    for file in entry.of(AddFile):
        if (place := before.partition(file)) is not None:
            files[place].append(file)
    found = {place: its.newest for place, its in emptied_by(entry).items()}
    return LogRanks(found | {place: newest_in(there) for place, there in files.items()})


def ranks_after(
    state: LogState,
    adds: Iterable[AddFile],
    removed: Collection[AddFile],
    replaced: Scope,
    ranks: LogRanks,
) -> dict[Partition, PartitionRanks]:
    """Return the ranks of the partitions that an entry adds files to, or leaves without files.

    :param state: the state that the entry is made of.
    :param adds: files that it adds; ``removed``: files that it removes.
    :param replaced: the partitions that it replaces.
    :param ranks: the ranks of its run.
    """
    emptied = _emptied(state)
    filled = {place for it in adds if (place := state.partition(it)) is not None}
    lost = {place for it in removed if (place := state.partition(it)) is not None}
    rewritten = Scope(frozenset(place for place in lost if not replaced.has(place)))
    before = ranks_in(state, rewritten) if rewritten else {}
    said: dict[Partition, PartitionRanks] = {}
    every = emptied.keys() if replaced.all else replaced.partitions
    for place in filled | lost | {*every}:
        rank = ranks.of(place)
        if replaced.has(place):
            said[place] = NO_RANKS.after(rank, True)
        elif place in before:
            said[place] = before[place].after(rank, False)
        else:
            its = emptied[place][1] if place in emptied else NO_RANKS
            said[place] = its.after(rank, False)
    bare = {place: replace(its, settled=None) for place, its in said.items()}
    return {place: its for place, its in bare.items() if its != NO_RANKS or place in emptied}


def emptied_transactions(
    state: LogState,
    after: Mapping[Partition, PartitionRanks],
    adds: Collection[AddFile],
    removed: Collection[AddFile],
    replaced: Scope,
    now: int,
    restored: Collection[Partition] = (),
) -> list[AppTransaction]:
    """Return transactions with the ranks of partitions that an entry leaves without a file, and
    with the new ranks of partitions that had no file before.

    :param after: the result of :func:`ranks_after`.
    :param restored: partitions whose former ranks a restore brings back, with a file or without.
    """
    emptied = _emptied(state)
    filled = {state.partition(it) for it in adds}
    renewed = {
        place
        for place in filled.intersection(emptied)
        if place is not None and replaced.has(place) and after[place] != emptied[place][1]
    }
    unfilled = after.keys() - filled
    if unfilled and state.files is not None:
        gone = {it.path for it in removed}
        unfilled -= {state.partition(it) for it in state.live.values() if it.path not in gone}
    names = (_name(place, after[place]) for place in {*unfilled, *renewed, *restored})
    return [AppTransaction(name, state.version + 1, now) for name in sorted(names)]


def tag_of(ranks: PartitionRanks) -> str:
    """Return the tag of the files that an entry adds to a partition with these ranks."""
    return json.dumps([_json(ranks.newest), _json(ranks.replaced)], separators=(",", ":"))


def _combined(files: Collection[AddFile]) -> PartitionRanks:
    """Return the ranks of a partition by the tags of its live files."""
    said = [_read_tag(it) for it in sorted(files, key=_age, reverse=True)]
    newest = [its.newest for its in said if its.newest is not None]
    replaced = (its.replaced for its in said if its.replaced is not None)
    return PartitionRanks(newest_of(*newest) if newest else None, next(replaced, None))


def _age(file: AddFile) -> int:
    version = file.tags.get("v") or ""  # Another engine may write null.
    return int(version) if version.isdecimal() else -1


def _read_tag(file: AddFile) -> PartitionRanks:
    tag = file.tags.get(TAG)
    return NO_RANKS if tag is None else _read(tag, f"add.tags.{TAG}", file.path)


def _read(text: str, where: str, of: str) -> PartitionRanks:
    try:
        newest, replaced = json.loads(text)
        return PartitionRanks(_rank(newest), _rank(replaced))
    except (ValueError, TypeError, RecursionError) as error:
        raise RecordDamagedError(
            f"The ranks of {of} in the log cannot be read: {error}. Nothing was committed.",
            field=where,
            remedy="Load the partition once with on_conflict=last_wins.",
        ) from error


def emptied_again(state: LogState, then: LogState, scope: Scope) -> dict[Partition, PartitionRanks]:
    """Return the ranks that transactions kept in a former state, for partitions with other ranks
    now. A partition without ranks then has ``NO_RANKS``.

    :param then: the former state, with all of its transactions.
    """
    kept = {place: ranks for place, (_, ranks) in _emptied(then).items()}
    now = {place: ranks for place, (_, ranks) in _emptied(state).items()}
    changed = {it for it in {*kept, *now} if kept.get(it, NO_RANKS) != now.get(it, NO_RANKS)}
    return {place: kept.get(place, NO_RANKS) for place in changed if scope.has(place)}


def standing_ranks(state: LogState) -> list[AppTransaction]:
    """Return the transactions with ranks of partitions, the oldest first, without damaged ones.

    Jobs that compare no ranks need them, too: they write them into the tags of files that they add.
    """
    found = [it for app, it in state.transactions.items() if app.startswith(RANKS)]
    last: dict[Partition, tuple[AppTransaction, PartitionRanks]] = {}
    for transaction in sorted(found, key=lambda it: it.version):
        with suppress(RecordDamagedError):
            place, ranks = _read_name(transaction.app)
            last[place] = transaction, ranks
    kept = (transaction for transaction, ranks in last.values() if ranks != NO_RANKS)
    return sorted(kept, key=lambda it: it.version)


def keeps_ranks(state: LogState) -> bool:
    """Return whether transactions of a state keep ranks of any partition."""
    return any(app.startswith(RANKS) for app in state.transactions)


def _emptied(state: LogState) -> dict[Partition, tuple[int, PartitionRanks]]:
    """Return the ranks in transactions by partition, each with the transaction's version; of
    several for one partition the last counts.

    Partitions of another number of columns are left out: they are from before another engine
    partitioned the table by other columns.
    """
    found: dict[Partition, tuple[int, PartitionRanks]] = {}
    for app, transaction in state.transactions.items():
        if app.startswith(RANKS):
            place, ranks = _read_name(app)
            if not state.has_columns_of(place):
                continue
            if place not in found or found[place][0] < transaction.version:
                found[place] = transaction.version, ranks
    return found


def _name(partition: Partition, ranks: PartitionRanks) -> str:
    members = [[*partition], tag_of(ranks)]
    return RANKS + json.dumps(members, separators=(",", ":"), ensure_ascii=False)


def _read_name(app: str) -> tuple[Partition, PartitionRanks]:
    try:
        place, said = json.loads(app.removeprefix(RANKS))
        partition = tuple(None if it is None else str(it) for it in place)
    except (ValueError, TypeError, RecursionError) as error:
        raise RecordDamagedError(
            f"A transaction of the log names no partition: {app!r}. Nothing was committed.",
            field="txn.appId",
        ) from error
    return partition, _read(str(said), "txn.appId", f"partition {partition}")


def _json(rank: RunRank | None) -> object:
    return None if rank is None else rank_to_json(rank)


def _rank(said: object) -> RunRank | None:
    return None if said is None else rank_from_json(said)
