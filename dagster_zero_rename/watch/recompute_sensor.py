"""Sensor that runs assets again, a layer at a time, until tables agree with their inputs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster._core.storage.tags import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
)

from zero_rename.committer.errors import ZeroRenameError, counted, first_few
from zero_rename.committer.format.job_spec import Mode
from zero_rename.committer.table import Table
from zero_rename.lineage import LineageGraph, Step, look_up, plan

from ..asset_step import APPLICATION, same_run
from .asset_reference import RESOURCE, AssetLike, AssetReference
from .heads import is_hadoops
from .known_assets import CannotRunError, KnownAssets

if TYPE_CHECKING:
    from dagster import DagsterRun
    from dagster._core.definitions.assets.graph.asset_graph import AssetNode


#: Tag of a run that a sensor has requested: a digest of what it is to make again, and from what.
TAG = "zero_rename/recompute"


def recompute_sensor(
    *targets: AssetLike,
    name: str = "zero_rename_recompute",
    lost: bool = True,
    code_versions: Mapping[dg.AssetKey | str, str] | None = None,
    minimum_interval_seconds: int = 300,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
    resource_key: str = RESOURCE,
) -> dg.SensorDefinition:
    """Make a sensor that runs assets again until their tables agree with their inputs.

    A tick makes a plan, and requests runs for the plan's first layer. Each run is for one asset,
    and for those of its partitions that are stale, behind, or lost. While these run the sensor
    waits; then it makes a new plan, so jobs whose inputs came out equal are not run. The same work
    is requested once: if its run fails, or ends without loading, the tick fails and says so. The
    sensor continues when an input changes again, or when that run is re-executed. It also waits for
    runs of the same partitions that others have started.

    A tick that fails names what must not be run: what the plan refuses, a job that belongs to no
    asset of this code location, an asset that appends, a target that Hadoop's committers load or
    that cannot be read. Each table stays whole, and stale partitions stay stale. The other targets
    are run again.

    :param targets: the assets that are to agree with their inputs, as definitions or by their keys.
        Whatever lies between them and fresh inputs is run again, too, if it is an asset.
    :param name: the sensor's.
    :param lost: check also that the files are there, by a listing of each table.
    :param code_versions: the present version of an asset's code, by asset. Rows that another
        version made are stale, and so are rows whose version is not known. An asset that is defined
        with another ``code_version`` is not run for this.
    :param minimum_interval_seconds: between two ticks.
    :param default_status: whether the sensor runs before a user turns it on.
    :param resource_key: the key of the :class:`~dagster_zero_rename.ZeroRenameResource`.
    """
    keys = [AssetReference.of(target).key for target in targets]
    versions = {AssetReference.of(it).key: now for it, now in (code_versions or {}).items()}

    @dg.sensor(
        name=name,
        asset_selection=dg.AssetSelection.all(),
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=default_status,
        required_resource_keys={resource_key},
        description="Runs jobs again to make stale or lost partitions, one layer at a time.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        assets = _Assets(context, getattr(context.resources, resource_key), versions)
        return _tick(context, assets, keys, lost)

    return sensor


def _tick(
    context: dg.SensorEvaluationContext, assets: _Assets, targets: Sequence[dg.AssetKey], lost: bool
) -> dg.SensorResult | dg.SkipReason:
    # List the runs before the plan: one that ends in between may have loaded what the plan then
    # calls stale.
    running = _Running.of(assets)
    search = _Search(assets, lost)
    urls = search.urls_of(targets)
    graph = search.graph_behind(urls)
    # A run writes only the partitions that it is asked for, so it removes no rows in others.
    found = plan(graph, alone=True)
    refused = [f"job {it.job or '—'} of {it.table}: {it.why}" for it in found.refused]
    layer = _Layer(list(dict.fromkeys((*refused, *search.refused))))
    for step in found.layers[0] if found.layers else ():
        job = f"job {step.job} of {step.table}"
        try:
            runs, left = _runs(assets, step)
            layer.add(runs, running)
        except CannotRunError as error:
            layer.refused.append(f"{job}: {error}")
        else:
            layer.refused += [f"{job}: {left}"] if left else []
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
            f"Not all can be run again: {'; '.join(layer.refused)}. No table was changed, and what "
            "is stale stays so. `zero-rename lineage plan` names it."
        )
    return dg.SkipReason("Nothing needs to run again.")


@dataclass
class _Search:
    """Search for what is stale behind targets.

    :param lost: as for :func:`recompute_sensor`.
    :param refused: the targets that cannot be searched, with the reason.
    """

    assets: _Assets
    lost: bool
    refused: list[str] = field(default_factory=list)

    def urls_of(self, targets: Iterable[dg.AssetKey]) -> list[str]:
        """Return the tables of targets, without those that are not there yet."""
        found = dict[str, None]()
        for key in targets:
            with self.assets.noting(f"asset {key.to_user_string()!r}", self.refused):
                table = self.assets.table_as_it_is(key)
                if table.exists():
                    found[table.root.url] = None
                elif isinstance(table, Table) and is_hadoops(table):
                    why = "Hadoop's committers load it, and record no inputs"
                    self.refused.append(f"{table.root.url}: {why}")
        return list(found)

    def graph_behind(self, urls: Sequence[str]) -> LineageGraph:
        """Build the graph of the jobs behind tables. Leave out tables that cannot be read, and
        those behind which a table cannot be read."""
        versions = self._code_versions()
        try:
            return self._look_up(urls, versions)
        except ZeroRenameError:
            readable = []
            for url in urls:
                with self.assets.noting(url, self.refused):
                    self._look_up([url], versions)
                    readable.append(url)
            return self._look_up(readable, versions)

    def _look_up(self, urls: Sequence[str], versions: Mapping[str, str]) -> LineageGraph:
        client = self.assets.resource.client()
        return look_up(urls, client, lost=self.lost, code_versions=versions)

    def _code_versions(self) -> dict[str, str]:
        """Return the code versions that the sensor asks for, by the tables that are there."""
        versions = self.assets.code_versions
        return {url: versions[key] for key in versions for url in self.urls_of([key])}


@dataclass(frozen=True)
class _Rerun:
    """Partitions of an asset that one run makes again.

    :param keys: the partition keys, adjacent to each other; ``None``: the asset has no partitions.
    :param state: a digest of the partitions and of why they are stale, different at each change.
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
    """The outcomes for the jobs of a layer: refused, requested, or waiting."""

    refused: list[str]
    requests: list[dg.RunRequest] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)

    def add(self, runs: Sequence[_Rerun], running: _Running) -> None:
        """Request runs, except those that must wait for another run.

        :raises CannotRunError: the same work was run before, and that did not help.
        """
        for run in runs:
            other = running.of_same(run)
            if other is not None:
                self.waits.append(f"run {other.run_id}, of {run}")
            else:
                self.requests.append(run.request())


