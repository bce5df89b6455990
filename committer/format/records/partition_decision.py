"""One partition in a commit decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..row_changes import RowChanges
from ..run_rank import RunRank
from .marks import LEFT_OUT, Count, at_least
from .partition_ranks import NO_RANKS, PartitionRanks, Rank
from .pending_file import PendingFile

#: The base version of a partition that has no head and never will: coordination *none*.
NO_HEAD = -1


@dataclass(frozen=True)
class StoredFile:
    """A file that is there: adopted into a head, or listed for removal.

    :param etag: its ETag when it was listed; a removal is carried out only if it still is.
    """

    key: str
    etag: str
    size: Count


@dataclass(frozen=True)
class Sums:
    """What a job did to one partition, in numbers; ``removed`` counts files."""

    files: Count
    rows: Count
    bytes: Count
    removed: Count


@dataclass(frozen=True)
class PartitionDecision:
    """What a commit decision says of one partition.

    :param base_version: the head's version that this job claimed; :data:`NO_HEAD` in a table of
        coordination *none*.
    :param replace: whether the partition's former content goes.
    :param files: pending files to complete.
    :param adopted: files that were there before the partition had a head; they stay.
    :param removals: files to remove, each only if its ETag is still the listed one.
    :param dropped_job: with ``on_repeat=replace_own``, the attempt before of which files are there
        and go; ``also_dropped``: further ones, where an earlier version of this package has left
        rows of several.
    :param merged: jobs whose rows are in ``files``, written again with those of others.
    :param row_changes: of a job that computed the rows from those that were there: what it did to
        them.
    :param lost: files that were decided and whose loss was accepted; nobody looks for them.
    :param ranks: how new the runs are whose rows the partition holds from then on.
    :param rank: how new the job's own run is there, where that is not the newest of ``ranks``.
    :param opened_version: the version that the partition was at when the job opened, or a later one
        before which nobody knows; ``None``: the base version.
    :param settles: the job settles a conflict of runs over it, as ``ranks`` say.
    :param condensed: in a condensed decision, what its lists came to, which are empty there.
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

    @property
    def run_rank(self) -> RunRank | None:
        """The rank of the job's own run; ``None``: it has none, or the record does not say."""
        return self.ranks.newest if self.rank is None else self.rank

    @property
    def dropped_jobs(self) -> tuple[str, ...]:
        """All jobs whose files go, while those of others stay."""
        return () if self.dropped_job is None else (self.dropped_job, *self.also_dropped)

    @property
    def goes_on(self) -> bool:
        """Whether all that the partition held stays: files are added, and none taken out."""
        return not (self.replace or self.dropped_job)

    @property
    def settles_alone(self) -> bool:
        """Whether the job settles a conflict over the partition by changing none of its rows."""
        return self.settles and self.goes_on and not self.sums.files

    @property
    def leaves_rows(self) -> bool:
        """Tell whether the job left the partition's rows as they were: it wrote them again, as a
        compaction does, or only settled a conflict over them."""
        return self.settles_alone or (bool(self.merged) and self.row_changes is None)

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
