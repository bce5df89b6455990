"""Runs that met in a partition, two at a time: whether they are a conflict, by what is on record of
their commits. No clock is asked: versions say who was there first, ranks who is newer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..commit.state.decide import Decided
from ..format.job_spec import OnConflict, Owner
from ..format.records.partition_decision import PartitionDecision
from ..format.records.run_conflict import ConflictCause, ConflictingRun
from ..format.run_rank import RunRank


@dataclass(frozen=True)
class RunCommit:
    """What a run's job did to one partition.

    :param key: the run's idempotency key; the job, where it has none.
    :param version: that the partition came to by it.
    :param opened_version: the version that it was at when the job opened.
    :param takes_place: it replaced all that was there by rows of its own.
    :param settles: it carried out the settlement of a conflict.
    :param is_known: the record says whose job it is, and how new.
    """

    key: str
    job: str
    at: float
    owner: Owner
    rank: RunRank | None
    rows: int | None
    version: int
    opened_version: int
    takes_place: bool
    on_conflict: OnConflict
    settles: bool = False
    is_known: bool = True

    @staticmethod
    def of(decided: Decided, change: PartitionDecision) -> RunCommit:
        """Read what a decision says of one partition."""
        decision = decided.decision
        opened_version = change.opened_version
        return RunCommit(
            decision.idempotency_key or decision.job,
            decision.job,
            decided.date,
            decision.owner,
            change.run_rank,
            change.sums.rows,
            change.base_version + 1,
            change.base_version if opened_version is None else opened_version,
            change.replace and not change.merged,
            decision.on_conflict,
            settles=change.settles_alone or (bool(change.ranks.settled) and change.replace),
            is_known=not decision.condensed,
        )

    @property
    def run(self) -> ConflictingRun:
        """The run, for a report."""
        return ConflictingRun(self.key, self.job, self.at, self.owner, self.rank, self.rows)


def cause_of(later: RunCommit, earlier: RunCommit) -> ConflictCause | None:
    """Tell why a commit that removed another one's rows is a conflict; ``None``: it is none.

    :param earlier: the one whose rows went.
    """
    if later.key == earlier.key or later.settles or earlier.rows == 0:
        return None
    ranks = later.rank, earlier.rank
    if later.on_conflict is OnConflict.NEWEST_RUN and _is_newer(*ranks):
        return None
    if earlier.version > later.opened_version:
        return ConflictCause.OVERLAPPED
    return cause_by_order(later.run, earlier.run) if later.is_known and earlier.is_known else None


def cause_by_order(later: ConflictingRun, earlier: ConflictingRun) -> ConflictCause | None:
    """Tell whether a run that took the place of another one, which had ended by then, is a
    conflict; ``None``: it is none."""
    if later.key == earlier.key:
        return None
    if later.rank is not None and earlier.rank is not None:
        if later.rank.kind is not earlier.rank.kind:
            return ConflictCause.RANKS_DIFFER
        if _is_newer(earlier.rank, later.rank):
            return ConflictCause.OLDER_CAME_LATER
    return ConflictCause.TASKS_DIFFER if _tasks_differ(later.owner, earlier.owner) else None


def plainest(causes: Iterable[ConflictCause]) -> ConflictCause:
    """Return the plainest of some causes."""
    return min(causes, key=list(ConflictCause).index)


def _is_newer(rank: RunRank | None, other: RunRank | None) -> bool:
    """Tell whether a rank is the greater one. Those that do not compare are not."""
    if rank is None or other is None:
        return rank is not None
    return rank.kind is other.kind and rank.is_newer_than(other)


def _tasks_differ(owner: Owner, other: Owner) -> bool:
    """Tell whether two runs are of different tasks; of mapped ones of one run, each is its own."""
    tasks = [(it.dag_id, it.task_id) if it.dag_id else it.application for it in (owner, other)]
    if tasks[0] != tasks[1]:
        return True
    is_one_run = owner.run_id is not None and owner.run_id == other.run_id
    return is_one_run and owner.map_index != other.map_index
