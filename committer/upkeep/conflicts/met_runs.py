"""Pairs of runs that wrote one partition, and whether they conflict, by the records of their
commits. No clock decides: versions say which commit came first, ranks which run is newer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...commit.state.decide import Decided
from ...format.job_spec import OnConflict, Owner
from ...format.records.partition_decision import PartitionDecision
from ...format.records.run_conflict import ConflictCause, ConflictingRun
from ...format.run_rank import RunRank


@dataclass(frozen=True)
class RunCommit:
    """The commit of a run's job in one partition.

    :param key: the run's idempotency key; the job id, if it has none.
    :param version: the partition's version after the commit.
    :param opened_version: the partition's version when the job opened.
    :param takes_place: it replaced all rows of the partition by its own.
    :param settles: it settled a conflict.
    :param is_known: the record names the job's owner and its rank.
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
        """Return the commit that a decision describes for one partition."""
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
            is_known=not decision.condensed or change.rank is not None,
        )

    @property
    def run(self) -> ConflictingRun:
        """The run as a participant of a conflict."""
        return ConflictingRun(self.key, self.job, self.at, self.owner, self.rank, self.rows)


def cause_of(later: RunCommit, earlier: RunCommit) -> ConflictCause | None:
    """Return why a commit conflicts with an earlier one whose rows it removed; ``None``: it does
    not.

    :param later: the commit that removed rows.
    :param earlier: the commit whose rows it removed.
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
    """Return why a run conflicts with an ended run that it replaced; ``None``: it does not.

    The cause is their order: ranks of two kinds, a lower rank that came later, or two tasks."""
    if later.key == earlier.key:
        return None
    if later.rank is not None and earlier.rank is not None:
        if later.rank.kind is not earlier.rank.kind:
            return ConflictCause.RANKS_DIFFER
        if _is_newer(earlier.rank, later.rank):
            return ConflictCause.OLDER_CAME_LATER
    return ConflictCause.TASKS_DIFFER if _tasks_differ(later, earlier) else None


def plainest(causes: Iterable[ConflictCause]) -> ConflictCause:
    """Return the plainest of several causes, by the order of :class:`.ConflictCause`."""
    return min(causes, key=list(ConflictCause).index)


def _is_newer(rank: RunRank | None, other: RunRank | None) -> bool:
    """Return whether a rank is newer than another. A rank is newer than none, and never newer than
    one of another kind."""
    if rank is None or other is None:
        return rank is not None
    return rank.kind is other.kind and rank.is_newer_than(other)


def _tasks_differ(run: ConflictingRun, other: ConflictingRun) -> bool:
    """Return whether two runs belong to different tasks. Mapped tasks of one DAG run are different
    tasks. In Dagster the task is the asset: its schedule, the page and backfills load it by
    different jobs."""
    if run.is_dagsters and other.is_dagsters:
        return run.task[1] != other.task[1]
    if run.task != other.task:
        return True
    mine, theirs = run.owner, other.owner
    is_one_run = mine.run_id is not None and mine.run_id == theirs.run_id
    return is_one_run and mine.map_index != theirs.map_index
