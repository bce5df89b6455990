"""Sensor that runs again what tables need to be as their inputs are, a layer at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from itertools import groupby
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster._config import ConfigTypeKind
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES
from dagster._core.storage.tags import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
    PARTITION_NAME_TAG,
)

from zero_rename.committer.errors import InvalidInputError, counted, first_few
from zero_rename.committer.format.job_spec import Mode
from zero_rename.lineage import Step, look_up, plan

from ..asset_step import APPLICATION
from ..resource import ZeroRenameResource
from .asset_reference import RESOURCE, AssetLike, AssetReference

if TYPE_CHECKING:
    from dagster import DagsterRun
    from dagster._core.definitions.assets.graph.asset_graph import AssetNode

    from zero_rename.committer.table import Table

#: Tag of a run that a sensor has asked for: what it was to make again, from what.
TAG = "zero_rename/recompute"


class _CannotRecomputeError(Exception):
    """What must not be run, or was run in vain. The message says why."""


def recompute_sensor(
    *targets: AssetLike,
    name: str = "zero_rename_recompute",
    lost: bool = True,
    code_versions: Mapping[dg.AssetKey | str, str] | None = None,
    minimum_interval_seconds: int = 300,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
    resource_key: str = RESOURCE,
) -> dg.SensorDefinition:
    """A sensor that runs again what assets need so that their tables are as their inputs are.

    A tick plans, and asks for runs of the plan's first layer: each of an asset, for those of its
    partitions that are stale, behind, or lost. While these run it waits, and then plans anew, so
    that what came out equal ends there. What is the same is asked for once: where its run fails, or
    ends without loading, the tick fails and says so; an input that moves again, or a re-execution
    of that run, goes on. Runs of the same partitions that others have started are waited for.

    A tick that fails names what must not be run: what the plan refuses, a job of no asset of this
    code location, an asset that appends. Each table is whole meanwhile, and what is stale stays so.

    :param targets: assets, as definitions or by their keys, which are to be as their inputs are;
        what is between them and these inputs is run again, too, where it is an asset.
    :param name: the sensor's.
    :param lost: look, too, whether the files are there: a listing of each table.
    :param code_versions: by asset, the present version of its code: rows that another one made, or
        of which it is not known, are stale. An asset that is defined with another ``code_version``
        is not run for it.
    :param minimum_interval_seconds: between two ticks.
    :param default_status: whether it runs before somebody turns it on.
    :param resource_key: under which the :class:`~dagster_zero_rename.ZeroRenameResource` is.
    """
    keys = [AssetReference.of(target).key for target in targets]
    versions = {AssetReference.of(it).key: now for it, now in (code_versions or {}).items()}

    @dg.sensor(
        name=name,
        asset_selection=dg.AssetSelection.all(),
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=default_status,
        required_resource_keys={resource_key},
        description="Runs again what is stale or lost, a layer at a time.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        assets = _Assets(context, getattr(context.resources, resource_key), versions)
        return _tick(context, assets, keys, lost)

    return sensor


def _tick(
    context: dg.SensorEvaluationContext, assets: _Assets, targets: Sequence[dg.AssetKey], lost: bool
) -> dg.SensorResult | dg.SkipReason:
    # Before the plan: what ends after this look may have loaded what the plan calls stale.
    running = _Running.of(assets)
    urls = [table.root.url for key in targets if (table := assets.table(key)).exists()]
    versions = {assets.table(key).root.url: now for key, now in assets.code_versions.items()}
    graph = look_up(urls, assets.resource.client(), lost=lost, code_versions=versions)
    # A run writes the partitions that it is asked for and no others, so it takes nothing away.
    alone = {key: replace(node, replaced={}) for key, node in graph.nodes.items()}
    found = plan(replace(graph, nodes=alone))
    layer = _Layer([f"job {it.job or '—'} of {it.table}: {it.why}" for it in found.refused])
    for step in found.layers[0] if found.layers else ():
        try:
            layer.add(_runs(assets, step), running)
        except _CannotRecomputeError as error:
            layer.refused.append(f"job {step.job} of {step.table}: {error}")
    for text in layer.refused:
        context.log.warning(f"Not run again: {text}.")
    if layer.requests:
        rest = counted(sum(map(len, found.layers[1:])), "job")
        runs = counted(len(layer.requests), "run")
        context.log.info(f"{runs} of the first layer; {rest} in later ones.")
        return dg.SensorResult(run_requests=layer.requests)
    if layer.waits:
        return dg.SkipReason(f"Waits for {first_few(layer.waits)}.")
    if layer.refused:
        raise dg.Failure(
            f"Not all can be run again: {'; '.join(layer.refused)}. Each table is whole; what is "
            "stale stays so. `zero-rename lineage plan` names it."
        )
    return dg.SkipReason("Nothing is to be run again.")


@dataclass(frozen=True)
class _Rerun:
    """Partitions of an asset that one run makes again.

    :param keys: the partition keys, which follow each other; ``None``: it has no partitions.
    :param state: what tells this from all else that was, or will be, stale there.
    """

    node: AssetNode
    keys: tuple[str, ...] | None
    state: str
    config: Mapping[str, Any]
    step: Step

    def request(self) -> dg.RunRequest:
        keys, tags = self.keys or (), {TAG: self.state}
        if len(keys) > 1:
            tags[ASSET_PARTITION_RANGE_START_TAG] = keys[0]
            tags[ASSET_PARTITION_RANGE_END_TAG] = keys[-1]
        return dg.RunRequest(
            run_key=self.state,
            asset_selection=sorted(self.node.execution_set_asset_keys),
            partition_key=keys[0] if len(keys) == 1 else None,
            run_config=self.config,
            tags=tags,
        )

    def __str__(self) -> str:
        of = "" if self.keys is None else f" of {first_few(self.keys)}"
        return f"asset {self.node.key.to_user_string()!r}{of}"


@dataclass
class _Layer:
    """What becomes of the jobs of a layer."""

    refused: list[str]
    requests: list[dg.RunRequest] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)

    def add(self, runs: Sequence[_Rerun], running: _Running) -> None:
        """:raises _CannotRecomputeError: one was run before, and that did not help."""
        for run in runs:
            other = running.of_same(run)
            if other is not None:
                self.waits.append(f"run {other.run_id}, of {run}")
            else:
                self.requests.append(run.request())


@dataclass(frozen=True)
class _Assets:
    """The code location's assets and the instance's runs.

    :param code_versions: that the sensor asks for.
    """

    context: dg.SensorEvaluationContext
    resource: ZeroRenameResource
    code_versions: Mapping[dg.AssetKey, str]

    @cached_property
    def nodes(self) -> Mapping[dg.AssetKey, AssetNode]:
        repository = self.context.repository_def
        assert repository is not None  # The daemon and a code server always have one.
        graph = repository.asset_graph
        return {key: graph.get(key) for key in graph.get_all_asset_keys()}

    def reference(self, key: dg.AssetKey) -> AssetReference:
        """:raises Failure: there is none."""
        if key not in self.nodes:
            raise dg.Failure(f"The code location has no asset {key.to_user_string()!r}.")
        node = self.nodes[key]
        return AssetReference(key, node.partitions_def, node.metadata)

    def table(self, key: dg.AssetKey) -> Table:
        return self.reference(key).table(self.resource)


@dataclass(frozen=True)
class _Running:
    """Runs that had not ended at one time."""

    assets: _Assets
    runs: tuple[DagsterRun, ...]

    @staticmethod
    def of(assets: _Assets) -> _Running:
        statuses = dg.RunsFilter(statuses=NOT_FINISHED_STATUSES)
        return _Running(assets, tuple(assets.context.instance.get_runs(statuses)))

    def of_same(self, run: _Rerun) -> DagsterRun | None:
        """A run that is to be waited for: it makes some of the same partitions, or its daemon is
        about to retry it.

        :raises _CannotRecomputeError: what was asked for was run, and has not helped.
        """
        for other in self.runs:
            if self._writes(other, run):
                return other
        filters = dg.RunsFilter(tags={TAG: run.state})
        for last in self.assets.context.instance.get_runs(filters, limit=1):
            # A retry's tags are those of the run before.
            if not last.is_finished or last.is_complete_and_waiting_to_retry:
                return last
            how = (
                f"ended, and {first_few(run.step.partitions)} still hold rows of that job: it did "
                "not load them"
                if last.is_success
                else f"is {last.status.value}; mend what failed there and re-execute it"
            )
            raise _CannotRecomputeError(f"run {last.run_id} of {run} {how}")
        return None

    def _writes(self, other: DagsterRun, run: _Rerun) -> bool:
        selected = other.asset_selection
        if selected is None:
            repository = self.assets.context.repository_def
            known = repository is not None and repository.has_job(other.job_name)
            job = repository.get_job(other.job_name) if repository and known else None
            selected = frozenset() if job is None else job.asset_layer.executable_asset_keys
        if run.node.key not in selected:
            return False
        with dg.partition_loading_context(dynamic_partitions_store=self.assets.context.instance):
            keys = _keys_of(other, run.node)
        return keys is None or run.keys is None or not keys.isdisjoint(run.keys)


def _keys_of(run: DagsterRun, node: AssetNode) -> frozenset[str] | None:
    """The partition keys that a run is of; ``None``: it does not say."""
    one = run.tags.get(PARTITION_NAME_TAG)
    first = run.tags.get(ASSET_PARTITION_RANGE_START_TAG, one)
    last = run.tags.get(ASSET_PARTITION_RANGE_END_TAG, one)
    partitions = node.partitions_def
    if first is None or last is None or partitions is None:
        return None
    if first == last:
        return frozenset({first})
    if not all(partitions.has_partition_key(key) for key in (first, last)):
        return None
    return frozenset(partitions.get_partition_keys_in_range(dg.PartitionKeyRange(first, last)))


def _runs(assets: _Assets, step: Step) -> list[_Rerun]:
    """The runs that make a job's partitions again.

    :raises _CannotRecomputeError: there are none.
    """
    node = _asset_of(assets, step)
    config = _config(assets, node, step)
    ranges = [None] if node.partitions_def is None else _ranges(assets, node, step)
    return [_Rerun(node, keys, _state(step, keys or ()), config, step) for keys in ranges]


def _asset_of(assets: _Assets, step: Step) -> AssetNode:
    """The asset that a job has written.

    :raises _CannotRecomputeError: it is none of this code location's, or must not be run again.
    """
    run = step.run
    if not (run.idempotency_key or "").startswith(f"{APPLICATION}/") or not run.owner.task_id:
        by = run.owner.dag_id or run.owner.application or "an unnamed program"
        raise _CannotRecomputeError(
            f"it was run outside Dagster, by {by}: run it again there, for "
            f"{first_few(step.partitions)}"
        )
    node = assets.nodes.get(dg.AssetKey.from_user_string(run.owner.task_id))
    if node is None or not node.is_materializable:
        raise _CannotRecomputeError(
            f"this code location has no asset {run.owner.task_id!r} that could be run"
        )
    url = assets.table(node.key).root.url
    if url != step.table:
        raise _CannotRecomputeError(f"the asset {run.owner.task_id!r} is the table {url} by now")
    now = assets.code_versions.get(node.key, node.code_version)
    if node.code_version != now:
        mine = f"code version {node.code_version}" if node.code_version else "no code version"
        raise _CannotRecomputeError(
            f"the asset {run.owner.task_id!r} has {mine} here, and {now} is asked for: deploy "
            "that, or say in code_versions the one that it has"
        )
    if run.mode is Mode.APPEND:
        raise _CannotRecomputeError(
            f"the asset {run.owner.task_id!r} appends, so a new run would load its rows beside "
            f"those that are there: re-execute run {run.owner.run_id}"
        )
    return node


def _config(assets: _Assets, node: AssetNode, step: Step) -> Mapping[str, Any]:
    """The configuration that the job's run had given the asset.

    :raises _CannotRecomputeError: it is not known any more.
    """
    op = node.assets_def.node_def
    run_id = step.run.owner.run_id or ""
    run = assets.context.instance.get_run_by_id(run_id)
    if run is not None:
        ops: Any = run.run_config.get("ops", {})
        return {"ops": {op.name: ops[op.name]}} if ops.get(op.name) else {}
    schema = op.config_field if isinstance(op, dg.OpDefinition) else None
    if schema is not None and schema.config_type.kind is not ConfigTypeKind.ANY:
        raise _CannotRecomputeError(
            f"run {run_id} is not on record any more, nor how it had configured the asset "
            f"{node.key.to_user_string()!r}: materialise it by hand"
        )
    return {}


def _ranges(assets: _Assets, node: AssetNode, step: Step) -> Iterator[tuple[str, ...]]:
    """The keys of a job's partitions: those that follow each other, as many as the asset's
    backfills have in a run.

    :raises _CannotRecomputeError: a partition without a key.
    """
    reference = assets.reference(node.key)
    try:
        known = reference.keys(assets.table(node.key), assets.context.instance)
    except InvalidInputError as error:
        raise _CannotRecomputeError(error.message) from error
    odd = [path for path in step.partitions if path not in known]
    if odd:
        raise _CannotRecomputeError(
            f"{first_few(odd)} is no partition that the asset {reference.name!r} has"
        )
    wanted, policy = {known[path] for path in step.partitions}, node.backfill_policy
    most = 1 if policy is None else policy.max_partitions_per_run or len(known)
    if isinstance(node.partitions_def, dg.MultiPartitionsDefinition):
        most = 1
    for is_wanted, keys in groupby(known.values(), wanted.__contains__):
        row = tuple(keys) if is_wanted else ()
        yield from (row[first : first + most] for first in range(0, len(row), most))


def _state(step: Step, keys: Sequence[str]) -> str:
    told = json.dumps([step.table, step.job, keys, step.why])
    return sha256(told.encode()).hexdigest()[:32]
