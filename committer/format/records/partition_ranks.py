"""Ranks of a partition: of the newest run with rows there, and of the run that replaced it last."""

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


#: Type of a rank in a record; ``None``: no rank.
Rank = Annotated[RunRank | None, LEFT_OUT, Converted(_write, _read)]
#: Type of ranks by partition in a record; ``None``: no ranks.
Ranks = Annotated[RunRanks | None, LEFT_OUT, Converted(_write_all, _read_all)]


@dataclass(frozen=True)
class PartitionRanks:
    """Ranks of the runs that have rows in a partition.

    :param newest: the rank of the newest of them; ``None``: no run with a rank has rows there.
    :param replaced: the rank of the run that replaced the partition last; ``None``: no run with a
        rank has.
    :param settled: the runs of the last conflict over the partition that was settled. It ends when
        a run other than the one that stands replaces the partition.
    """

    newest: Rank = None
    replaced: Rank = None
    settled: Annotated[SettledRuns | None, LEFT_OUT] = None

    def after(self, rank: RunRank | None, replaces: bool, run: str | None = None) -> PartitionRanks:
        """Return the ranks that the partition has after a job has written it.

        :param rank: the rank of its run; ``None`` for a job that only rewrites existing rows.
        :param replaces: the job removes all rows that were there.
        :param run: the run's key, if it has one. A settlement in favour of this run stays when the
            run loads again.
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
        """Return the ranks that the partition has after a job has settled a conflict over it.

        :param rank: the rank of the job's run; ``None``: it has none of its own.
        """
        ranks = [it for it in (settling.rank, rank) if it is not None]
        highest = newest_of(*ranks) if ranks else None
        return replace(self.after(highest, replaces), settled=settling.runs)

    def against(self, replaces: bool) -> RunRank | None:
        """Return the rank that a run is compared with.

        A replace removes all rows, so it is compared with the newest run. An append conflicts with
        replaces only, so it is compared with the run that replaced the partition last.
        """
        return self.newest if replaces else self.replaced

    def has_lost(self, run: str | None) -> bool:
        """Return whether the last settlement of a conflict here decided against a run."""
        return self.settled is not None and run in self.settled.losers

    def supersede(
        self,
        rank: RunRank | None,
        replaces: bool,
        run: str | None = None,
        where: str = "that are there",
    ) -> bool:
        """Return whether a newer run has written what a run would replace or add to.

        Appends never supersede appends. A run in whose favour a conflict was settled is not
        superseded.

        :param rank: the run's rank. A run without one is superseded by any rank that it is
            compared with.
        :param run: the run's key, if it has one.
        :param where: the place of the rows, for the error.
        :raises InvalidInputError: the ranks are of two kinds.
        """
        if self.settled is not None and run is not None and self.settled.stands == run:
            return False
        theirs = self.against(replaces)
        if rank is not None:
            # Also for an append to appended rows: a later replace could not be compared with both.
            rank.check_kind(self.newest, where)
        if theirs is None or rank is None:
            return theirs is not None
        return not rank.is_newer_than(theirs) and rank != theirs


#: Ranks of a partition that no run with a rank has written.
NO_RANKS = PartitionRanks()
