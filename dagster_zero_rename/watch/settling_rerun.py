"""Rerun that is to settle conflicts: its restriction, and whether it has settled them.

A run of this package's committer loads only the partitions in conflict, bound to the versions that
the search saw. With one of Hadoop's committers the whole run loads again, bound to how many
attempts of other runs had loaded each of its partitions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from zero_rename.committer.commit.narrowed_run import (
    Left,
    end_narrowing,
    leave_narrowing,
    pending_narrowings,
    read_narrowing,
)
from zero_rename.committer.errors import first_few
from zero_rename.committer.format.job_spec import Owner
from zero_rename.committer.format.layout import TableRoot, new_write_id
from zero_rename.committer.format.records.narrowing import Narrowing
from zero_rename.committer.format.settling import SettledRuns, Settling
from zero_rename.maintenance.conflicts import ChosenRun
from zero_rename.orchestration.runs.outcomes import makes_no_other, why_not_settled
from zero_rename.orchestration.s3a.settling import (
    load_to_repeat,
    plan_since_adoption,
    planned_loads,
    plans_root,
    settled_by,
)
from zero_rename.s3a.runs.run_conflicts import S3A
from zero_rename.tables import DeltaTable
from zero_rename.tables.table_at import opened_as_it_is

if TYPE_CHECKING:
    from zero_rename.committer.table import Table

_NOT_LOADED = (
    "The run ended well, and did not settle the conflict: it has loaded nothing by one of Hadoop's "
    "committers, or another run has loaded since"
)


@dataclass(frozen=True)
class SettlingRerun:
    """A run that is to stand in one or more partitions of a table.

    :param table: opened at the root; the layout does not matter.
    :param chosen: the choice for each of these partitions.
    :param versions: of all partitions that the run may replace, for its restriction.
    :param is_whole: for a directory of Hadoop's committers that has become a Delta table: the run
        has loaded no other partition. ``None``: it has not become one.
    """

    table: Table
    chosen: tuple[ChosenRun, ...]
    versions: Mapping[str, int]
    is_whole: bool | None = None

    @staticmethod
    def of(table: Table, chosen: Sequence[ChosenRun]) -> SettlingRerun:
        """Plan which partitions a run may replace.

        :raises InvalidInputError: with one of Hadoop's committers, the run has appended, or another
            run has won one of its partitions, or no attempt of it is on record any more.
        """
        if not chosen[0].committer:
            versions = {it.conflict.partition: it.conflict.version for it in chosen}
            return SettlingRerun(table, tuple(chosen), versions)
        key = chosen[0].settlement.stands
        contested = [it.conflict.partition for it in chosen]
        delta = opened_as_it_is(table)
        if isinstance(delta, DeltaTable):
            # The run loads again by a job of the Delta table that the directory has become.
            plan = plan_since_adoption(table, delta, key, contested)
            return SettlingRerun(table, tuple(chosen), plan.versions, plan.is_whole)
        winner = load_to_repeat(table, key)
        losers = {loser for it in chosen for loser in it.settlement.losers}
        return SettlingRerun(table, tuple(chosen), planned_loads(table, winner, contested, losers))

    @property
    def key(self) -> str:
        """The idempotency key of the run."""
        return self.chosen[0].settlement.stands

    @property
    def owner(self) -> Owner:
        return self.chosen[0].owner or Owner()

    @property
    def committer(self) -> str:
        """The committer by which the run loads again: ``s3a`` for one of Hadoop's; ``""`` for this
        package's."""
        return self.chosen[0].committer if self.is_whole is None else ""

    @property
    def state(self) -> str:
        """A digest of the rerun and the versions that it replaces, different for each conflict
        there."""
        said = [self.table.root.url, self.key, dict(self.versions)]
        told = json.dumps(said + [self.committer] * bool(self.committer))
        return sha256(told.encode()).hexdigest()[:32]

    def leave(self, planner: Owner, seconds: int) -> bool:
        """Record the restriction that says what the run settles. ``False``: another plan has the
        run.

        :param planner: the owner of the plan; its run is the state.
        :param seconds: the time in which the run must begin.
        """
        table, root = opened_as_it_is(self.table), plans_of(self.table, self.committer)
        left = table.run(read_narrowing(root, self.key))
        if left is not None and not left.said.over and left.age <= left.said.seconds:
            if left.said.planner.run_id == planner.run_id:
                return True  # An earlier tick has recorded it, and its run was not launched.
            if not is_by(left, planner):
                return False
        settles = {
            it.conflict.partition: Settling(
                SettledRuns(it.settlement.stands, it.settlement.losers), it.settlement.rank
            )
            for it in self.chosen
        }
        said = Narrowing(
            new_write_id(),
            self.key,
            table.job_of_key(self.key),
            self.versions,
            seconds,
            planner,
            self._makes_no_other(table),
            settles=settles,
        )
        return table.run(leave_narrowing(root, said, left))

    def _makes_no_other(self, table: Table | DeltaTable) -> bool:
        if self.is_whole is not None:
            return self.is_whole
        return bool(self.committer) or makes_no_other(table, self.key, [*self.versions])

    def __str__(self) -> str:
        named = [it.conflict.partition for it in self.chosen]
        return f"{first_few(named)} of {self.table.root.url}"


@dataclass(frozen=True)
class AskedRerun:
    """A run whose restriction an earlier tick has recorded.

    :param committer: as of :class:`SettlingRerun`.
    """

    table: Table
    committer: str
    left: Left

    def outcomes(self) -> dict[str, tuple[str | None, str]]:
        """Return what the run has made of each conflict, if it has ended well: the job that settled
        it, and why it is not settled, ``""`` if it is."""
        said = self.left.said
        if self.committer:
            loads = {name: said.partitions[name] for name in said.settles}
            job = settled_by(self.table, said.idempotency_key, loads)
            return dict.fromkeys(said.settles, (job, "" if job else _NOT_LOADED))
        seen = {name: said.partitions[name] for name in said.settles}
        found, made = opened_as_it_is(self.table).settled(seen), {}
        for name, it in said.settles.items():
            here, runs = found[name], it.runs
            why = why_not_settled(here, runs.stands, runs.losers, seen[name])
            made[name] = (None if why else here.job, why)
        return made

    def end(self) -> None:
        """End the restriction, so that no run uses it any more."""
        root = plans_of(self.table, self.committer)
        self.table.run(end_narrowing(root, self.left, new_write_id()))


def asked_reruns(table: Table, planner: Owner) -> Iterable[AskedRerun]:
    """Yield the runs of a table with a restriction of this planner that has not ended."""
    for committer in ("", S3A):
        for left in table.run(pending_narrowings(plans_of(table, committer))):
            if not left.said.over and is_by(left, planner):
                yield AskedRerun(table, committer, left)


def plans_of(table: Table, committer: str) -> TableRoot:
    """Return the root below which the restrictions of runs are recorded.

    :param committer: as of :class:`SettlingRerun`.
    """
    return plans_root(table.root) if committer else table.root


def is_by(left: Left, planner: Owner) -> bool:
    """Return whether a planner made a plan, in any tick."""
    said = left.said.planner
    return (said.application, said.dag_id) == (planner.application, planner.dag_id)
