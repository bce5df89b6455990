"""Change of one partition in a commit decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..row_changes import RowChanges
from ..run_rank import RunRank
from .marks import LEFT_OUT, Count, JobId, at_least
from .partition_ranks import NO_RANKS, PartitionRanks, Rank
from .pending_file import PendingFile

#: The base version in a table of coordination *none*, whose partitions never have heads.
NO_HEAD = -1


@dataclass(frozen=True)
class StoredFile:
    """A file that was listed: to be adopted into a head, or to be removed.

    :param etag: its ETag when it was listed; it is removed only if the ETag is still the same.
    """

    key: str
    etag: str
    size: Count


@dataclass(frozen=True)
class Sums:
    """Totals of a job's change of one partition; ``removed`` counts files."""

    files: Count
    rows: Count
    bytes: Count
    removed: Count


@dataclass(frozen=True)
class PartitionDecision:
    """The change of one partition in a commit decision.

    :param base_version: the version of the head that this job claimed; :data:`NO_HEAD` in a table
        of coordination *none*.
    :param replace: the partition's former content is removed.
    :param files: pending files to complete.
    :param adopted: files that were there before the partition had a head; they stay.
    :param removals: files to remove, each only if its ETag is still the listed one.
    :param dropped_job: with ``on_repeat=replace_own``, the run's earlier attempt whose files are
        taken out; ``also_dropped``: more such attempts, if an earlier version of this package left
        the rows of several.
    :param merged: jobs whose rows are in ``files``, written again together with those of others.
    :param other_rows: these are others than the partition showed before: a choice among them.
    :param former_job: the job that had moved the partition before one that left its rows as they
        were. Earlier versions of this package do not record it.
    :param row_changes: numbers of changed rows, if the job computed the partition's rows from those
        that were there.
    :param lost: files of the decision whose loss was accepted; no process looks for them.
    :param ranks: the ranks that the partition has after the job.
    :param rank: the rank of the job's own run there, if it is not ``ranks.newest``.
    :param opened_version: the partition's version when the job opened. If the head no longer
        remembers that version, the oldest one that it remembers. ``None``: the base version.
    :param settles: the job settles a conflict of runs over the partition, as ``ranks`` say.
    :param condensed: in a condensed decision, the totals of its lists, which are empty there.
    """

    partition: str
    base_version: Annotated[int, at_least(NO_HEAD)]
    replace: bool
    files: tuple[PendingFile, ...] = ()
    adopted: tuple[StoredFile, ...] = ()
    removals: tuple[StoredFile, ...] = ()
    dropped_job: str | None = None
    lost: Annotated[tuple[PendingFile, ...], LEFT_OUT] = ()
    merged: Annotated[tuple[str, ...], LEFT_OUT] = ()
    condensed: Annotated[Sums | None, LEFT_OUT] = None
    row_changes: Annotated[RowChanges | None, LEFT_OUT] = None
    also_dropped: Annotated[tuple[str, ...], LEFT_OUT] = ()
    ranks: Annotated[PartitionRanks, LEFT_OUT] = NO_RANKS
    rank: Rank = None
    opened_version: Annotated[Count | None, LEFT_OUT] = None
    settles: Annotated[bool, LEFT_OUT] = False
    other_rows: Annotated[bool, LEFT_OUT] = False
    former_job: Annotated[JobId | None, LEFT_OUT] = None

    @property
    def run_rank(self) -> RunRank | None:
        """Rank of the job's own run; ``None``: it is without one, or the record does not say."""
        return self.ranks.newest if self.rank is None else self.rank

    @property
    def dropped_jobs(self) -> tuple[str, ...]:
        """All jobs whose files are taken out while the files of other jobs stay."""
        return () if self.dropped_job is None else (self.dropped_job, *self.also_dropped)

    @property
    def goes_on(self) -> bool:
        """True if all former files of the partition stay: the job only adds files."""
        return not (self.replace or self.dropped_job)

    @property
    def settles_alone(self) -> bool:
        """True if the job settles a conflict over the partition and changes none of its rows."""
        return self.settles and self.goes_on and not self.sums.files

    @property
    def rewrites(self) -> bool:
        """True if the job wrote rows of other jobs again, and none of its own."""
        return bool(self.merged) and self.row_changes is None

    @property
    def leaves_rows(self) -> bool:
        """True if the job left the partition's rows as they were.

        It rewrote them, as a compaction does, or only settled a conflict over them.
        """
        return self.settles_alone or (self.rewrites and not self.other_rows)

    @property
    def weight(self) -> int:
        return len(self.files) + len(self.adopted) + len(self.removals) + len(self.lost)

    @property
    def sums(self) -> Sums:
        return self.condensed or Sums(
            files=len(self.files),
            rows=sum(file.rows for file in self.files),
            bytes=sum(file.size for file in self.files),
            removed=len(self.removals),
        )
