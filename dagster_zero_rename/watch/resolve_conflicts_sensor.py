"""Sensor that settles conflicts of runs: the run that is to stand is made again, for the partitions
in conflict."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster._core.storage.tags import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
    PARTITION_NAME_TAG,
)

from zero_rename.committer.commit.narrowed_run import (
    Left,
    end_narrowing,
    leave_narrowing,
    pending_narrowings,
    read_narrowing,
)
from zero_rename.committer.errors import InvalidInputError, counted, escaped, first_few
from zero_rename.committer.format.job_spec import Mode, Owner
from zero_rename.committer.format.layout import new_write_id
from zero_rename.committer.format.records.narrowing import Narrowing
from zero_rename.committer.format.records.run_conflict import RunConflict, SettledBy, Settlement
from zero_rename.committer.format.settling import SettledRuns, Settling
from zero_rename.committer.upkeep.settlement_policy import SettlementPolicy
from zero_rename.maintenance.conflicts import ChosenRun, choose_reruns, find_here, note_rerun
from zero_rename.orchestration.runs.outcomes import makes_no_other, why_not_settled
from zero_rename.s3a.runs.run_conflicts import S3A

from ..asset_step import APPLICATION, DOES_AGAIN, idempotency_key_of
from ..resource import MODE
from .asset_reference import RESOURCE, AssetLike, AssetReference
from .known_assets import CannotRunError, KnownAssets

if TYPE_CHECKING:
    from dagster import DagsterRun
    from dagster._core.definitions.assets.graph.asset_graph import AssetNode

    from zero_rename.committer.table import Table

#: Tag of a run that a sensor has asked for: which conflicts it is to settle, as they were then.
TAG = "zero_rename/resolves"
_ENDS = (ASSET_PARTITION_RANGE_START_TAG, ASSET_PARTITION_RANGE_END_TAG)


def resolve_conflicts_sensor(
    *targets: AssetLike,
    policy: str | Mapping[str, Any],
    apply: bool = False,
    timeout: timedelta = timedelta(days=1),
    name: str = "zero_rename_resolve_conflicts",
    minimum_interval_seconds: int = 300,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
    resource_key: str = RESOURCE,
) -> dg.SensorDefinition:
    """A sensor that settles conflicts of runs over the partitions of assets' tables by a rerun: a
    policy names the run that is to stand, and that run's asset is run again for its partitions.

    The run loads the partitions in conflict alone, whatever its rank, and is bound to the state
    that the look saw: if another run has loaded since, it fails and nothing is settled. The next
    tick looks what it has left, and puts that on record. Once a conflict is settled, the runs that
    lost give way, except under ``last_wins``. What is the same is asked for once: where its run
    fails, or ends without loading, the tick fails and says so. Runs of the same assets' partitions
    that others have started are waited for.

    A tick that fails names what is not settled, with the reason: no run that the policy names, one
    that was made outside Dagster, one that loaded by Hadoop's committers, an asset that appends or
    merges, rows of runs that are no part of the conflict.

    :param targets: assets whose tables are looked at, as definitions or by their keys.
    :param policy: ``newest_run``; ``{"prefer": ["corrections", "flights_daily"]}``, jobs or assets
        in order; or ``{"keep": [job]}``.
    :param apply: ask for runs; ``False`` only says which.
    :param timeout: for how long a run that was asked for may wait to begin.
    :param name: the sensor's.
    :param minimum_interval_seconds: between two ticks.
    :param default_status: whether it runs before somebody turns it on.
    :param resource_key: under which the :class:`~dagster_zero_rename.ZeroRenameResource` is.
    :raises InvalidInputError: no policy.
    """
    keys = [AssetReference.of(target).key for target in targets]
    chosen = SettlementPolicy.parse(policy)

    @dg.sensor(
        name=name,
        asset_selection=dg.AssetSelection.all(),
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=default_status,
        required_resource_keys={resource_key},
        description="Settles conflicts of runs: the run that is to stand is made again.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        assets = KnownAssets(context, getattr(context.resources, resource_key))
        tick = _Tick(assets, chosen, apply, int(timeout.total_seconds()), name)
        for url in dict.fromkeys(assets.table(key).root.url for key in keys):
            tick.look_at(assets.resource.table(url))
        return tick.result()

    return sensor


@dataclass(frozen=True)
class _SettlingRerun:
    """A run that is to stand in one or more partitions of a table.

    :param chosen: for each of these.
    """

    table: Table
    chosen: tuple[ChosenRun, ...]

    @property
    def key(self) -> str:
        return self.chosen[0].settlement.stands

    @property
    def owner(self) -> Owner:
        return self.chosen[0].owner or Owner()

    @property
    def versions(self) -> dict[str, int]:
        return {it.conflict.partition: it.conflict.version for it in self.chosen}

    @property
    def settles(self) -> dict[str, Settling]:
        return {
            it.conflict.partition: Settling(
                SettledRuns(it.settlement.stands, it.settlement.losers), it.settlement.rank
            )
            for it in self.chosen
        }

    @property
    def state(self) -> str:
        """What tells this from all else that is, or will be, in conflict there."""
        told = json.dumps([self.table.root.url, self.key, self.versions])
        return sha256(told.encode()).hexdigest()[:32]

    def __str__(self) -> str:
        return f"{first_few([*self.versions])} of {self.table.root.url}"


@dataclass
class _Tick:
    """One look at all tables, and what comes of it.

    :param seconds: in which a run that is asked for has to begin.
    """

    assets: KnownAssets
    policy: SettlementPolicy
    apply: bool
    seconds: int
    name: str
    requests: list[dg.RunRequest] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    planned: list[str] = field(default_factory=list)

    @property
    def owner(self) -> Owner:
        """Who decides."""
        return Owner(dag_id=self.name, application=APPLICATION)

    def look_at(self, table: Table) -> None:
        """Put on record what became of the runs that were asked for; then look for what is left,
        and ask for runs."""
        # Before the look, which closes what they have settled without a word of who decided.
        for left in table.run(pending_narrowings(table.root)):
            planner = left.said.planner
            if not left.said.over and (planner.application, planner.dag_id) == _who(self.owner):
                self._note_ended(table, left)
        for found in find_here(table):
            if found.committer == S3A:
                self.refused += [
                    f"{table.root.url}: {it} {_why_not_by_hadoop(it, self.policy)}"
                    for it in found.unresolved
                ]
            elif found.unresolved:
                self._settle(table, [it.partition for it in found.unresolved])

    def _note_ended(self, table: Table, left: Left) -> None:
        """Verify what a run has settled that was asked for, if it has ended."""
        said = left.said
        run = self._asked_for(said.planner.run_id or "")
        if run is None or not run.is_success:
            return  # A re-execution of one that has failed goes on by it.
        found = table.settled(said.settles)
        for name, settling in said.settles.items():
            runs, here = settling.runs, found[name]
            why = why_not_settled(here, runs.stands, runs.losers, said.partitions[name])
            done = Settlement(
                runs.stands,
                runs.losers,
                settling.rank,
                self.owner,
                str(self.policy),
                SettledBy.RERUN,
                job=None if why else here.job,
                error=why,
            )
            note_rerun(table, "", name, done)
        table.run(end_narrowing(table.root, left, new_write_id()))

    def _settle(self, table: Table, partitions: Sequence[str]) -> None:
        runs: dict[str, list[ChosenRun]] = {}
        for it in choose_reruns(table, self.policy, partitions, self.owner):
            if it.committer:
                continue  # What Hadoop's committers loaded is refused by the look itself.
            if it.settlement.error:
                self._refuse(table, (it,), it.settlement.error)
            else:
                runs.setdefault(it.settlement.stands, []).append(it)
        unfinished = self.assets.unfinished()
        for of_run in runs.values():
            rerun = _SettlingRerun(table, tuple(of_run))
            writing = [run for run in unfinished if self._writes(run, rerun)]
            self.waits += [f"run {run.run_id}" for run in writing]
            try:
                if not writing:
                    self._ask_for(rerun)
            except CannotRunError as error:
                self._refuse(table, rerun.chosen, str(error))

    def _refuse(self, table: Table, chosen: Sequence[ChosenRun], why: str) -> None:
        for it in chosen:
            self.refused.append(f"{it.conflict.name} of {table.root.url}: {why}")
            if self.apply:
                said = replace(it.settlement, error=why)
                note_rerun(table, "", it.conflict.partition, said)

    def _ask_for(self, rerun: _SettlingRerun) -> None:
        """Ask for a run, once it is told what it settles.

        :raises CannotRunError: it must not be run, or was run in vain.
        """
        node, run = self._run_of(rerun)
        last = self._asked_for(rerun.state)
        if last is not None and not _is_over(last):
            self.waits.append(f"run {last.run_id}")
            return
        if last is not None:
            told = rerun.chosen[0].conflict.settlement
            raise CannotRunError(
                f"run {last.run_id} is {last.status.value}: mend what failed there, and re-execute "
                "it"
                if not last.is_success or told is None
                else told.error
            )
        config = self.assets.config(node, run.run_id)
        if not self.apply:
            self.planned.append(f"{node.key.to_user_string()} for {rerun}")
            return
        if not self._leave(rerun):
            self.waits.append(f"another plan for run {run.run_id}")
            return
        ends = {name: run.tags[name] for name in _ENDS if name in run.tags}
        root = rerun.key.split("/")[1]
        self.requests.append(
            dg.RunRequest(
                run_key=rerun.state,
                asset_selection=sorted(node.execution_set_asset_keys),
                partition_key=None if ends else run.tags.get(PARTITION_NAME_TAG),
                run_config=config,
                tags={TAG: rerun.state, DOES_AGAIN: root, **ends},
            )
        )

    def _run_of(self, rerun: _SettlingRerun) -> tuple[AssetNode, DagsterRun]:
        """Find the asset and the run that loaded what is to stand.

        :raises CannotRunError: it cannot be made again.
        """
        owner, url = rerun.owner, rerun.table.root.url
        if owner.application != APPLICATION or not rerun.key.startswith(f"{APPLICATION}/"):
            by = owner.dag_id or owner.application or "an unnamed program"
            raise CannotRunError(
                f"the run that is to stand was made outside Dagster, by {by}: run it again there, "
                "with on_conflict='last_wins'"
            )
        asset = owner.task_id or ""
        node = self.assets.nodes.get(dg.AssetKey.from_user_string(asset))
        if node is None or not node.is_materializable:
            raise CannotRunError(f"this code location has no asset {asset!r} that could be run")
        if (now := self.assets.table(node.key).root.url) != url:
            raise CannotRunError(f"the asset {asset!r} is the table {now} by now")
        mode = Mode.parse(str(node.metadata.get(MODE) or Mode.REPLACE))
        if mode is not Mode.REPLACE:
            raise CannotRunError(
                f"the asset {asset!r} has mode={mode}, and rows of the others would stay: settle "
                "it by bringing back rows"
            )
        run = self.assets.context.instance.get_run_by_id(owner.run_id or "")
        if run is None:
            raise CannotRunError(
                f"run {owner.run_id} is not on record any more: materialise {asset!r} by hand, "
                "with on_conflict='last_wins'"
            )
        keys = None if node.partitions_def is None else self.assets.keys(run, node)
        if idempotency_key_of(rerun.key.split("/")[1], node.key, keys) != rerun.key:
            raise CannotRunError(
                f"the asset {asset!r} has other partitions by now than run {owner.run_id} was of: "
                "materialise it by hand, with on_conflict='last_wins'"
            )
        return node, run

    def _leave(self, rerun: _SettlingRerun) -> bool:
        """Tell a run what it settles; ``False``: another plan has it."""
        table, root = rerun.table, rerun.table.root
        left = table.run(read_narrowing(root, rerun.key))
        if left is not None and not left.said.over and left.age <= left.said.seconds:
            planner = left.said.planner
            if planner.run_id == rerun.state:
                return True  # A tick before has left it, and its run was not launched.
            if (planner.application, planner.dag_id) != _who(self.owner):
                return False
        said = Narrowing(
            new_write_id(),
            rerun.key,
            table.job_of_key(rerun.key),
            rerun.versions,
            self.seconds,
            replace(self.owner, run_id=rerun.state, task_id=self.name),
            makes_no_other(table, rerun.key, [*rerun.versions]),
            settles=rerun.settles,
        )
        return table.run(leave_narrowing(root, said, left))

    def _asked_for(self, state: str) -> DagsterRun | None:
        """The last run that was asked for so, or re-executed from that."""
        filters = dg.RunsFilter(tags={TAG: state})
        return next(iter(self.assets.context.instance.get_runs(filters, limit=1)), None)

    def _writes(self, run: DagsterRun, rerun: _SettlingRerun) -> bool:
        """Tell whether a run may write a partition in conflict, by whichever asset of the table."""
        for node in self.assets.nodes.values():
            if not node.is_materializable or not self.assets.writes(run, node, None):
                continue
            reference = self.assets.reference(node.key)
            if reference.table(self.assets.resource).root != rerun.table.root:
                continue
            keys = self.assets.keys(run, node)
            if keys is None or not rerun.versions.keys().isdisjoint(
                reference.paths(sorted(keys), rerun.table).values()
            ):
                return True
        return False

    def result(self) -> dg.SensorResult | dg.SkipReason:
        """:raises Failure: something is not settled, and no run is asked for."""
        for text in self.refused:
            self.assets.context.log.warning(f"Not settled: {text}.")
        if self.requests:
            return dg.SensorResult(run_requests=self.requests)
        if self.refused:
            number = counted(len(self.refused), "conflict is", "conflicts are")
            raise dg.Failure(f"{number} not settled. {'; '.join(map(escaped, self.refused[:5]))}.")
        if self.planned:
            return dg.SkipReason(f"Would run again {first_few(self.planned)}: apply=True does.")
        if self.waits:
            return dg.SkipReason(f"Waits for {first_few(self.waits)}.")
        return dg.SkipReason("No conflict is to be settled.")


def _who(owner: Owner) -> tuple[str | None, str | None]:
    return owner.application, owner.dag_id


def _why_not_by_hadoop(conflict: RunConflict, policy: SettlementPolicy) -> str:
    """Say why a run that Hadoop's committers loaded is not asked for again, and what to do."""
    try:
        winner = policy.winner(conflict)
    except InvalidInputError as error:
        return str(error)
    owner = winner.owner
    if owner.application != APPLICATION:
        by = owner.dag_id or owner.application or "an unnamed program"
        return (
            f"The run that is to stand was made outside Dagster, by {by}, by Hadoop's committers: "
            "run it again there, with on_conflict='last_wins'"
        )
    return (
        f"The run {owner.run_id} of the asset {owner.task_id!r} loaded it by Hadoop's committers, "
        "and such a load cannot be narrowed to the partitions in conflict, so this sensor asks for "
        "none. If the asset replaces its partitions, materialise it by hand for those of that run, "
        "with on_conflict='last_wins'"
    )


def _is_over(run: DagsterRun) -> bool:
    """Tell whether a run has ended, and its daemon is not about to retry it."""
    return run.is_finished and not run.is_complete_and_waiting_to_retry
