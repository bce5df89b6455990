"""Conflicts that commits open and close, judged in the order in which the commits came."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ...format.records.run_conflict import (
    ConflictCause,
    ConflictingRun,
    ConflictRecord,
    RunConflict,
    SettledBy,
    Settlement,
)
from .met_runs import RunCommit, cause_by_order, cause_of, plainest

#: Identifies a run of a conflict: the partition, the run's key, and when it committed or gave way.
_Name = tuple[str, str, float]


@dataclass
class ConflictBook:
    """The conflicts of a table during one search.

    :param now: when the search began, by the store's clock.
    :param open: the conflicts that are not settled, by partition.
    :param settled: the conflicts that were settled since the last search.
    :param touched: partitions that have changed, or whose conflict has.
    :param told: runs of conflicts that were settled before.
    """

    now: float
    open: dict[str, RunConflict]
    settled: list[RunConflict] = field(default_factory=list)
    touched: set[str] = field(default_factory=set)
    told: frozenset[_Name] = frozenset()

    @staticmethod
    def of(record: ConflictRecord, now: float) -> ConflictBook:
        """Return the conflicts that former searches have recorded, to go on from."""
        told = {(done.partition, it.key, it.at) for done in record.settled for it in done.runs}
        return ConflictBook(now, {it.partition: it for it in record.open}, told=frozenset(told))

    @property
    def conflicts(self) -> tuple[RunConflict, ...]:
        """The open and the settled conflicts, ordered by partition."""
        every = (*self.open.values(), *self.settled)
        return tuple(sorted(every, key=lambda it: (it.partition, it.found_at)))

    def recall(self, record: ConflictRecord) -> None:
        """Give conflicts that were found again their settlements from the record."""
        said = {
            (it.partition, it.settlement.job): it.settlement
            for it in record.settled
            if it.settlement is not None
        }
        for at, it in enumerate(self.settled):
            job = None if it.settlement is None else it.settlement.job
            if (it.partition, job) in said:
                self.settled[at] = it.settled(said[it.partition, job])
        for known in (*record.open, *record.settled):
            again = self.open.get(known.partition)
            if again is None or known.settlement is None:
                continue
            if {it.job for it in again.runs} <= {it.job for it in known.runs}:
                self.open[known.partition] = again.settled(known.settlement)

    def committed(self, partition: str, commit: RunCommit, removed: Iterable[RunCommit]) -> None:
        """Open or close the conflict over a partition, as a commit demands.

        :param removed: the runs whose rows it removed.
        """
        before = self.open.get(partition)
        if before is not None and any(it.job == commit.job for it in before.runs):
            return  # Read again, since the end of the search before is not on record.
        if before is not None and commit.settles and before.run(commit.key) is not None:
            self._close(before, commit, SettledBy.RERUN)
            return
        if not commit.takes_place:
            if before is not None and _has_added(before, commit):
                self._close(before, commit, SettledBy.LATER_RUN)
            return
        removed = list(removed)
        met = [
            (it, cause_of(commit, it)) for it in removed if not self._is_told(partition, commit, it)
        ]
        causes = [cause for _, cause in met if cause is not None]
        if causes:
            runs = [it.run for it, cause in met if cause is not None]
            self._add(partition, (*runs, commit.run), plainest(causes))
        elif before is not None and _is_over(commit, before.runs):
            self._close(before, commit, SettledBy.LATER_RUN)
        elif before is not None and any(before.run(it.key) is not None for it in removed):
            # It has taken the place of one of the runs, and so conflicts with the others.
            self._add(partition, (commit.run,), before.cause)

    def restored(self, partition: str, commit: RunCommit, stands: str, how: SettledBy) -> None:
        """Close a conflict, since a job has restored or kept the rows of the run that stands."""
        before = self.open.get(partition)
        if before is not None and before.run(stands) is not None:
            self._close(before, replace(commit, key=stands), how)

    def gave_way(
        self,
        partition: str,
        run: ConflictingRun,
        other: RunCommit,
        last: RunCommit | None,
        by_policy: bool,
    ) -> None:
        """Record a run that gave way, unless a later commit has ended that conflict.

        :param other: the commit that it gave way to; ``last``: the partition's last commit.
        :param by_policy: it gave way to a newer run under ``on_conflict=newest_run``. Then the
            conflict counts as settled by that policy.
        """
        if other.key == run.key or (partition, run.key, run.at) in self.told:
            return
        if last is not None and last.at > run.at and _is_over(last, (other.run, run)):
            return
        if not by_policy:
            self._add(partition, (other.run, run), ConflictCause.OVERLAPPED)
            return
        found = RunConflict(
            partition, (run, other.run), ConflictCause.OLDER_CAME_LATER, self.now, other.version
        )
        settlement = Settlement(
            other.key,
            (run.key,),
            other.rank,
            run.owner,
            "on_conflict=newest_run",
            SettledBy.POLICY,
            run.at,
            other.job,
        )
        self.touched.add(partition)
        self.settled.append(found.settled(settlement))

    def see(self, partition: str, there: Mapping[str, RunCommit], version: int) -> None:
        """Record which runs have rows that readers see in a partition.

        :param there: the commits whose rows are there, by the runs' keys.
        """

        def seen(conflict: RunConflict) -> RunConflict:
            runs = sorted((_seen(it, there) for it in conflict.runs), key=_age)
            return replace(conflict, runs=tuple(runs), version=version)

        if partition in self.open:
            self.open[partition] = seen(self.open[partition])
        self.settled = [seen(it) if it.partition == partition else it for it in self.settled]

    def _is_told(self, partition: str, *commits: RunCommit) -> bool:
        """Return whether all of these commits are runs of conflicts that were settled before. A
        search can read them again, since the store's times are whole seconds."""
        return self.told.issuperset((partition, it.key, it.at) for it in commits)

    def _add(self, partition: str, runs: Iterable[ConflictingRun], cause: ConflictCause) -> None:
        before = self.open.get(partition)
        known = {it.key: it for it in before.runs} if before is not None else {}
        for run in runs:
            known[run.key] = max(known.get(run.key, run), run, key=lambda it: it.at)
        causes = [cause] if before is None else [before.cause, cause]
        self.touched.add(partition)
        found = RunConflict(partition, tuple(known.values()), plainest(causes), self.now)
        self.open[partition] = found

    def _close(self, conflict: RunConflict, commit: RunCommit, how: SettledBy) -> None:
        losers = tuple(it.key for it in conflict.runs if it.key != commit.key)
        known = {it.key: it for it in conflict.runs}
        if how not in (SettledBy.RESTORE, SettledBy.KEPT):
            known[commit.key] = commit.run
        done = replace(conflict, runs=tuple(known.values()))
        del self.open[conflict.partition]
        self.touched.add(conflict.partition)
        settlement = Settlement(
            commit.key, losers, commit.rank, commit.owner, "", how, commit.at, commit.job
        )
        self.settled.append(done.settled(settlement))


def _is_over(commit: RunCommit, runs: Iterable[ConflictingRun]) -> bool:
    """Return whether a later commit has ended a conflict of runs: it settles a conflict, or it has
    replaced the partition and conflicts with none of the runs by its order."""
    newer = commit.takes_place and not any(cause_by_order(commit.run, it) for it in runs)
    return commit.settles or newer


def _has_added(conflict: RunConflict, commit: RunCommit) -> bool:
    """Return whether the commit is of the only run that gave way: it has added its rows now."""
    gave_way = [it.key for it in conflict.runs if it.gave_way]
    return gave_way == [commit.key]


def _seen(run: ConflictingRun, there: Mapping[str, RunCommit]) -> ConflictingRun:
    """Return a run with the attempt whose rows readers see, or as not visible."""
    commit = there.get(run.key)
    return (
        replace(run, is_visible=False) if commit is None else replace(commit.run, is_visible=True)
    )


def _age(run: ConflictingRun) -> tuple[bool, float, float, float]:
    """Return a key that sorts runs by age: runs without a rank come first."""
    if run.rank is None:
        return (False, 0.0, 0.0, run.at)
    return (True, run.rank.value, run.rank.then, run.at)
