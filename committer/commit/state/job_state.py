"""State of a job: opened, unpublished, committed, aborted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from ...format.job_spec import NOBODY, JobSpec, Owner, SchemaMode
from ...format.layout import TableRoot
from ...format.records.inputs import UNKNOWN_INPUTS, Inputs
from ...format.records.store_facts import StoreFacts
from ...format.row_changes import ChangeReads, RowChanges
from ...format.run_rank import RunRank, rank_in

if TYPE_CHECKING:
    import pyarrow as pa

    from ...format.parquet.file_writer import Describe
    from ...format.records.head import HeadState
    from ...format.records.table_record import TableRecord
    from ...format.settling import Settling


class JobState(StrEnum):
    """State of a job that this process knows. Unknown: no decision and no open record."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNDECIDED = "undecided"
    UNKNOWN = "unknown"


#: More files than the first number, each of fewer bytes than the second, are reported for a
#: partition, since readers open each file.
_MANY, SMALL = 10, 1024**2


@dataclass(frozen=True)
class PartitionCommit:
    """Changes of a job in one partition.

    :param partition: its path; ``""`` of an unpartitioned table.
    :param version: the partition's version since; each change increases it by one.
    :param files: files added.
    :param rows: rows in these.
    :param bytes: bytes of these.
    :param removed: files removed.
    :param small: of the files added, those below 1 MiB; files that are not on record one by one do
        not count.
    :param row_changes: of a merge, an update or a deletion: its changes of the rows.
    """

    partition: str
    version: int
    files: int
    rows: int
    bytes: int
    removed: int
    small: int = field(default=0, compare=False)  # Advice for the writer right after the job.
    row_changes: RowChanges | None = None


@dataclass(frozen=True)
class Committed:
    """Report of a job that is committed.

    :param job: its id, ``zr1-…``.
    :param table: the table's root, ``s3://bucket/prefix``.
    :param partitions: each that it changed, an emptied one among them.
    :param decided_at: the time of the decision, by the store's clock, Unix seconds.
    :param repeated: nothing was written now: an earlier attempt of the run had committed ``job``.
    :param rewritten: its rows were there before, and were only written again: a compaction. Or it
        settled a conflict of runs, and changed no rows.
    :param change_reads: of a merge, an update or a deletion: how much of the table was read.
    :param retries: requests that got no usable answer and were sent again, counted by the processes
        that report them: the tasks, and the process that commits. If a process has several jobs at
        once, those of the other jobs too. 0 in a report by another process.
    :param narrows: the run's job before, of which this job loaded only some partitions again: a
        plan asked for these (:mod:`.narrowed_run`), or the job left the others out. ``left_out``:
        number of rows of other partitions, which the job did not write.
    :param superseded: the partitions that it left out since newer runs had loaded them, each with
        the job that had written it last.
    """

    job: str
    table: str
    partitions: tuple[PartitionCommit, ...]
    decided_at: float
    repeated: bool = False
    retries: int = 0
    rewritten: bool = False
    change_reads: ChangeReads | None = None
    narrows: str | None = None
    left_out: int = 0
    superseded: Mapping[str, str] = field(default_factory=dict)

    @property
    def version(self) -> str:
        """Version of the job's rows, which distinguishes them from earlier rows of its partitions.

        If the partitions' versions differ, it is the job's id, since one of these versions could be
        one that another partition had before.
        """
        versions = {partition.version for partition in self.partitions}
        return str(versions.pop()) if len(versions) == 1 else self.job

    @property
    def files(self) -> int:
        return sum(p.files for p in self.partitions)

    @property
    def rows(self) -> int:
        return sum(p.rows for p in self.partitions)

    @property
    def bytes(self) -> int:
        return sum(p.bytes for p in self.partitions)

    @property
    def row_changes(self) -> RowChanges | None:
        """Changes of rows by a merge, an update or a deletion; ``None`` for other jobs."""
        return RowChanges.told((it.row_changes for it in self.partitions), self.change_reads)

    @property
    def many_small(self) -> tuple[str, ...]:
        """Partitions to which the job added more than ten files below 1 MiB."""
        return tuple(p.partition for p in self.partitions if p.small > _MANY)


@dataclass(frozen=True)
class UnpublishedJob:
    """Job that is written, and waits to be published or aborted.

    Its rows are visible only to readers that ask for it by its id.

    :param job: its id, ``zr1-…``.
    :param table: the table's root, ``s3://bucket/prefix``.
    :param partitions: those that it will change, if they are known before; at version 0.
    :param opened_at: when it opened, by the store's clock, in Unix seconds.
    :param kept_until: from when on it counts as dead, by the same clock.
    :param owner: who ran it.
    :param run: its idempotency key.
    :param repeated: nothing was written now: an earlier attempt of the run had written ``job``.
    :param retries: as of :class:`Committed`.
    """

    job: str
    table: str
    partitions: tuple[PartitionCommit, ...]
    opened_at: float
    kept_until: float
    owner: Owner = NOBODY
    run: str | None = None
    repeated: bool = False
    retries: int = 0

    @property
    def files(self) -> int:
        return sum(it.files for it in self.partitions)

    @property
    def rows(self) -> int:
        return sum(it.rows for it in self.partitions)

    @property
    def bytes(self) -> int:
        return sum(it.bytes for it in self.partitions)


