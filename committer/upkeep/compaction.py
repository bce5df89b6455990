"""Compaction: an ordinary job rewrites small files of a partition as fewer files. Also the jobs
that first wrote the rows of rewritten files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from ..commit.snapshot import Snapshot, Survey, survey, take_snapshot
from ..commit.state.context import Context
from ..commit.state.decide import Decided, read_decision
from ..commit.state.found_table import read_table
from ..errors import DamagedError, InvalidInputError, ZeroRenameError
from ..format.job_spec import Content, Coordination, FileOptions, JobSpec, Mode, Owner
from ..format.parquet.column_bounds import sort_order
from ..format.parquet.row_order import check_order
from ..format.records.data_file import DataFile
from ..format.records.inputs import UNKNOWN_INPUTS, Inputs
from ..store.requests import All, Step

#: Stands for the job of files that no job of the table wrote.
_NOBODY = ""
#: The jobs that first wrote the rows, by the job whose files hold these rows now.
Origins = Mapping[str, frozenset[str]]
#: Size of a file that compaction aims at, in bytes.
TARGET_BYTES = 512 * 1024 * 1024


class CompactAction(StrEnum):
    """Outcome for one partition. ``CHANGED_MEANWHILE``: another job changed it, so it was not
    compacted. ``LEFT``: its rows cannot be rewritten as they are, so it was not compacted."""

    WOULD_COMPACT = "would compact"
    COMPACTED = "compacted"
    CHANGED_MEANWHILE = "changed meanwhile"
    LEFT = "left"


@dataclass(frozen=True)
class CompactedPartition:
    """A partition with more files than it needs.

    :param files: the number of its files; ``bytes``: their size.
    :param files_after: the number of files after the compaction; an estimate before it.
    :param job: the job that compacted it.
    :param reason: why it cannot be compacted; empty for other actions.
    """

    partition: str
    action: CompactAction
    files: int
    bytes: int
    files_after: int
    job: str | None = None
    reason: str = ""


@dataclass(frozen=True)
class CompactionPlan:
    """Compaction of one partition, with the snapshot that it was planned from.

    :param sort_by: columns by which the rows are to be sorted.
    """

    partition: str
    snapshot: Snapshot
    target_bytes: int
    sort_by: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[DataFile, ...]:
        return self.snapshot.files

    @property
    def report(self) -> CompactedPartition:
        size = sum(file.size for file in self.files)
        return CompactedPartition(
            self.partition,
            CompactAction.WOULD_COMPACT,
            len(self.files),
            size,
            _needed(self.files, self.target_bytes),
        )

    def left(self, error: ZeroRenameError) -> CompactedPartition:
        """Return the report for a partition whose rows cannot be rewritten."""
        return replace(self.report, action=CompactAction.LEFT, reason=str(error))


def _needed(files: Sequence[DataFile], target_bytes: int) -> int:
    return max(1, -(-sum(file.size for file in files) // target_bytes))


def find_compactible(
    context: Context,
    partitions: Collection[str] | None,
    target_bytes: int,
    sort_by: Sequence[str] = (),
) -> Step[tuple[list[CompactionPlan], list[CompactedPartition]]]:
    """Find the partitions that :meth:`.table.Table.compact` rewrites: those where it is worth
    reading and writing all bytes of the partition.

    :param partitions: spelled as they are stored; ``None``: all.
    :returns: a plan for each; and reports of partitions that are left, as they cannot be read.
    :raises InvalidInputError: the table has coordination *none*.
    """
    table = yield from read_table(context)
    if table.coordination is Coordination.NONE:
        raise InvalidInputError(
            "In a table of coordination=none a compaction could take rows that another job adds "
            "meanwhile. Nothing was changed.",
            remedy="Load the partitions again, with fewer tasks.",
        )
    seen = yield from _readable(context, partitions)
    snapshot = seen.snapshot
    check_order(sort_by, snapshot.schema, snapshot.partition_by)
    by = tuple(sort_by)
    left = [
        CompactedPartition(name, CompactAction.LEFT, 0, 0, 0, reason=str(error))
        for name, error in sorted(seen.damaged.items())
    ]
    return compactible(snapshot, target_bytes, by), left


def _readable(context: Context, partitions: Collection[str] | None) -> Step[Survey]:
    """Take a snapshot of the partitions that can be read, with an error for each of the others."""
    try:
        return Survey((yield from take_snapshot(context, partitions)))
    except DamagedError:
        seen = yield from survey(context, partitions)
        if not seen.damaged:
            raise
        readable = tuple(seen.snapshot.by_partition())
        # A survey is not one state whose rows may be read.
        return Survey((yield from take_snapshot(context, readable)), seen.damaged)


def compactible(
    snapshot: Snapshot, target_bytes: int, by: tuple[str, ...] = ()
) -> list[CompactionPlan]:
    """Return plans for the partitions of a snapshot that need compaction: those with at least
    twice as many files as their bytes need, and those that are not sorted as asked.

    :raises InvalidInputError: ``target_bytes`` is less than 1.
    """
    if target_bytes < 1:
        raise InvalidInputError(
            f"Invalid target_bytes={target_bytes!r}: it must be at least 1. Nothing was changed.",
            remedy="Give the approximate size of a file in bytes, or leave it out.",
        )
    return [
        CompactionPlan(name, snapshot.of([name]), target_bytes, by)
        for name, files in snapshot.by_partition().items()
        if len(files) >= 2 * _needed(files, target_bytes) or (by and not _is_sorted(files, by))
    ]


def _is_sorted(files: Sequence[DataFile], by: tuple[str, ...]) -> bool:
    """Return whether all files of a partition come from one job that sorted its rows."""
    order = {sort_order(file.summary)[: len(by)] for file in files}
    return order == {by} and len({file.job for file in files}) == 1


def compaction_spec(
    context: Context, plan: CompactionPlan, owner: Owner
) -> Step[tuple[JobSpec, Inputs]]:
    """Return the job that compacts a partition, and its inputs (:func:`rewriting_spec`)."""
    files = FileOptions(bytes_per_file=plan.target_bytes, content=content_kept(plan.files))
    return rewriting_spec(context, plan.snapshot, owner=owner, files=files, sorted_by=plan.sort_by)


def rewriting_spec(
    context: Context, state: Snapshot, **policies: Any
) -> Step[tuple[JobSpec, Inputs]]:
    """Return a job that rewrites the rows of partitions, and the inputs of these rows.

    The job replaces the partitions as they were read, so it is refused if another job has changed
    one since. It also reads the decisions of the jobs that wrote the files, which do not change.

    :param state: a snapshot of these partitions only.
    :param policies: the job's other policies.
    """
    replacing, inputs = yield from replacing_policies(context, state, state.by_partition())
    return JobSpec(state.schema, **replacing, **policies), inputs


def replacing_policies(
    context: Context, state: Snapshot, partitions: Iterable[str]
) -> Step[tuple[dict[str, Any], Inputs]]:
    """Return the :class:`.JobSpec` fields to replace partitions as they were read, and the inputs.

    The new rows include rows that the partitions hold already. The job records which jobs first
    wrote these rows, so that a later attempt of such a run does not add them once more. This takes
    one request for each job that wrote files of the partitions.

    :param state: a snapshot of these partitions.
    :raises DamagedError: the decision of a job that wrote files is missing or damaged.
    """
    writers = yield from writers_of(context, state.files)
    merges = {
        name: tuple(sorted(all_of(origins_in(name, writers), files)))
        for name, files in state.by_partition().items()
    }
    policies = {
        "mode": Mode.REPLACE,
        "replace_partitions": tuple(sorted(partitions)) if state.partition_by else None,
        "replace_table": not state.partition_by,
        "base": state.base,
        "merges": merges,
    }
    return policies, inputs_in(writers, state.files)


def content_kept(files: Collection[DataFile]) -> Content:
    """Return the kind of content digest that these files have, for the files that replace them."""
    by_rows = bool(files) and all(file.content for file in files)
    return Content.ROWS if by_rows else Content.BYTES


def origins_of(context: Context, partition: str, files: Iterable[DataFile]) -> Step[Origins]:
    """Return the jobs that first wrote the rows of a partition's files: one request for each job
    that wrote any of the files.

    :raises DamagedError: the decision of such a job is missing or damaged.
    """
    return origins_in(partition, (yield from writers_of(context, files)))


def writers_of(context: Context, files: Iterable[DataFile]) -> Step[dict[str, Decided]]:
    """Read the decisions of the jobs that wrote files.

    :raises DamagedError: a decision is missing or damaged.
    """
    jobs = sorted({file.job for file in files} - {_NOBODY})
    found = yield from All(tuple(_decision(context, job) for job in jobs))
    return dict(zip(jobs, found, strict=True))


def inputs_in(writers: Mapping[str, Decided], files: Iterable[DataFile]) -> Inputs:
    """Return what the rows of files were computed from, by the decisions of the files' writers. A
    job that rewrites these rows records it again, so that it is kept as long as the rows are."""
    jobs = sorted({file.job for file in files})
    return Inputs.all_of(
        writers[job].decision.inputs if job in writers else UNKNOWN_INPUTS for job in jobs
    )


def origins_in(partition: str, writers: Mapping[str, Decided]) -> Origins:
    """Return the jobs that first wrote a partition's rows, by the decisions of the writers."""
    named = {
        job: frozenset(name for change in it.changes.get(partition, ()) for name in change.merged)
        for job, it in writers.items()
    }
    return {_NOBODY: frozenset({_NOBODY})} | {
        job: merged or frozenset({job}) for job, merged in named.items()
    }


def _decision(context: Context, job: str) -> Step[Decided]:
    decided = yield from read_decision(context, job)
    if decided is None:
        raise DamagedError(
            "The decision of a job that wrote files is gone, so nobody knows whether it wrote rows "
            "of others again. Nothing was changed.",
            job=job,
            key=context.root.decision_key(job),
            remedy="Restore the decision from a version or backup, or load the partition again "
            "with mode replace.",
        )
    return decided


def all_of(origins: Origins, files: Iterable[DataFile]) -> frozenset[str]:
    """Return all jobs that first wrote rows of the files."""
    return frozenset().union(*(origins[file.job] for file in files))