@dataclass(frozen=True)
class _Assets(KnownAssets):
    """The code location's assets and the instance's runs.

    :param code_versions: those that the sensor asks for.
    """

    code_versions: Mapping[dg.AssetKey, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Running:
    """The runs that had not ended at one time."""

    assets: _Assets
    runs: tuple[DagsterRun, ...]

    @staticmethod
    def of(assets: _Assets) -> _Running:
        return _Running(assets, assets.unfinished())

    def of_same(self, run: _Rerun) -> DagsterRun | None:
        """Return a run to wait for: it makes some of the same partitions, or its daemon is about to
        retry it.

        :raises CannotRunError: the same work was run before, and that did not help.
        """
        for other in self.runs:
            if self.assets.writes(other, run.node, run.keys):
                return other
        filters = dg.RunsFilter(tags={TAG: run.state})
        for last in self.assets.context.instance.get_runs(filters, limit=1):
            # A retry has the tags of the run before.
            if not last.is_finished or last.is_complete_and_waiting_to_retry:
                return last
            how = (
                f"ended, and {first_few(run.step.partitions)} still hold rows of that job: it did "
                "not load them"
                if last.is_success
                else f"is {last.status.value}; mend what failed there and re-execute it"
            )
            raise CannotRunError(f"run {last.run_id} of {run} {how}")
        return None


def _runs(assets: _Assets, step: Step) -> tuple[list[_Rerun], str]:
    """Return the runs that make a job's partitions again; and why they do not make all of them,
    ``""`` if they do.

    :raises CannotRunError: there are none.
    """
    node = _asset_of(assets, step)
    config = assets.config(node, step.run.owner.run_id or "")
    if node.partitions_def is None:
        return [_Rerun(node, None, _state(step, ()), config, step)], ""
    ranges, odd = assets.ranges(node, step.partitions)
    name = node.key.to_user_string()
    left = f"{first_few(odd)} is no partition that the asset {name!r} has" if odd else ""
    if not ranges:
        raise CannotRunError(left)
    return [_Rerun(node, keys, _state(step, keys), config, step) for keys in ranges], left


def _asset_of(assets: _Assets, step: Step) -> AssetNode:
    """Return the asset that a job has written.

    :raises CannotRunError: the code location has no such asset, or it must not be run again.
    """
    run = step.run
    if not (run.idempotency_key or "").startswith(f"{APPLICATION}/") or not run.owner.task_id:
        by = run.owner.dag_id or run.owner.application or "an unnamed program"
        raise CannotRunError(
            f"it was run outside Dagster, by {by}: run it again there, for "
            f"{first_few(step.partitions)}"
        )
    node = assets.nodes.get(dg.AssetKey.from_user_string(run.owner.task_id))
    if node is None or not node.is_materializable:
        raise CannotRunError(
            f"this code location has no asset {run.owner.task_id!r} that could be run"
        )
    url = assets.table(node.key).root.url
    if url != step.table:
        raise CannotRunError(f"the asset {run.owner.task_id!r} is the table {url} by now")
    now = assets.code_versions.get(node.key, node.code_version)
    if node.code_version != now:
        mine = f"code version {node.code_version}" if node.code_version else "no code version"
        raise CannotRunError(
            f"the asset {run.owner.task_id!r} has {mine} here, and {now} is asked for: deploy "
            "that, or say in code_versions the one that it has"
        )
    if run.mode is Mode.APPEND:
        raise CannotRunError(
            f"the asset {run.owner.task_id!r} appends, so a new run would load its rows beside "
            f"those that are there: re-execute run {run.owner.run_id}"
        )
    for key in sorted(node.execution_set_asset_keys - {node.key}):
        if assets.appends(key, same_run(run.idempotency_key or "", key)):
            raise CannotRunError(
                f"the function of the asset {run.owner.task_id!r} also makes the asset "
                f"{key.to_user_string()!r}, which appends, so a new run would load its rows beside "
                f"those that are there: re-execute run {run.owner.run_id}"
            )
    return node


def _state(step: Step, keys: Sequence[str]) -> str:
    told = json.dumps([step.table, step.job, keys, step.why, step.moved])
    return sha256(told.encode()).hexdigest()[:32]
