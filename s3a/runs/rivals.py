"""Rivals of a try: other runs that write the same partitions, as the ledger knows them.

Hadoop's committers notice nobody, and a replace by one of them takes away whatever lies there by
then. So a try is put on record first, and looks at the others after that: of two at least one sees
the other. An append takes nothing away and holds nothing; a replace holds the partitions that it
names, or all of the table. One whose mode only its application knows may replace what it names.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ...committer.format.job_spec import Mode
from ...committer.format.layout import TableRoot
from ...committer.format.records.partition_ranks import NO_RANKS, PartitionRanks
from ...committer.store.requests import Step
from .ledger import open_tries, tries_since
from .try_record import (
    COMMITTED,
    PATIENCE,
    SUBMITTED,
    UNDONE,
    WRITING,
    WRITTEN,
    StoredTry,
    TryRecord,
)


@dataclass(frozen=True)
class LoadedPartition:
    """What the ledger knows of a partition that runs have loaded.

    :param ranks: how new they are, as of :class:`.partition_ranks.PartitionRanks`.
    :param by: the try that wrote it last.
    """

    ranks: PartitionRanks
    by: TryRecord


def meet(named: Collection[str], folders: Collection[str]) -> bool:
    """Tell whether partitions are among folders, or around or in them; none named: any may be."""
    return not named or any(
        f"{folder}/".startswith(f"{name}/") or f"{name}/".startswith(f"{folder}/")
        for name in named
        for folder in folders
    )


def is_at_work(it: StoredTry) -> bool:
    """Whether a try has not ended, as far as its record says."""
    return it.record.state == SUBMITTED and it.silent_for < PATIENCE


def has_committed(record: TryRecord) -> bool:
    """Whether something of a try is in its table."""
    is_written = any(it.state == WRITTEN for it in record.writes)
    return record.state == COMMITTED or (record.state != UNDONE and is_written)


def replaces(record: TryRecord) -> bool:
    """Whether a try holds partitions: its rows take the place of others'."""
    return record.mode == Mode.REPLACE or (record.mode is None and bool(record.partitions))


def living_rivals(root: TableRoot, mine: TryRecord) -> Step[list[TryRecord]]:
    """Other runs at work on partitions of a try, where one of the two replaces, that opened before
    it or in the same second. One that opens later sees this try. A LIST for each thousand records,
    and a GET for each open one.

    :param mine: on record by now.
    """
    found = yield from open_tries(root)
    return [
        it.record
        for it in found.known
        if is_at_work(it) and it.record.opened_at <= mine.opened_at and _are_rivals(it.record, mine)
    ]


def written_rivals(root: TableRoot, mine: TryRecord) -> Step[list[TryRecord]]:
    """Other runs that wrote partitions of a try since the second in which it opened, where one of
    the two replaces. A LIST for each thousand records, and a GET for each that has changed since.

    :raises RecordDamagedError: one cannot be read.
    """
    later = yield from tries_since(root, mine.opened_at)
    return [it.record for it in later if _has_written(it.record) and _are_rivals(it.record, mine)]


def loaded_partitions(root: TableRoot, mine: TryRecord) -> Step[dict[str, LoadedPartition]]:
    """What other runs have loaded of the partitions that a try names, by these. A LIST for each
    thousand records, and a GET for each.

    :raises RecordDamagedError: one cannot be read.
    """
    every = yield from tries_since(root, 0.0)
    done = [it.record for it in every if it.record.state == COMMITTED]
    done.sort(key=lambda it: (it.report or {}).get("decided_at") or it.opened_at)
    found: dict[str, LoadedPartition] = {}
    for record in done:
        if record.idempotency_key == mine.idempotency_key:
            continue
        for name in mine.partitions:
            if meet(_loaded_by(record), (name,)) and _loaded_by(record):
                before = found[name].ranks if name in found else NO_RANKS
                found[name] = LoadedPartition(before.after(record.rank, replaces(record)), record)
    return found


def said_of(record: TryRecord) -> str:
    """Name the run of a try, for a message."""
    owner = record.owner
    if owner.dag_id is None:
        return f"{owner.application or 'another run'} ({record.uuid})"
    return f"{owner.dag_id}.{owner.task_id} of run {owner.run_id} ({record.uuid})"


def _loaded_by(record: TryRecord) -> tuple[str, ...]:
    entries = (record.report or {}).get("partitions") or ()
    return tuple({*record.partitions, *(it["partition"] for it in entries if it.get("partition"))})


def _has_written(record: TryRecord) -> bool:
    return has_committed(record) or any(it.state == WRITING for it in record.writes)


def _are_rivals(other: TryRecord, mine: TryRecord) -> bool:
    if other.idempotency_key == mine.idempotency_key or not (replaces(other) or replaces(mine)):
        return False
    return not mine.partitions or meet(other.partitions, mine.partitions)
