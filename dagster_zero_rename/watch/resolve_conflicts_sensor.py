"""Sensor that settles conflicts of runs: it runs the chosen run again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster._core.storage.tags import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
    PARTITION_NAME_TAG,
)

from zero_rename.committer.errors import (
    DamagedError,
    InvalidInputError,
    TableNotFoundError,
    counted,
    escaped,
    first_few,
)
from zero_rename.committer.format.job_spec import Mode, Owner
from zero_rename.committer.format.records.run_conflict import SettledBy, Settlement, is_dagsters
from zero_rename.committer.upkeep.conflicts.settlement_policy import SettlementPolicy
from zero_rename.maintenance.conflicts import ChosenRun, choose_reruns, find_here, note_rerun
from zero_rename.orchestration.runs.arguments import read_seconds
from zero_rename.s3a.runs.run_conflicts import S3A
from zero_rename.tables.table_at import opened_as_it_is

from ..asset_step import APPLICATION, DOES_AGAIN, digest_of_keys, idempotency_key_of, keys_digest_of
from ..resource import MODE
from .asset_reference import RESOURCE, AssetLike, AssetReference
from .known_assets import CannotRunError, KnownAssets
from .settling_rerun import AskedRerun, SettlingRerun, asked_reruns

if TYPE_CHECKING:
    from dagster import DagsterRun
    from dagster._core.definitions.assets.graph.asset_graph import AssetNode

    from zero_rename.committer.table import Table

#: Tag of a run that a sensor has requested: a digest of the conflicts that it is to settle.
TAG = "zero_rename/resolves"
#: Tag of such a run: the policy that chose it. The sensor may have another one when the run ends.
POLICY_TAG = "zero_rename/policy"
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
    """Make a sensor that settles conflicts of runs over the partitions of assets' tables by reruns.

    A policy names the run that is to stand, and that run's asset is run again for its partitions.
    The rerun loads only the partitions in conflict, whatever its rank. It is bound to the state
    that the search saw: if another run has loaded since, it fails and nothing is settled. With one
    of Hadoop's committers the whole run loads again; it is refused if another run has won one of
    its partitions, or if it has appended.

    The next tick checks what the rerun has loaded, and records the result. Once a conflict is
    settled, the runs that lost give way, except under ``last_wins``. The same rerun is requested
    once: if it fails, or ends without loading, the tick fails and says so. The sensor waits for
    runs of the same assets' partitions that others have started.

    A tick that fails names what is not settled, with the reason: the policy names no run, the run
    was made outside Dagster, the asset appends or merges, the partition has rows of runs that are
    no part of the conflict, or a run's record cannot be read.

    :param targets: the assets whose tables are searched, as definitions or by their keys.
    :param policy: ``newest_run``; ``{"prefer": ["corrections", "flights_daily"]}``, jobs or assets
        in order; or ``{"keep": [job]}``.
    :param apply: request runs; ``False`` only says which.
    :param timeout: how long a run that was requested may wait before it begins.
    :param name: the sensor's.
    :param minimum_interval_seconds: between two ticks.
    :param default_status: whether the sensor runs before a user turns it on.
    :param resource_key: the key of the :class:`~dagster_zero_rename.ZeroRenameResource`.
    :raises InvalidInputError: the policy or the timeout is invalid.
    """
    keys = [AssetReference.of(target).key for target in targets]
    chosen, seconds = SettlementPolicy.parse(policy), int(read_seconds("timeout", timeout))

    @dg.sensor(
        name=name,
        asset_selection=dg.AssetSelection.all(),
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=default_status,
        required_resource_keys={resource_key},
        description="Settles conflicts of runs: runs the one again whose rows are to stay.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        assets = KnownAssets(context, getattr(context.resources, resource_key))
        tick = _Tick(assets, chosen, apply, seconds, name)
        tick.look_at_tables(keys)
        return tick.result()

    return sensor


@dataclass
class _Tick:
    """One tick of the sensor over all tables, and its results.

    :param seconds: the time in which a run that is requested must begin.
    :param failed: the targets that could not be searched, with the reason.
    """

    assets: KnownAssets
    policy: SettlementPolicy
    apply: bool
    seconds: int
    name: str
    requests: list[dg.RunRequest] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    planned: list[str] = field(default_factory=list)

    @property
    def owner(self) -> Owner:
        """The owner of the decisions."""
        return Owner(dag_id=self.name, application=APPLICATION)

    def look_at_tables(self, keys: Sequence[dg.AssetKey]) -> None:
        """Look at the table of each target, once if several targets have the same one."""
        tables: dict[str, Table] = {}
        for key in keys:
            with self.assets.noting(f"asset {key.to_user_string()!r}", self.failed):
                table = self.assets.table(key)
                tables[table.root.url] = table
        for url, table in tables.items():
            with self.assets.noting(url, self.failed):
                self.look_at(table)

    def look_at(self, table: Table) -> None:
        """Record the outcomes of runs that were requested; then find open conflicts, and request
        runs."""
        # Do this before the search: it would close what they have settled without recording who
        # decided.
        for asked in asked_reruns(table, self.owner):
            self._note_ended(table, asked)
        found = find_here(table)
        self.refused += [f"{table.root.url}: {why}" for it in found for why in it.unread]
        left = {one.partition for it in found for one in it.unresolved}
        if left:
            self._settle(table, sorted(left))

    def _note_ended(self, table: Table, asked: AskedRerun) -> None:
        """If a requested run has ended well, record which conflicts it has settled."""
        said = asked.left.said
        run = self._asked_for(said.planner.run_id or "")
        if run is None or not run.is_success:
            return  # If the run has failed, its re-execution may still settle the conflicts.
        for name, (job, why) in asked.outcomes().items():
            settling = said.settles[name]
            done = Settlement(
                settling.runs.stands,
                settling.runs.losers,
                settling.rank,
                self.owner,
                run.tags.get(POLICY_TAG, str(self.policy)),
                SettledBy.RERUN,
                job=job,
                error=why,
            )
            if note_rerun(table, asked.committer, name, done) is None:
                # A conflict from before the directory of Hadoop's committers became a Delta table.
                note_rerun(table, S3A, name, done)
        asked.end()

    def _settle(self, table: Table, partitions: Sequence[str]) -> None:
        runs: dict[tuple[str, str], list[ChosenRun]] = {}
        for it in choose_reruns(table, self.policy, partitions, self.owner):
            if it.settlement.error:
                self._refuse(table, (it,), it.settlement.error)
            else:
                runs.setdefault((it.committer, it.settlement.stands), []).append(it)
        unfinished = self.assets.unfinished()
        for of_run in runs.values():
            try:
                rerun = SettlingRerun.of(table, of_run)
                writing = [run for run in unfinished if self._writes(run, rerun)]
                self.waits += [f"run {run.run_id}" for run in writing]
                if not writing:
                    self._ask_for(rerun)
            except (CannotRunError, InvalidInputError, DamagedError) as error:
                self._refuse(table, of_run, str(error))

    def _refuse(self, table: Table, chosen: Sequence[ChosenRun], why: str) -> None:
        for it in chosen:
            self.refused.append(f"{it.conflict.name} of {table.root.url}: {why}")
            if self.apply:
                said = replace(it.settlement, error=why)
                note_rerun(table, it.committer, it.conflict.partition, said)

    def _ask_for(self, rerun: SettlingRerun) -> None:
        """Request a run, after recording the restriction that says what it settles.

        :raises CannotRunError: it must not be run, or was run before and did not help.
        """
        node, run = self._run_of(rerun)
        last = self._asked_for(rerun.state)
        if last is not None and not _is_over(last):
            self.waits.append(f"run {last.run_id}")
            return
        if last is not None:
            raise CannotRunError(_why_in_vain(last, rerun.chosen[0].conflict.settlement))
        config = self.assets.config(node, run.run_id)
        if not self.apply:
            self.planned.append(f"{node.key.to_user_string()} for {rerun}")
            return
        planner = replace(self.owner, run_id=rerun.state, task_id=self.name)
        if not rerun.leave(planner, self.seconds):
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
                tags={TAG: rerun.state, POLICY_TAG: str(self.policy), DOES_AGAIN: root, **ends},
            )
        )

    def _run_of(self, rerun: SettlingRerun) -> tuple[AssetNode, DagsterRun]:
        """Find the asset and the run that a rerun is to repeat.

        :raises CannotRunError: the run cannot be made again.
        """
        owner, url = rerun.owner, rerun.table.root.url
        if not (is_dagsters(owner, rerun.key) and rerun.key.startswith(f"{APPLICATION}/")):
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
                "it without a rerun"
            )
        run = self.assets.context.instance.get_run_by_id(owner.run_id or "")
        if run is None:
            raise CannotRunError(
                f"run {owner.run_id} is not on record any more: materialise {asset!r} by hand, "
                "with on_conflict='last_wins'"
            )
        keys = None if node.partitions_def is None else self.assets.keys(run, node)
        key = idempotency_key_of(rerun.key.split("/")[1], node.key, keys)
        if key != rerun.key or keys_digest_of(owner) not in ("", digest_of_keys(keys)):
            raise CannotRunError(
                f"the asset {asset!r} has other partitions by now than run {owner.run_id} was of: "
                "materialise it by hand, with on_conflict='last_wins'"
            )
        return node, run

    def _asked_for(self, state: str) -> DagsterRun | None:
        """Return the last run that was requested for a state, or re-executed from such a run."""
        filters = dg.RunsFilter(tags={TAG: state})
        return next(iter(self.assets.context.instance.get_runs(filters, limit=1)), None)

    def _writes(self, run: DagsterRun, rerun: SettlingRerun) -> bool:
        """Return whether a run may write a partition in conflict, through any asset of the
        table."""
        table = opened_as_it_is(rerun.table)
        for node in self.assets.nodes.values():
            if not node.is_materializable or not self.assets.writes(run, node, None):
                continue
            reference = self.assets.reference(node.key)
            if reference.table(self.assets.resource).root != rerun.table.root:
                continue
            keys = self.assets.keys(run, node)
            if keys is None:
                return True
            try:
                paths = reference.paths(keys, table).values()
            except TableNotFoundError:
                return True  # Hadoop's committers have left no file, so the columns are unknown.
            if not rerun.versions.keys().isdisjoint(paths):
                return True
        return False

    def result(self) -> dg.SensorResult | dg.SkipReason:
        """Return the result of the tick.

        :raises Failure: a conflict is not settled, or a target could not be searched, and no run is
            requested.
        """
        for text in self.refused:
            self.assets.context.log.warning(f"Not settled: {text}.")
        if self.requests:
            return dg.SensorResult(run_requests=self.requests)
        said = []
        if self.failed:
            number = counted(len(self.failed), "target")
            said.append(f"{number} could not be searched. {_listed(self.failed)}.")
        if self.refused:
            number = counted(len(self.refused), "conflict is", "conflicts are")
            said.append(f"{number} not settled. {_listed(self.refused)}.")
        if said:
            raise dg.Failure(" ".join(said))
        if self.planned:
            return dg.SkipReason(f"Would run again {first_few(self.planned)}: apply=True does.")
        if self.waits:
            return dg.SkipReason(f"Waits for {first_few(self.waits)}.")
        return dg.SkipReason("No conflict has to be settled.")


def _listed(texts: Sequence[str]) -> str:
    return "; ".join(escaped(text.removesuffix(".")) for text in texts[:5])


def _why_in_vain(run: DagsterRun, told: Settlement | None) -> str:
    """Return why a run that has ended has settled nothing.

    :param told: what is on record about the conflict.
    """
    if not run.is_success:
        return f"run {run.run_id} is {run.status.value}: mend what failed there, and re-execute it"
    if told is not None and told.error:
        return told.error
    return f"run {run.run_id} ended well, and did not settle the conflict: look what it has loaded"


def _is_over(run: DagsterRun) -> bool:
    """Return whether a run has ended and its daemon is not about to retry it."""
    return run.is_finished and not run.is_complete_and_waiting_to_retry
