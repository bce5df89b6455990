"""Ranks of a partition: of the newest run that has rows there, and of the last to replace it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

from ..run_rank import RunRank, RunRanks, newest_of, rank_from_json, rank_to_json
from ..settling import SettledRuns, Settling
from .marks import LEFT_OUT, Converted


def _write(rank: RunRank | None) -> list[Any] | None:
    return None if rank is None else rank_to_json(rank)


def _read(said: Any) -> RunRank | None:
    return None if said is None else rank_from_json(said)


def _write_all(ranks: RunRanks | None) -> str | None:
    return None if ranks is None else str(ranks)


def _read_all(said: Any) -> RunRanks | None:
    return None if said is None else RunRanks.parse(str(said))


#: A rank in a record, if there is one.
Rank = Annotated[RunRank | None, LEFT_OUT, Converted(_write, _read)]
#: Ranks by partition in a record, if there are any.
Ranks = Annotated[RunRanks | None, LEFT_OUT, Converted(_write_all, _read_all)]


@dataclass(frozen=True)
class PartitionRanks:
    """Ranks of the runs that have rows in a partition.

    :param newest: the rank of the newest one; ``None``: of no run that has one.
    :param replaced: the rank of the run that has replaced it last; ``None``: none has.
    :param settled: the runs of the last conflict over it that was settled, until another run than
        the one that stands replaces it.
    """

    newest: Rank = None
    replaced: Rank = None
    settled: Annotated[SettledRuns | None, LEFT_OUT] = None

    def after(self, rank: RunRank | None, replaces: bool, run: str | None = None) -> PartitionRanks:
        """Return the ranks that the partition has once a job has written.

        :param rank: of its run; ``None`` of a job that only writes again what is there.
        :param replaces: whether all that was there goes.
        :param run: the run's key, if it has one: what was settled for it stands as it loads again.
        """
        if rank is None:
            return self
        stands = self.settled is not None and self.settled.stands == run
        if stands or not replaces:
            rank = newest_of(rank, self.newest)
        if stands:
            return replace(self, newest=rank, replaced=rank if replaces else self.replaced)
        if replaces:
            return PartitionRanks(rank, rank)
        return replace(self, newest=rank)

    def after_settling(
        self, rank: RunRank | None, replaces: bool, settling: Settling
    ) -> PartitionRanks:
        """Return the ranks that the partition has once a job has settled a conflict over it.

        :param rank: of the job's run; ``None``: it has none of its own.
        """
        ranks = [it for it in (settling.rank, rank) if it is not None]
        highest = newest_of(*ranks) if ranks else None
        return replace(self.after(highest, replaces), settled=settling.runs)

    def against(self, replaces: bool) -> RunRank | None:
        """Return the rank that a run is compared with: a replace takes the place of all rows, an
        append conflicts with a replace alone."""
        return self.newest if replaces else self.replaced

    def has_lost(self, run: str | None) -> bool:
        """Tell whether a run gave way to another one as a conflict over the partition was
        settled."""
        return self.settled is not None and run in self.settled.losers

    def supersede(
        self,
        rank: RunRank | None,
        replaces: bool,
        run: str | None = None,
        where: str = "that are there",
    ) -> bool:
        """Tell whether a newer run has written what a run would replace or add to. Appends never
        supersede appends, and nothing that was settled for a run supersedes it.

        :param run: the run's key, if it has one.
        :param where: says where the rows are, for the error.
        :raises InvalidInputError: ranks of two kinds.
        """
        if self.settled is not None and run is not None and self.settled.stands == run:
            return False
        theirs = self.against(replaces)
        if rank is not None:
            # Also for an append beside appends: no replace could be compared with both.
            rank.check_kind(self.newest, where)
        if theirs is None or rank is None:
            return theirs is not None
        return not rank.is_newer_than(theirs) and rank != theirs


#: Of a partition that no run with a rank has written.
NO_RANKS = PartitionRanks()
