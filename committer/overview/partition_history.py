"""History of a partition: the jobs that changed it, found by following records back in time.

A head names the jobs whose files the partition holds, and the one that moved it last. The names of
the files that a decision removed show which jobs had written them. So each decision leads to
earlier ones, and no other decision need be read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..commit.state.context import Context
from ..commit.state.decide import Decided, read_decision
from ..commit.state.found_table import find_table, no_table
from ..commit.state.heads import read_head
from ..commit.state.partition_files import files_of_head
from ..commit.state.tolerance import or_damage
from ..errors import DamagedError
from ..format.records.data_file import DataFile
from ..format.records.head import HeadState, Slot
from ..format.schema.hive_paths import spelled_as_stored
from ..store.requests import All, Step
from .recent_jobs import PartitionChange, SeenJob, seen_job

#: Decisions that are read for one partition, at the most.
_MOST = 200


@dataclass(frozen=True)
class HistoryEntry:
    """Change of the partition by one job.

    :param version: the partition's since; 0 if the table has no heads.
    :param visible: how many of the files that it wrote the partition still holds.
    """

    job: SeenJob
    change: PartitionChange
    version: int
    visible: int


@dataclass(frozen=True)
class PartitionHistory:
    """A partition's past and present.

    :param version: how many jobs have moved it; 0: none has.
    :param claim: the job about to change it.
    :param files: what it holds, oldest first.
    :param entries: newest first. Missing versions are of jobs that left no files which lead to
        them: they only emptied the partition, or wrote nothing.
    :param damage: why what it holds cannot be read; ``""`` if it can.
    """

    partition: str
    version: int
    claim: str | None
    files: tuple[DataFile, ...]
    entries: tuple[HistoryEntry, ...]
    damage: str = ""


def look_back(
    context: Context, partition: str, recent: Iterable[SeenJob] = ()
) -> Step[PartitionHistory]:
    """Read a partition's history, for :meth:`.table.Table.partition_history`. Changes nothing.

    One request for each job, and a few.

    :param partition: its name, in any spelling.
    :param recent: jobs that need not be read, and may have left no trace in the head.
    """
    found = yield from find_table(context)
    if found is None:
        raise (yield from no_table(context.root))
    context, record = context.of(found.record), found.record
    partition = spelled_as_stored(partition, record.schema, record.partition_by)
    jobs = {job.job: job for job in recent if any(c.partition == partition for c in job.changes)}
    state = yield from or_damage(read_head(context, Slot.partition(context.root, partition)))
    if isinstance(state, DamagedError):
        return PartitionHistory(partition, 0, None, (), _entries(jobs, partition, ()), str(state))
    files = yield from or_damage(files_of_head(context, state))
    damage = str(files) if isinstance(files, DamagedError) else ""
    held: tuple[DataFile, ...] = () if isinstance(files, DamagedError) else files
    yield from _follow(context, partition, _named(state, held, jobs), jobs)
    entries = _entries(jobs, partition, held)
    return PartitionHistory(partition, state.head.version, state.head.claim, held, entries, damage)


def _named(state: HeadState, files: Iterable[DataFile], jobs: Iterable[str]) -> set[str]:
    head = state.head
    named = {head.last_job, head.claim, *head.decisions, *(file.job for file in files), *jobs}
    return {job for job in named if job}


def _follow(
    context: Context, partition: str, named: set[str], jobs: dict[str, SeenJob]
) -> Step[None]:
    """Read the decisions of jobs, then those of the jobs whose files they removed, and so on."""
    asked: set[str] = set()
    while named and len(asked) < _MOST:
        new = sorted(job for job in named - asked if job not in jobs)[-_MOST:]
        asked |= named
        found = yield from All(tuple(or_damage(read_decision(context, job)) for job in new))
        read = [seen_job(it) for it in found if isinstance(it, Decided)]
        jobs |= {job.job: job for job in read if job.changes}
        named = {
            former
            for job in jobs.values()
            for change in job.changes
            if change.partition == partition
            for former in change.removed_jobs
        } - asked


def _entries(
    jobs: dict[str, SeenJob], partition: str, files: Iterable[DataFile]
) -> tuple[HistoryEntry, ...]:
    held = list(files)
    entries = [
        HistoryEntry(job, change, change.base_version + 1, sum(f.job == job.job for f in held))
        for job in jobs.values()
        for change in job.changes
        if change.partition == partition
    ]
    return tuple(sorted(entries, key=lambda it: it.version, reverse=True))
