"""Rivals of an attempt: other runs that write the same partitions, as the ledger knows them.

Hadoop's committers do not notice each other, and a replace by one of them removes all that lies in
the partition at that moment. So an attempt first writes its record, and then reads those of the
others: of two attempts, at least one sees the other. An append removes nothing and reserves
nothing. A replace reserves the partitions that it names, or the whole table. If only its
application knows the mode, an attempt may replace the partitions that it names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from ...committer.format.job_spec import Mode
from ...committer.format.layout import UNPARTITIONED, TableRoot
from ...committer.format.records.partition_ranks import NO_RANKS, PartitionRanks
from ...committer.store.requests import Step
from .ledger import open_key, open_tries, tries_since
from .try_record import (
    COMMITTED,
    DEFERRED_PATIENCE,
    OPERATOR_INTERVAL,
    SUBMITTED,
    UNDONE,
    WRITING,
    WRITTEN,
    StoredTry,
    TryRecord,
)


@dataclass(frozen=True)
class LivingRivals:
    """Other runs at work on partitions of an attempt.

    :param known: the records of their attempts.
    :param damage: why the record of one more attempt cannot be read, open or closed lately; ``""``
        if all can.
    """

    known: tuple[TryRecord, ...]
    damage: str


@dataclass(frozen=True)
class LoadedPartition:
    """The loads of a partition by other runs, from the ledger.

    :param ranks: how new the runs are, see :class:`.partition_ranks.PartitionRanks`.
    :param by: the attempt of another run that wrote it last.
    :param number: how many attempts of other runs have written it.
    """

    ranks: PartitionRanks
    by: TryRecord
    number: int = 1


@dataclass(frozen=True)
class Loads:
    """Loads of an attempt's partitions by other runs.

    :param partitions: the loaded partitions by their names.
    :param doubtful: attempts that have begun to write some of them. It is not known whether they
        have committed.
    :param contested: for an attempt that names no partition: the loaded partitions over which a
        conflict of runs was settled. It may load them.
    """

    partitions: Mapping[str, LoadedPartition]
    doubtful: tuple[TryRecord, ...]
    contested: Mapping[str, LoadedPartition] = field(default_factory=dict)


def meet(named: Collection[str], folders: Collection[str]) -> bool:
    """Return whether any of the named partitions contains, is, or lies in any of the folders.

    An empty collection stands for all partitions, so it meets any other.
    """
    return not (named and folders) or any(
        f"{folder}/".startswith(f"{name}/") or f"{name}/".startswith(f"{folder}/")
        for name in named
        for folder in folders
    )


def is_at_work(it: StoredTry) -> bool:
    """Return whether an attempt is still at work, by its record.

    Its application may outlive its task, and still write.
    """
    is_in_hand = it.record.state == SUBMITTED and it.silent_for < it.patience
    return is_in_hand or it.may_be_writing


def has_committed(record: TryRecord) -> bool:
    """Return whether an attempt has committed anything to its table."""
    is_written = bool(record.recovered) or any(it.state == WRITTEN for it in record.writes)
    return record.state == COMMITTED or (record.state != UNDONE and is_written)


def met_others(record: TryRecord) -> str:
    """Return what an attempt's report says about other runs that wrote its partitions meanwhile.

    ``""`` if it met none.
    """
    report = record.report or {}
    return str(report.get("conflict") or report.get("overlapped") or "")


def replaces(record: TryRecord) -> bool:
    """Return whether an attempt's rows replace those of others, so that it reserves partitions."""
    return record.mode == Mode.REPLACE or (record.mode is None and bool(record.partitions))


def written_at(record: TryRecord) -> float:
    """Return when an attempt wrote last, by its record: Unix seconds by the store's clock."""
    ended = max((it.ended_at for it in record.writes if it.state == WRITTEN), default=0.0)
    return (record.report or {}).get("decided_at") or ended or record.opened_at


def in_order_of_writing(committed: Iterable[TryRecord]) -> list[TryRecord]:
    """Sort attempts by when they wrote last.

    The store's times have whole seconds. Within one second, an attempt that met others comes after
    those that did not, and then the order is that of their opening.
    """
    return sorted(committed, key=lambda it: (written_at(it), bool(met_others(it)), it.opened_at))


def living_rivals(root: TableRoot, mine: TryRecord) -> Step[LivingRivals]:
    """Find other runs at work on partitions of an attempt, if one of the two replaces.

    Only runs that opened before the attempt or in the same second count: one that opens later sees
    this attempt. A LIST for each thousand records. A GET for each record that is open, or that was
    closed within the longest time for which an attempt may be silent: this attempt may need it when
    it has committed.

    :param mine: the attempt's record, which is already written.
    """
    found = yield from open_tries(root, mine.opened_at - DEFERRED_PATIENCE)
    known = tuple(
        it.record
        for it in found.known
        if is_at_work(it) and it.record.opened_at <= mine.opened_at and _are_rivals(it.record, mine)
    )
    return LivingRivals(known, found.damage)


def written_rivals(root: TableRoot, mine: TryRecord) -> Step[list[TryRecord]]:
    """Find other runs that wrote an attempt's partitions since it opened, if one of two replaces.

    The second in which it opened counts, too. A LIST for each thousand records, and a GET for each
    that has changed since.

    :raises RecordDamagedError: a record cannot be read.
    """
    later = yield from tries_since(root, mine.opened_at)
    return [
        it.record
        for it in later
        if _has_written(root, it, mine.opened_at) and _are_rivals(it.record, mine)
    ]


