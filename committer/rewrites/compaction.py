"""Compaction: small files of a partition written anew as fewer, by an ordinary job."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ..errors import InvalidInputError
from ..job_spec import Coordination, FileOptions, JobSpec, Mode, Owner
from ..protocol.snapshot import Snapshot, take_snapshot
from ..records.data_file import DataFile
from ..s3.requests import All, Step
from ..state.context import Context
from ..state.decide import read_decision
from ..state.found_table import read_table

#: Bytes of a file that compaction aims at.
TARGET_BYTES = 512 * 1024 * 1024


class CompactAction(StrEnum):
    """What became of a partition. Changed meanwhile: another job did; nothing of it was touched."""

    WOULD_COMPACT = "would compact"
    COMPACTED = "compacted"
    CHANGED_MEANWHILE = "changed meanwhile"


@dataclass(frozen=True)
class CompactedPartition:
    """A partition with more files than it needs.

    :param files: how many it has; ``bytes``: theirs.
    :param files_after: how many it was or will be about.
    :param job: the job that compacted it.
    """

    partition: str
    action: CompactAction
    files: int
    bytes: int
    files_after: int
    job: str | None = None


@dataclass(frozen=True)
class CompactionPlan:
    """What is to be done in one partition, and the state that it was worked out from."""

    partition: str
    snapshot: Snapshot
    target_bytes: int

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


def _needed(files: Sequence[DataFile], target_bytes: int) -> int:
    return max(1, -(-sum(file.size for file in files) // target_bytes))


def find_compactible(
    context: Context, partitions: Collection[str] | None, target_bytes: int
) -> Step[list[CompactionPlan]]:
    """The partitions that have at least twice as many files as their bytes need: to write one anew
    costs all of its bytes, so it must be worth it.

    :param partitions: only these, as they are stored; ``None`` for all.
    :param target_bytes: of a file.
    :raises TableNotFoundError: no table of this package.
    :raises InvalidInputError: a table of coordination *none*: nothing would notice a writer beside.
    """
    table = yield from read_table(context)
    if table.coordination is Coordination.NONE:
        raise InvalidInputError(
            "In a table of coordination=none a compaction could take rows that another job adds "
            "meanwhile. Nothing was changed.",
            table=context.root.url,
            remedy="Load the partitions again, with fewer tasks.",
        )
    snapshot: Snapshot = yield from take_snapshot(context, partitions)
    return [
        CompactionPlan(name, _of_one(snapshot, name), target_bytes)
        for name, files in snapshot.by_partition().items()
        if len(files) >= 2 * _needed(files, target_bytes)
    ]


def _of_one(snapshot: Snapshot, partition: str) -> Snapshot:
    files = tuple(file for file in snapshot.files if file.partition == partition)
    epochs = {partition: snapshot.epochs[partition]} if partition in snapshot.epochs else {}
    return Snapshot(
        snapshot.root, snapshot.schema, snapshot.partition_by, files, epochs, (partition,)
    )


def compaction_spec(context: Context, plan: CompactionPlan, owner: Owner) -> Step[JobSpec]:
    """The job that compacts a partition: it replaces the partition as it was read, so that it is
    refused where another job has changed it since."""
    jobs = yield from _merged(context, plan)
    state = plan.snapshot
    return JobSpec(
        state.schema,
        Mode.REPLACE,
        replace_partitions=(plan.partition,) if state.partition_by else (),
        replace_table=not state.partition_by,
        base=state.base,
        merges={plan.partition: jobs},
        owner=owner,
        files=FileOptions(bytes_per_file=plan.target_bytes),
    )


def _merged(context: Context, plan: CompactionPlan) -> Step[tuple[str, ...]]:
    """The jobs whose rows are in the files, also in those of a compaction before."""
    jobs = sorted({file.job for file in plan.files if file.job})
    found = yield All(tuple(read_decision(context, job) for job in jobs))
    before = {
        job
        for decided in found
        if decided is not None
        for change in decided.changes.get(plan.partition, ())
        for job in change.merged
    }
    return tuple(sorted({*jobs, *before}))
