"""Rivals of a try: other runs that write the same partitions, as the ledger knows them.

Hadoop's committers notice nobody, and a replace by one of them takes away whatever lies there by
then. So a try is put on record first, and looks at the others after that: of two at least one sees
the other. An append takes nothing away and holds nothing; a replace holds the partitions that it
names, or all of the table. One whose mode only its application knows may replace what it names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

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
    """Other runs at work on partitions of a try.

    :param known: these.
    :param damage: why the record of another try cannot be read, open or closed lately; ``""`` for
        none.
    """

    known: tuple[TryRecord, ...]
    damage: str


@dataclass(frozen=True)
class LoadedPartition:
    """What the ledger knows of a partition that runs have loaded.

    :param ranks: how new they are, as of :class:`.partition_ranks.PartitionRanks`.
    :param by: the try that wrote it last, of another run.
    :param number: how many tries of other runs have written it.
    """

    ranks: PartitionRanks
    by: TryRecord
    number: int = 1


@dataclass(frozen=True)
class Loads:
    """What other runs have loaded of the partitions of a try.

    :param partitions: by their names.
    :param doubtful: tries that have begun to write some, and of which nobody knows whether they
        have committed.
    """

    partitions: Mapping[str, LoadedPartition]
    doubtful: tuple[TryRecord, ...]


def meet(named: Collection[str], folders: Collection[str]) -> bool:
    """Tell whether partitions are among folders, or around or in them; of either, none named stands
    for any."""
    return not (named and folders) or any(
        f"{folder}/".startswith(f"{name}/") or f"{name}/".startswith(f"{folder}/")
        for name in named
        for folder in folders
    )


def is_at_work(it: StoredTry) -> bool:
    """Tell whether a try has not ended, as far as its record says. Its application may outlive its
    task, and still write."""
    is_in_hand = it.record.state == SUBMITTED and it.silent_for < it.patience
    return is_in_hand or it.may_be_writing


def has_committed(record: TryRecord) -> bool:
    """Tell whether something of a try is in its table."""
    is_written = bool(record.recovered) or any(it.state == WRITTEN for it in record.writes)
    return record.state == COMMITTED or (record.state != UNDONE and is_written)


def met_others(record: TryRecord) -> str:
    """Return what a try has said of others that wrote its partitions while it was at work."""
    report = record.report or {}
    return str(report.get("conflict") or report.get("overlapped") or "")


def replaces(record: TryRecord) -> bool:
    """Tell whether a try holds partitions: its rows take the place of others'."""
    return record.mode == Mode.REPLACE or (record.mode is None and bool(record.partitions))


def written_at(record: TryRecord) -> float:
    """Return when a try wrote last, as far as its record says, by the store's clock."""
    ended = max((it.ended_at for it in record.writes if it.state == WRITTEN), default=0.0)
    return (record.report or {}).get("decided_at") or ended or record.opened_at


def in_order_of_writing(committed: Iterable[TryRecord]) -> list[TryRecord]:
    """Sort tries by when they wrote last. The store's times have whole seconds: of one second, the
    one that says that it met others comes last, and then the one that opened later."""
    return sorted(committed, key=lambda it: (written_at(it), bool(met_others(it)), it.opened_at))


def living_rivals(root: TableRoot, mine: TryRecord) -> Step[LivingRivals]:
    """Find other runs at work on partitions of a try, where one of the two replaces, that opened
    before it or in the same second. One that opens later sees this try. A LIST for each thousand
    records, and a GET for each that is open, or was closed within the time for which a try may be
    silent: what it says may be needed when this one has committed.

    :param mine: on record by now.
    """
    found = yield from open_tries(root, mine.opened_at - DEFERRED_PATIENCE)
    known = tuple(
        it.record
        for it in found.known
        if is_at_work(it) and it.record.opened_at <= mine.opened_at and _are_rivals(it.record, mine)
    )
    return LivingRivals(known, found.damage)


def written_rivals(root: TableRoot, mine: TryRecord) -> Step[list[TryRecord]]:
    """Find other runs that wrote partitions of a try since the second in which it opened, where one
    of the two replaces. A LIST for each thousand records, and a GET for each that has changed
    since.

    :raises RecordDamagedError: one cannot be read.
    """
    later = yield from tries_since(root, mine.opened_at)
    return [
        it.record
        for it in later
        if _has_written(root, it, mine.opened_at) and _are_rivals(it.record, mine)
    ]


