"""Settled conflicts of runs over partitions of a log, with the runs that won and lost.

=====================================  =============================================================
an entry                               its transaction about a settlement
=====================================  =============================================================
settles a conflict over a partition    has partition, runs and rank in its name
replaces the partition, by another     has only the partition: nothing is settled there
run than the winner
restores files of the partition        the same
any other                              none: the last settlement stands
=====================================  =============================================================

Runs that lost give way under any policy except ``last_wins``, at any later time. This is checked on
the state that an entry is made of, also for appends, whose state has no list of files. So checksum
files name all settlements that stand, besides the newest transactions. Entries of other engines do
not change settlements.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ..committer.errors import RecordDamagedError
from ..committer.format.records.partition_ranks import PartitionRanks
from ..committer.format.run_rank import RunRank, newest_of, rank_from_json, rank_to_json
from ..committer.format.settling import SettledRuns, Settling
from .actions import AppTransaction
from .entries import LogEntry
from .partitions import Partition
from .replay import LogState

#: The prefix of the applications of transactions with settlements.
SETTLED = "zero_rename.settled/"


@dataclass(frozen=True)
class LogSettlement:
    """A settlement that stands.

    :param version: the version of the entry that settled the conflict.
    :param runs: the run that won, and those that lost.
    :param rank: the rank that the settlement gives the partition; ``None``: only its files give it
        ranks.
    """

    version: int
    runs: SettledRuns
    rank: RunRank | None = None

    def ranks(self, there: PartitionRanks) -> PartitionRanks:
        """Return the ranks of the partition.

        :param there: the ranks that its files give.
        """
        if self.rank is None:
            return PartitionRanks(there.newest, there.replaced, self.runs)
        newest, replaced = newest_of(self.rank, there.newest), newest_of(self.rank, there.replaced)
        return PartitionRanks(newest, replaced, self.runs)


def settled_in(state: LogState) -> dict[Partition, LogSettlement]:
    """Return the settlements that stand in a state, by partition. Those of partitions of another
    number of columns are left out: another engine has partitioned the table by other columns since.

    :raises RecordDamagedError: a settlement cannot be read.
    """
    return {
        it.place: it.said
        for it in _last(state).values()
        if it.said is not None and state.has_columns_of(it.place)
    }


def standing(state: LogState) -> list[AppTransaction]:
    """Return the transactions with the settlements that stand in a state."""
    return [state.transactions[app] for app, it in _last(state).items() if it.said is not None]


def lost_in(
    state: LogState, run: str | None, settles: Collection[Partition]
) -> dict[Partition, LogSettlement]:
    """Return the settlements that a run has lost, except in partitions where it settles a conflict
    itself."""
    if run is None:
        return {}
    return {
        place: it
        for place, it in settled_in(state).items()
        if run in it.runs.losers and place not in settles
    }


def settled_transactions(
    state: LogState, settles: Mapping[Partition, Settling], ended: Collection[Partition], now: int
) -> list[AppTransaction]:
    """Return the transactions of an entry that settles conflicts or ends settlements.

    :param ended: the partitions whose settlement it ends.
    """
    names = [_name(place, None) for place in sorted(set(ended) - settles.keys(), key=repr)]
    names += [_name(place, settles[place]) for place in sorted(settles, key=repr)]
    return [AppTransaction(name, state.version + 1, now) for name in names]


def settles_as_json(settles: Mapping[Partition, Settling]) -> list[object]:
    """Return settlements as JSON that :func:`read_settles` reads."""
    return [_members(place, it) for place, it in sorted(settles.items(), key=repr)]


def read_settles(said: object, key: str) -> dict[Partition, Settling]:
    """Read settlements that :func:`settles_as_json` wrote.

    :raises RecordDamagedError: the settlements are invalid.
    """
    try:
        if not isinstance(said, list):
            raise TypeError("no list")
        found = [_read_members(it) for it in said]
        return {place: it for place, it in found if it is not None}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RecordDamagedError(
            f"The settlements of a job cannot be read: {error}. Nothing was committed.",
            key=key,
            field="settles",
        ) from error


def settles_of(entry: LogEntry) -> Mapping[Partition, Settling]:
    """Return the conflicts that an entry settles, by partition."""
    return read_settles(entry.ours.get("settles") or [], f"version {entry.version}")


@dataclass(frozen=True)
class _Last:
    """The last transaction about a partition; ``said`` is ``None`` if it ended a settlement."""

    place: Partition
    said: LogSettlement | None


def _last(state: LogState) -> dict[str, _Last]:
    """Return the last transaction about each partition, by the transaction's application."""
    found: dict[Partition, tuple[int, str, _Last]] = {}
    for app, transaction in state.transactions.items():
        if not app.startswith(SETTLED):
            continue
        place, settling = _read_name(app)
        version = transaction.version
        if place not in found or found[place][0] < version:
            said = None
            if settling is not None:
                said = LogSettlement(version, settling.runs, settling.rank)
            found[place] = version, app, _Last(place, said)
    return {app: it for _, app, it in found.values()}


def _name(place: Partition, settling: Settling | None) -> str:
    members = _members(place, settling)
    return SETTLED + json.dumps(members, separators=(",", ":"), ensure_ascii=False)


def _members(place: Partition, settling: Settling | None) -> list[object]:
    if settling is None:
        return [[*place]]
    rank = None if settling.rank is None else rank_to_json(settling.rank)
    return [[*place], settling.runs.stands, [*settling.runs.losers], rank]


def _read_members(said: object) -> tuple[Partition, Settling | None]:
    if not isinstance(said, list):
        raise TypeError("no list")
    place, *rest = said
    partition = tuple(None if it is None else str(it) for it in place)
    if not rest:
        return partition, None
    stands, losers, rank = rest
    runs = SettledRuns(str(stands), tuple(map(str, losers)))
    return partition, Settling(runs, None if rank is None else rank_from_json(rank))


def _read_name(app: str) -> tuple[Partition, Settling | None]:
    try:
        return _read_members(json.loads(app.removeprefix(SETTLED)))
    except (ValueError, TypeError, RecursionError) as error:
        raise RecordDamagedError(
            f"A transaction of the log does not say which conflict is settled: {app!r}. Nothing "
            "was committed.",
            field="txn.appId",
        ) from error
