"""Ranks of a partition: of the newest run that has rows there, and of the last to replace it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from ..run_rank import RunRank, rank_from_json, rank_to_json
from .marks import LEFT_OUT, Converted


def _write(rank: RunRank | None) -> list[Any] | None:
    return None if rank is None else rank_to_json(rank)


def _read(said: Any) -> RunRank | None:
    return None if said is None else rank_from_json(said)


#: A rank in a record, if there is one.
Rank = Annotated[RunRank | None, LEFT_OUT, Converted(_write, _read)]


@dataclass(frozen=True)
class PartitionRanks:
    """Ranks of the runs that have rows in a partition.

    :param newest: the rank of the newest one; ``None``: of no run that has one.
    :param replaced: the rank of the run that has replaced it last; ``None``: none has.
    """

    newest: Rank = None
    replaced: Rank = None

    def after(self, rank: RunRank | None, replaces: bool) -> PartitionRanks:
        """Return the ranks that the partition has once a job has written.

        :param rank: of its run; ``None`` of a job that only writes again what is there.
        :param replaces: whether all that was there goes.
        """
        if rank is None:
            return self
        if replaces:
            return PartitionRanks(rank, rank)
        newest = self.newest
        if newest is not None and newest.kind is rank.kind and newest.is_newer_than(rank):
            return self
        return PartitionRanks(rank, self.replaced)

    def against(self, replaces: bool) -> RunRank | None:
        """Return the rank that a run is compared with: a replace takes the place of all rows, an
        append conflicts with a replace alone."""
        return self.newest if replaces else self.replaced

    def supersede(self, rank: RunRank | None, replaces: bool) -> bool:
        """Tell whether a newer run has written what a run would replace or add to. Appends never
        supersede appends.

        :raises InvalidInputError: ranks of two kinds.
        """
        theirs = self.against(replaces)
        if rank is not None:
            # Also for an append beside appends: no replace could be compared with both.
            rank.check_kind(self.newest)
        if theirs is None or rank is None:
            return theirs is not None
        return not rank.is_newer_than(theirs) and rank != theirs


#: Of a partition that no run with a rank has written.
NO_RANKS = PartitionRanks()
