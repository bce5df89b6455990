"""Compaction: small files of a partition written anew as fewer, by an ordinary job; and whose rows
files hold that were written again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from ..commit.snapshot import Snapshot, take_snapshot
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

#: The writer of files that no job of the table wrote.
_NOBODY = ""
#: Jobs that wrote rows first, by the job whose files hold them.
Origins = Mapping[str, frozenset[str]]
#: Bytes of a file that compaction aims at.
TARGET_BYTES = 512 * 1024 * 1024


class CompactAction(StrEnum):
    """What became of a partition. Changed meanwhile: another job did; nothing of it was touched.
    Left: its rows cannot be written again as they are; nothing of it was touched either."""

    WOULD_COMPACT = "would compact"
    COMPACTED = "compacted"
    CHANGED_MEANWHILE = "changed meanwhile"
    LEFT = "left"


@dataclass(frozen=True)
class CompactedPartition:
    """A partition with more files than it needs.

    :param files: how many it has; ``bytes``: theirs.
    :param files_after: how many it was or will be about.
    :param job: the job that compacted it.
    :param reason: why it is left; empty for others.
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
    """What is to be done in one partition, and the state that it was worked out from.

    :param sort_by: columns that its rows are to be sorted by.
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
        """The report of a partition whose rows cannot be written again."""
        return replace(self.report, action=CompactAction.LEFT, reason=str(error))


def _needed(files: Sequence[DataFile], target_bytes: int) -> int:
    return max(1, -(-sum(file.size for file in files) // target_bytes))


def find_compactible(
    context: Context,
    partitions: Collection[str] | None,
    target_bytes: int,
    sort_by: Sequence[str] = (),
) -> Step[list[CompactionPlan]]:
    """The partitions that :meth:`.table.Table.compact` writes anew: to do so costs all of a
    partition's bytes, so it must be worth it. ``partitions`` are as they are stored."""
    table = yield from read_table(context)
    if table.coordination is Coordination.NONE:
        raise InvalidInputError(
            "In a table of coordination=none a compaction could take rows that another job adds "
            "meanwhile. Nothing was changed.",
            remedy="Load the partitions again, with fewer tasks.",
        )
    snapshot = yield from take_snapshot(context, partitions)
    check_order(sort_by, snapshot.schema, snapshot.partition_by)
    by = tuple(sort_by)
    return compactible(snapshot, target_bytes, by)


def compactible(
    snapshot: Snapshot, target_bytes: int, by: tuple[str, ...] = ()
) -> list[CompactionPlan]:
    """The partitions of a state that have at least twice as many files as their bytes need, or are
    not sorted as asked."""
    return [
        CompactionPlan(name, snapshot.of([name]), target_bytes, by)
        for name, files in snapshot.by_partition().items()
        if len(files) >= 2 * _needed(files, target_bytes) or (by and not _is_sorted(files, by))
    ]


def _is_sorted(files: Sequence[DataFile], by: tuple[str, ...]) -> bool:
    """Whether a partition's files are those of one job that sorted it."""
    order = {sort_order(file.summary)[: len(by)] for file in files}
    return order == {by} and len({file.job for file in files}) == 1


def compaction_spec(
    context: Context, plan: CompactionPlan, owner: Owner
) -> Step[tuple[JobSpec, Inputs]]:
    """The job that compacts a partition, as of :func:`rewriting_spec`."""
    files = FileOptions(bytes_per_file=plan.target_bytes, content=content_kept(plan.files))
    return rewriting_spec(context, plan.snapshot, owner=owner, files=files, sorted_by=plan.sort_by)


def rewriting_spec(
    context: Context, state: Snapshot, **policies: Any
) -> Step[tuple[JobSpec, Inputs]]:
    """A job that writes the rows of partitions again, and what they were computed from: it replaces
    the partitions as they were read, so that it is refused where another job has changed one since.
    What else it reads, the decisions of the jobs that wrote the files, does not change.

    :param state: what was read of these partitions alone.
    :param policies: the job's others.
    """
    replacing, inputs = yield from replacing_policies(context, state, state.by_partition())
    return JobSpec(state.schema, **replacing, **policies), inputs


def replacing_policies(
    context: Context, state: Snapshot, partitions: Iterable[str]
) -> Step[tuple[dict[str, Any], Inputs]]:
    """Members of the :class:`.JobSpec` that replaces partitions as they were read, by their own
    rows among others; and what these were computed from. One request for each job that wrote files
    of them: whose rows are written again is on record, so that a later try of such a run does not
    add them once more.

    :param state: what was read of these partitions.
    :raises DamagedError: the decision of a job that wrote files is gone, or cannot be read.
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
    """What files that are written again are known by: as before."""
    by_rows = bool(files) and all(file.content for file in files)
    return Content.ROWS if by_rows else Content.BYTES


def origins_of(context: Context, partition: str, files: Iterable[DataFile]) -> Step[Origins]:
    """Whose rows the files of a partition hold: one request for each job that wrote any.

    :raises DamagedError: the decision of one is gone, or cannot be read.
    """
    return origins_in(partition, (yield from writers_of(context, files)))


def writers_of(context: Context, files: Iterable[DataFile]) -> Step[dict[str, Decided]]:
    """The decisions of the jobs that wrote files.

    :raises DamagedError: one is gone, or cannot be read.
    """
    jobs = sorted({file.job for file in files} - {_NOBODY})
    found = yield from All(tuple(_decision(context, job) for job in jobs))
    return dict(zip(jobs, found, strict=True))


def inputs_in(writers: Mapping[str, Decided], files: Iterable[DataFile]) -> Inputs:
    """What the rows of files were computed from, of which the decisions of all writers are known.
    Whoever writes these rows again takes it over, so that it is there as long as the rows are."""
    jobs = sorted({file.job for file in files})
    return Inputs.all_of(
        writers[job].decision.inputs if job in writers else UNKNOWN_INPUTS for job in jobs
    )


def origins_in(partition: str, writers: Mapping[str, Decided]) -> Origins:
    """Whose rows the files of a partition hold, by the decisions of their writers."""
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
    """Whose rows they hold, all together."""
    return frozenset().union(*(origins[file.job] for file in files))