def loads_of_others(root: TableRoot, mine: TryRecord) -> Step[Loads]:
    """Find what other runs have loaded of the partitions that a try names, or of all of the
    destination, under the name of an unpartitioned table's, if it names none. What the try's own
    run has loaded before counts for how new the rows are that are there: it may have replaced those
    of newer runs. A LIST for each thousand records, and a GET for each.

    :raises RecordDamagedError: one cannot be read.
    """
    named = mine.partitions or (UNPARTITIONED,)
    every = yield from tries_since(root, 0.0)
    others = [it for it in every if it.record.idempotency_key != mine.idempotency_key]
    done = in_order_of_writing(it.record for it in every if has_committed(it.record))
    ranks: dict[str, PartitionRanks] = {}
    loaded: dict[str, list[TryRecord]] = {}
    for record in done:
        is_own = record.idempotency_key == mine.idempotency_key
        for name in _surely_loaded_of(record, named) if is_own else _loaded_of(record, named):
            ranks[name] = _ranks_after(ranks.get(name, NO_RANKS), record, name)
            if not is_own:
                loaded.setdefault(name, []).append(record)
    found = {
        name: LoadedPartition(ranks[name], records[-1], len(records))
        for name, records in loaded.items()
    }
    doubtful = (it.record for it in others if _is_doubtful(root, it))
    return Loads(found, tuple(it for it in doubtful if meet(it.partitions, mine.partitions)))


def _ranks_after(before: PartitionRanks, record: TryRecord, partition: str) -> PartitionRanks:
    settling = record.settling_of(partition)
    if settling is not None:
        return before.after_settling(record.rank, replaces(record), settling)
    return before.after(record.rank, replaces(record), record.idempotency_key)


def said_of(record: TryRecord) -> str:
    """Name a try and its run, for a message."""
    return f"{called_run(record)} ({record.uuid})"


def called_run(record: TryRecord) -> str:
    """Name the run of a try, for a message."""
    return run_of_try(record, "another run")


def run_of_try(record: TryRecord, nobody: str) -> str:
    """Name the run of a try, for a message.

    :param nobody: the name of a run of which the record says nothing.
    """
    owner = record.owner
    if owner.dag_id is None:
        return owner.application or nobody
    return f"{owner.dag_id}.{owner.task_id} of run {owner.run_id}"


def _loaded_of(record: TryRecord, named: Collection[str]) -> list[str]:
    """Pick the partitions that a committed try has loaded, or may have, of some: those that it
    names and those that its report does; all, where neither names all of its files. The name of an
    unpartitioned table's stands for all of a destination."""
    if UNPARTITIONED in named:
        return [UNPARTITIONED]
    report = record.report or {}
    entries = [it for it in report.get("partitions") or () if it.get("partition")]
    by_partition = sum(it.get("files") or 0 for it in entries)
    if not record.partitions and record.report and by_partition == report.get("files"):
        loaded = tuple(it["partition"] for it in entries)
        return [name for name in named if loaded and meet(loaded, (name,))]
    loaded = (*record.partitions, *(it["partition"] for it in entries if record.partitions))
    return [name for name in named if meet(loaded, (name,))]


def _surely_loaded_of(record: TryRecord, named: Collection[str]) -> list[str]:
    """Pick the partitions of some whose rows are those of a try, once it has written: its report
    names them, and no other run was at work there."""
    if record.state != COMMITTED or met_others(record):
        return []
    entries = (record.report or {}).get("partitions") or ()
    loaded = {it.get("partition") or UNPARTITIONED for it in entries}
    return [name for name in named if name in loaded]


def _is_doubtful(root: TableRoot, it: StoredTry) -> bool:
    """Tell whether a try has begun to write and nobody knows if it has committed."""
    return _is_writing(root, it) and not has_committed(it.record)


def _is_writing(root: TableRoot, it: StoredTry) -> bool:
    """Tell whether a try has begun to write and nobody knows what came of that. One that recovery
    has rolled back is closed, in the state in which its application had left it."""
    record = it.record
    is_open = it.key == open_key(root, record.idempotency_key, record.uuid)
    return is_open and record.state != UNDONE and any(w.state == WRITING for w in record.writes)


def _has_written(root: TableRoot, it: StoredTry, since: float) -> bool:
    """Tell whether a try has written since a moment. A record may change later than that: who
    settles the try of a dead worker enters what it has done before."""
    if _is_writing(root, it):
        return True
    # What no save() wrote has the date of its operator's last heartbeat.
    return has_committed(it.record) and written_at(it.record) + OPERATOR_INTERVAL >= int(since)


def _are_rivals(other: TryRecord, mine: TryRecord) -> bool:
    if other.idempotency_key == mine.idempotency_key or not (replaces(other) or replaces(mine)):
        return False
    return not mine.partitions or meet(other.partitions, mine.partitions)
