"""Settlement of a conflict by a record in the partition, if readers see the winner's rows already.

A table of directories keeps no other rows, so it cannot bring any back. The job writes no row. It
is refused if the partition has changed since the conflict was found."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import pyarrow as pa

from ...commit.state.context import Context
from ...commit.state.decide import Decided, read_decision
from ...commit.state.found_table import FoundTable, find_table, read_table
from ...commit.state.heads import read_head
from ...commit.state.open_jobs import OpenEntry, list_open, read_open
from ...commit.state.partition_files import files_of_head
from ...errors import InvalidInputError, OtherJobError, first_few
from ...format.job_spec import JobSpec, Owner, SuccessMarkers
from ...format.layout import UNPARTITIONED
from ...format.read_base import ReadBase
from ...format.records.data_file import DataFile
from ...format.records.head import HeadState, Slot
from ...format.records.partition_ranks import SettledRuns, Settling
from ...format.records.run_conflict import ConflictingRun, RunConflict
from ...format.schema.hive_paths import spelled_as_stored
from ...store.requests import All, Step

#: Advice in an error about rows that cannot be brought back.
RERUN_REMEDY = "Let the run that is to stand load the partition again."


@dataclass(frozen=True)
class SettlementPlan:
    """A settlement of a conflict, which a job is to record.

    :param losers: the keys of the runs whose rows are not visible.
    :param version: the version that the partition must have; ``schema`` and ``partition_by`` are
        those of the table.
    """

    url: str
    schema: pa.Schema
    partition_by: tuple[str, ...]
    losers: tuple[str, ...]
    version: int

    def spec(self, conflict: RunConflict, winner: ConflictingRun, owner: Owner) -> JobSpec:
        """Return the job that records in the partition which run stands."""
        name, runs = conflict.partition, SettledRuns(winner.key, self.losers)
        return JobSpec(
            self.schema,
            only_partitions=(name,) if self.partition_by else None,
            base=ReadBase(self.url, {name: self.version}, whole=False),
            settles={name: Settling(runs, conflict.highest_rank(winner))},
            # The present markers stay right: the files and their jobs do not change.
            success_markers=SuccessMarkers.NONE,
            owner=owner,
        )


def plan_settlement(
    context: Context, conflict: RunConflict, winner: ConflictingRun
) -> Step[SettlementPlan]:
    """Plan a settlement after checking that readers see the winner's rows. Changes nothing.

    :raises InvalidInputError: they do not, or they also see rows of other runs in the conflict; or
        the partition has changed since the conflict was found.
    :raises OtherJobError: an open job writes the partition, or may write it.
    """
    name = conflict.partition
    table = yield from read_table(context)
    context = context.of(table)
    yield from refuse_open_jobs(context, name)
    state = yield from read_head(context, Slot.partition(context.root, name))
    if state.head.version != conflict.version:
        raise InvalidInputError(
            f"{conflict.name} has changed since the conflict was looked at: it is at version "
            f"{state.head.version}, and was at {conflict.version}. Nothing was changed.",
            key=state.slot.key,
            remedy="Look for conflicts again, and settle what is there then.",
        )
    now = yield from _content(context, state)
    others = {it.key for it in conflict.runs if it.key != winner.key}
    if not now.is_of(winner, state.head.last_job) or others & now.runs:
        why = (
            "it gave way, and wrote nothing"
            if winner.gave_way
            else "a table of directories deletes what a replace takes the place of"
        )
        raise InvalidInputError(
            f"The rows of {winner} in {conflict.name} cannot be brought back: {why}. Nothing "
            "was changed.",
            remedy=RERUN_REMEDY,
        )
    return SettlementPlan(
        context.root.url,
        table.schema,
        table.partition_by,
        tuple(sorted(others)),
        state.head.version,
    )


def check_rerun(context: Context, conflict: RunConflict, winner: ConflictingRun) -> Step[None]:
    """Check that the winning run may load a partition again. Changes nothing.

    :raises InvalidInputError: this would remove rows of runs that are not in the conflict.
    :raises OtherJobError: an open job writes the partition, or may write it.
    """
    name = conflict.partition
    context = context.of((yield from read_table(context)))
    yield from refuse_open_jobs(context, name)
    now = yield from _content(
        context, (yield from read_head(context, Slot.partition(context.root, name)))
    )
    others = sorted(now.runs - {it.key for it in conflict.runs})
    if others:
        raise InvalidInputError(
            f"{first_few(others)} wrote rows to {conflict.name} that are no part of the conflict: "
            "they would go, too. Nothing was changed.",
            remedy="Clear the run that is to stand by hand, and then those.",
        )


def refuse_open_jobs(context: Context, partition: str, but: str | None = None) -> Step[None]:
    """Check that no open, undecided job may write a partition. A job that names no partitions may
    write any.

    :param but: the key of a run whose jobs do not count.
    :raises OtherJobError: there is such a job.
    """
    jobs = yield from list_open(context)
    found = yield from All(tuple(read_open(context, job) for job in sorted(jobs)))
    table = (yield from find_table(context)) if found else None
    for entry in found:
        if entry is None or (entry.record and but and entry.record.idempotency_key == but):
            continue
        if _may_write(entry, partition, table):
            if (yield from read_decision(context, entry.job)) is not None:
                continue
            raise OtherJobError(
                f"{entry.job} is at work, and may write {_in_words(partition)}. Nothing was "
                "changed.",
                job=entry.job,
                remedy="Settle the conflict when that job has ended. One whose driver has died "
                f"ends by recovery: zero-rename recover {context.root.url} --apply",
            )


def _may_write(entry: OpenEntry, partition: str, table: FoundTable | None) -> bool:
    record = entry.record
    if record is None or not record.partitions:
        return True
    if table is None:
        return partition in record.partitions
    shape = table.record.schema, table.record.partition_by
    return partition in {spelled_as_stored(name, *shape) for name in record.partitions}


def _in_words(partition: str) -> str:
    return "the table" if partition == UNPARTITIONED else partition


@dataclass(frozen=True)
class _PresentRows:
    """The files of a partition, and the keys of the runs whose rows they have."""

    files: tuple[DataFile, ...]
    runs: frozenset[str]

    def is_of(self, run: ConflictingRun, job: str | None) -> bool:
        """Return whether the partition has rows of a run, or was emptied by it.

        :param job: the job that changed the partition last.
        """
        return run.key in self.runs or (not self.files and run.job == job)


def _content(context: Context, state: HeadState) -> Step[_PresentRows]:
    files = yield from files_of_head(context, state)
    jobs = {it.job for it in files if it.job}
    writers = yield from _decisions(context, jobs)
    name = state.slot.name
    merged = {
        job
        for it in writers.values()
        for change in it.changes.get(name, ())
        for job in change.merged
        if job
    }
    origins = {
        job
        for job, it in writers.items()
        if not any(change.merged for change in it.changes.get(name, ()))
    } | merged
    found = writers | (yield from _decisions(context, merged - writers.keys()))
    keys = (found[job].decision.idempotency_key or job for job in origins if job in found)
    return _PresentRows(files, frozenset(keys))


def _decisions(context: Context, jobs: Collection[str]) -> Step[dict[str, Decided]]:
    names = sorted(jobs)
    found = yield from All(tuple(read_decision(context, job) for job in names))
    return {job: it for job, it in zip(names, found, strict=True) if it is not None}