@dataclass(frozen=True)
class Aborted:
    """Report of a job that is aborted: nothing of it is visible or ever will be.

    :param job: its id.
    :param table: the table's root, ``s3://bucket/prefix``.
    :param uploads: number of its uploads that were aborted now.
    """

    job: str
    table: str
    uploads: int


@dataclass(frozen=True)
class LoggedJob:
    """State of a table's log when a job opened.

    :param version: of the state that it began on; -1: there was no table.
    :param table_id: of the table then.
    :param columns: of the table then, as the log has them; empty: there was no table.
    :param opened_at: when its open record was written, by the store's clock.
    :param data: the prefix of its files, with a slash at its end.
    :param describe: computes the statistics of a file from its footer, as the log has them.
    """

    version: int
    table_id: str | None
    columns: str
    opened_at: float
    data: str
    describe: Describe


@dataclass(frozen=True)
class OpenedJob:
    """An open job. Picklable: Spark carries it from the planner to tasks and to the commit.

    :param schema: the schema of every file: the table's, or what this job makes of it.
    :param partition_by: the table's partition columns, outermost first.
    :param base: ETag of each partition's head when the job opened.
    :param read: the heads that were read then, of partitions that the job certainly changes.
    :param run_base: ETag of the run's head then; ``None`` if there is none.
    :param others: jobs that were open then.
    :param repeat_of: the earlier job of this run whose files are to be replaced, if any.
    :param own_since: the ``run_version`` of the oldest attempt whose files are to be replaced.
    :param narrowed: the only partitions of that job that this one loads again; ``None``: all.
    :param planned: the versions that this job may replace, of partitions that a plan lets it load
        again.
    :param settles: of those, the ones in which this job settles a conflict of runs.
    :param repeated: the earlier job of this run, if nothing is to be written.
    :param unpublished: instead, the earlier job that waits to be published.
    :param opened_at: when it opened, by the store's clock, not after it listed the heads; 0 if that
        is not known.
    :param schema_version: of the table's columns when the job opened.
    :param new_table: the table's future record, if this job's commit is to make the table.
    :param index_behind: whether its commit writes the table's index.
    :param awaited: whether its owner waits for the end of all attempts of its tasks before it
        commits or aborts, so that no attempt needs to check whether the job is over.
    :param log: of a table that is kept in a log; ``None``: the table has heads.
    :param inputs: what its rows were computed from; ``None`` until it commits.
    """

    job: str
    root: TableRoot
    spec: JobSpec
    schema: pa.Schema
    partition_by: tuple[str, ...]
    facts: StoreFacts
    base: Mapping[str, str] = field(default_factory=dict)
    read: Mapping[str, HeadState] = field(default_factory=dict)
    run_base: str | None = None
    others: frozenset[str] = frozenset()
    repeat_of: str | None = None
    own_since: int = 0
    narrowed: frozenset[str] | None = None
    planned: Mapping[str, int] = field(default_factory=dict)
    settles: Mapping[str, Settling] = field(default_factory=dict)
    repeated: Committed | None = None
    unpublished: UnpublishedJob | None = None
    opened_at: float = 0.0
    new_table: TableRecord | None = None
    index_behind: bool = False
    awaited: bool = False
    schema_version: int = 0
    log: LoggedJob | None = None
    inputs: Inputs | None = None

    @property
    def is_repeat(self) -> bool:
        """True if an earlier job of the run has written the rows, so that this one writes none."""
        return self.repeated is not None or self.unpublished is not None

    @property
    def empties_only(self) -> frozenset[str] | None:
        """Partitions that a replace may empty without naming them; ``None``: all.

        They are those that a plan has seen. A job that overwrites the columns may empty all.
        """
        is_bound = self.planned and self.partition_by
        if not is_bound or self.spec.schema_mode is SchemaMode.OVERWRITE:
            return None
        return frozenset(self.planned)

    @property
    def told_inputs(self) -> Inputs:
        """Inputs of the job's rows, and the version of their program, for the commit's record."""
        inputs = self.inputs or UNKNOWN_INPUTS
        if self.spec.code_version is not None and not inputs.code_versions:
            inputs = inputs.made_by(self.spec.code_version)
        return replace(inputs, began=self.opened_at or None) if inputs else inputs

    def rank(self, partition: str) -> RunRank | None:
        """Return the rank of the job's run in a partition.

        :returns: ``None``: the job only rewrites rows that are there.
        """
        return rank_in(self.spec.run_rank, partition, self.job)
