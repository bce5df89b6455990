"""Conflicts as they are opened and closed, commit after commit, in the order in which they came."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ..format.records.run_conflict import (
    ConflictCause,
    ConflictingRun,
    ConflictRecord,
    RunConflict,
    SettledBy,
    Settlement,
)
from .met_runs import RunCommit, cause_by_order, cause_of, plainest

#: Names a run of a conflict: the partition, the run's key, and when it committed or gave way.
_Name = tuple[str, str, float]


@dataclass
class ConflictBook:
    """The conflicts of a table.

    :param now: when the look began, by the store's clock.
    :param open: those that nobody has settled, by partition.
    :param settled: those that were settled since the last look.
    :param touched: partitions of which there is something new.
    :param told: runs of conflicts that were settled before.
    """

    now: float
    open: dict[str, RunConflict]
    settled: list[RunConflict] = field(default_factory=list)
    touched: set[str] = field(default_factory=set)
    told: frozenset[_Name] = frozenset()

    @staticmethod
    def of(record: ConflictRecord, now: float) -> ConflictBook:
        """Go on from what the looks before have found."""
        told = {(done.partition, it.key, it.at) for done in record.settled for it in done.runs}
        return ConflictBook(now, {it.partition: it for it in record.open}, told=frozenset(told))

    @property
    def conflicts(self) -> tuple[RunConflict, ...]:
        """All of them, by partition."""
        every = (*self.open.values(), *self.settled)
        return tuple(sorted(every, key=lambda it: (it.partition, it.found_at)))

    def recall(self, record: ConflictRecord) -> None:
        """Give conflicts that were found again what is on record of them."""
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
        """Judge a commit.

        :param removed: the runs whose rows went by it.
        """
        before = self.open.get(partition)
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
            # It stands where one of them stood, against the others.
            self._add(partition, (commit.run,), before.cause)

    def restored(self, partition: str, commit: RunCommit, stands: str, how: SettledBy) -> None:
        """Note that a job has brought back the rows of a run that is to stand, or kept them."""
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
        """Judge a run that gave way.

        :param other: what it gave way to; ``last``: what the partition was written by last.
        :param by_policy: under ``on_conflict=newest_run``, to a newer one.
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
        """Note whose rows readers see in a partition.

        :param there: the commits whose rows are there, by the runs' keys.
        """

        def seen(conflict: RunConflict) -> RunConflict:
            runs = sorted((_seen(it, there) for it in conflict.runs), key=_age)
            return replace(conflict, runs=tuple(runs), version=version)

        if partition in self.open:
            self.open[partition] = seen(self.open[partition])
        self.settled = [seen(it) if it.partition == partition else it for it in self.settled]

    def _is_told(self, partition: str, *commits: RunCommit) -> bool:
        """Tell whether commits met in a conflict that was settled before. They are read again where
        the store's times have whole seconds."""
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
    """Tell whether a later commit has ended a conflict of runs: it settles one, or is newer than
    all of them and of their task."""
    newer = commit.takes_place and not any(cause_by_order(commit.run, it) for it in runs)
    return commit.settles or newer


def _has_added(conflict: RunConflict, commit: RunCommit) -> bool:
    """Tell whether the one run that gave way has added its rows since, as it was to."""
    gave_way = [it.key for it in conflict.runs if it.gave_way]
    return gave_way == [commit.key]


def _seen(run: ConflictingRun, there: Mapping[str, RunCommit]) -> ConflictingRun:
    """Return a run as readers see it: by the rows of whichever attempt are there."""
    commit = there.get(run.key)
    return (
        replace(run, is_visible=False) if commit is None else replace(commit.run, is_visible=True)
    )


def _age(run: ConflictingRun) -> tuple[bool, float, float, float]:
    """Order runs by age: those without a rank first."""
    if run.rank is None:
        return (False, 0.0, 0.0, run.at)
    return (True, run.rank.value, run.rank.then, run.at)