def loads_of_others(root: TableRoot, mine: TryRecord) -> Step[Loads]:
    """Find the loads of other runs in the partitions that an attempt names.

    If it names none, the whole destination counts as one partition, with the name of an
    unpartitioned table's. Earlier loads of the attempt's own run count for the ranks, that is for
    how new the present rows are: they may have replaced rows of newer runs. A LIST for each
    thousand records, and a GET for each.

    :raises RecordDamagedError: a record cannot be read.
    """
    every = yield from tries_since(root, 0.0)
    contested = () if mine.partitions else _contested(it.record for it in every)
    named = (*(mine.partitions or (UNPARTITIONED,)), *contested)
    others = [it for it in every if it.record.idempotency_key != mine.idempotency_key]
    done = in_order_of_writing(it.record for it in every if has_committed(it.record))
    ranks: dict[str, PartitionRanks] = {}
    loaded: dict[str, list[TryRecord]] = {}
    for record in done:
        is_own = record.idempotency_key == mine.idempotency_key
        for name in _surely_loaded_of(record, named) if is_own else loaded_of(record, named):
            ranks[name] = _ranks_after(ranks.get(name, NO_RANKS), record, name)
            if not is_own:
                loaded.setdefault(name, []).append(record)
    found = {
        name: LoadedPartition(ranks[name], records[-1], len(records))
        for name, records in loaded.items()
    }
    doubtful = (it.record for it in others if _is_doubtful(root, it))
    return Loads(
        {name: it for name, it in found.items() if name not in contested},
        tuple(it for it in doubtful if meet(it.partitions, mine.partitions)),
        {name: it for name, it in found.items() if name in contested},
    )


def _contested(records: Iterable[TryRecord]) -> tuple[str, ...]:
    """Return the partitions over which a conflict of runs was settled."""
    settled = {name for it in records for name in (*it.settles, *it.kept)}
    return tuple(sorted(settled - {UNPARTITIONED}))


def _ranks_after(before: PartitionRanks, record: TryRecord, partition: str) -> PartitionRanks:
    settling = record.settling_of(partition)
    if settling is not None:
        return before.after_settling(record.rank, replaces(record), settling)
    return before.after(record.rank, replaces(record), record.idempotency_key)


def said_of(record: TryRecord) -> str:
    """Name an attempt and its run, for a message."""
    return f"{called_run(record)} ({record.uuid})"


def called_run(record: TryRecord) -> str:
    """Name the run of an attempt, for a message."""
    return run_of_try(record, "another run")


def run_of_try(record: TryRecord, nobody: str) -> str:
    """Name the run of an attempt, for a message.

    :param nobody: the name to use if the record does not name the run.
    """
    owner = record.owner
    if owner.dag_id is None:
        return owner.application or nobody
    return f"{owner.dag_id}.{owner.task_id} of run {owner.run_id}"


def loaded_of(record: TryRecord, named: Collection[str]) -> list[str]:
    """Pick those of the named partitions that a committed attempt has loaded, or may have.

    These are the ones that its record or its report names; all of them if neither accounts for all
    of its files. The name of an unpartitioned table's partition stands for the whole destination.
    """
    if UNPARTITIONED in named:
        others = [name for name in named if name != UNPARTITIONED]
        return [UNPARTITIONED, *(loaded_of(record, others) if others else ())]
    report = record.report or {}
    entries = [it for it in report.get("partitions") or () if it.get("partition")]
    by_partition = sum(it.get("files") or 0 for it in entries)
    if not record.partitions and record.report and by_partition == report.get("files"):
        loaded = tuple(it["partition"] for it in entries)
        return [name for name in named if loaded and meet(loaded, (name,))]
    loaded = (*record.partitions, *(it["partition"] for it in entries if record.partitions))
    return [name for name in named if meet(loaded, (name,))]


def _surely_loaded_of(record: TryRecord, named: Collection[str]) -> list[str]:
    """Pick those of the named partitions whose rows were surely the attempt's once it had written.

    Its report names them, and no other run was at work there.
    """
    if record.state != COMMITTED or met_others(record):
        return []
    entries = (record.report or {}).get("partitions") or ()
    loaded = {it.get("partition") or UNPARTITIONED for it in entries}
    return [name for name in named if name in loaded]


def _is_doubtful(root: TableRoot, it: StoredTry) -> bool:
    """Return whether an attempt has begun to write and it is not known if it has committed."""
    return _is_writing(root, it) and not has_committed(it.record)


def _is_writing(root: TableRoot, it: StoredTry) -> bool:
    """Return whether an attempt has begun to write and the result is not known.

    Its record is open then. An attempt that recovery has rolled back has a closed record, with the
    writes in the state in which its application had left them.
    """
    record = it.record
    is_open = it.key == open_key(root, record.idempotency_key, record.uuid)
    return is_open and record.state != UNDONE and any(w.state == WRITING for w in record.writes)


def _has_written(root: TableRoot, it: StoredTry, since: float) -> bool:
    """Return whether an attempt has written since a moment.

    The time of the record itself does not show this: when the attempt of a dead worker is settled,
    earlier writes are entered later.
    """
    if _is_writing(root, it):
        return True
    # A write without save() has the time of its operator's last heartbeat.
    return has_committed(it.record) and written_at(it.record) + OPERATOR_INTERVAL >= int(since)


def _are_rivals(other: TryRecord, mine: TryRecord) -> bool:
    if other.idempotency_key == mine.idempotency_key or not (replaces(other) or replaces(mine)):
        return False
    return not mine.partitions or meet(other.partitions, mine.partitions)
