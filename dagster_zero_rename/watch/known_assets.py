"""Assets of a code location, and the partitions of them that an instance's runs write."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
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

from zero_rename.committer.errors import InvalidInputError
from zero_rename.committer.format.job_spec import Mode
from zero_rename.tables import DeltaTable

from ..resource import MODE, ZeroRenameResource
from .asset_reference import AssetReference

if TYPE_CHECKING:
    from dagster import DagsterRun
    from dagster._core.definitions.assets.graph.asset_graph import AssetNode

    from zero_rename.committer.table import Table


class CannotRunError(Exception):
    """A run must not be requested, or did not help. The message says why."""


@dataclass(frozen=True)
class KnownAssets:
    """The assets of a code location during a sensor's tick."""

    context: dg.SensorEvaluationContext
    resource: ZeroRenameResource

    @cached_property
    def nodes(self) -> Mapping[dg.AssetKey, AssetNode]:
        repository = self.context.repository_def
        assert repository is not None  # The daemon and a code server always have one.
        graph = repository.asset_graph
        return {key: graph.get(key) for key in graph.get_all_asset_keys()}

    def reference(self, key: dg.AssetKey) -> AssetReference:
        """Return the reference to an asset.

        :raises Failure: the code location has no such asset.
        """
        if key not in self.nodes:
            raise dg.Failure(f"The code location has no asset {key.to_user_string()!r}.")
        node = self.nodes[key]
        return AssetReference(key, node.partitions_def, node.metadata)

    def table(self, key: dg.AssetKey) -> Table:
        return self.reference(key).table(self.resource)

    def table_as_it_is(self, key: dg.AssetKey) -> Table | DeltaTable:
        """Open the table of an asset in the layout that it has: three requests."""
        return self.reference(key).read_table(self.resource)

    @contextmanager
    def noting(self, target: str, failures: list[str]) -> Iterator[None]:
        """Log an error in the block and add it to ``failures``, so that the tick goes on with other
        targets.

        :param target: what the block is about, for the log and the text.
        """
        try:
            yield
        except Exception as error:
            self.context.log.exception(target)
            failures.append(f"{target}: {type(error).__name__}: {error}")

    def unfinished(self) -> tuple[DagsterRun, ...]:
        """Return the runs that have not ended."""
        statuses = dg.RunsFilter(statuses=NOT_FINISHED_STATUSES)
        return tuple(self.context.instance.get_runs(statuses))

    def writes(self, run: DagsterRun, node: AssetNode, keys: Collection[str] | None) -> bool:
        """Return whether a run may write some partitions of an asset.

        :param keys: the keys of these partitions; ``None``: the asset has no partitions.
        """
        selected = run.asset_selection
        if selected is None:
            repository = self.context.repository_def
            known = repository is not None and repository.has_job(run.job_name)
            job = repository.get_job(run.job_name) if repository and known else None
            selected = frozenset() if job is None else job.asset_layer.executable_asset_keys
        if node.key not in selected:
            return False
        mine = self.keys(run, node)
        return mine is None or keys is None or not {*mine}.isdisjoint(keys)

    def keys(self, run: DagsterRun, node: AssetNode) -> tuple[str, ...] | None:
        """Return the partition keys of a run, in order; ``None``: its tags do not have them."""
        with dg.partition_loading_context(dynamic_partitions_store=self.context.instance):
            return _keys_of(run, node)

    def config(self, node: AssetNode, run_id: str) -> Mapping[str, Any]:
        """Return the configuration of an asset in a run, and that of its resources.

        :raises CannotRunError: it is no longer known.
        """
        op = node.assets_def.node_def
        run = self.context.instance.get_run_by_id(run_id)
        if run is not None:
            mine = {"ops": [op.name], "resources": [*node.assets_def.resource_defs]}
            kept = dict[str, Any]()
            for part, names in mine.items():
                said: Any = run.run_config.get(part) or {}
                if found := {name: said[name] for name in names if said.get(name)}:
                    kept[part] = found
            return kept
        schema = op.config_field if isinstance(op, dg.OpDefinition) else None
        if schema is not None and schema.config_type.kind is not ConfigTypeKind.ANY:
            raise CannotRunError(
                f"run {run_id} is not on record any more, nor how it had configured the asset "
                f"{node.key.to_user_string()!r}: materialise it by hand"
            )
        return {}

    def appends(self, key: dg.AssetKey, run: str) -> bool:
        """Return whether an asset appends to a table, by its metadata or by what a run has done.

        :param run: the run's idempotency key for this asset.
        """
        with suppress(InvalidInputError):  # An asset of another package has words of its own.
            if Mode.parse(str(self.nodes[key].metadata.get(MODE) or "")) is Mode.APPEND:
                return True
        try:
            table = self.table_as_it_is(key)
        except InvalidInputError:
            return False  # No table can have this name.
        job = table.job_of_key(run)
        if job is None:
            return False
        if isinstance(table, DeltaTable):
            record = table.job_records([job], table.state()).get(job)
        else:
            decided = table.decisions([job])[job]
            record = None if decided is None else decided.decision
        return record is not None and record.mode is Mode.APPEND

    def ranges(
        self, node: AssetNode, partitions: Sequence[str]
    ) -> tuple[list[tuple[str, ...]], list[str]]:
        """Return the keys of partitions in ranges of adjacent keys, each as long as the asset's
        backfills allow in one run; and the partitions that have no key, as those of dynamic
        partitions that were deleted.

        :raises CannotRunError: two keys are one partition.
        """
        reference = self.reference(node.key)
        try:
            known = reference.keys(self.table_as_it_is(node.key), self.context.instance)
        except InvalidInputError as error:
            raise CannotRunError(error.message) from error
        wanted = {known[path] for path in partitions if path in known}
        policy = node.backfill_policy
        most = 1 if policy is None else policy.max_partitions_per_run or len(known)
        if isinstance(node.partitions_def, dg.MultiPartitionsDefinition):
            most = 1
        found: list[tuple[str, ...]] = []
        for is_wanted, keys in groupby(known.values(), wanted.__contains__):
            row = tuple(keys) if is_wanted else ()
            found += (row[first : first + most] for first in range(0, len(row), most))
        return found, [path for path in partitions if path not in known]


def _keys_of(run: DagsterRun, node: AssetNode) -> tuple[str, ...] | None:
    """Return the partition keys of a run, in order; ``None``: its tags do not have them."""
    one = run.tags.get(PARTITION_NAME_TAG)
    first = run.tags.get(ASSET_PARTITION_RANGE_START_TAG, one)
    last = run.tags.get(ASSET_PARTITION_RANGE_END_TAG, one)
    partitions = node.partitions_def
    if first is None or last is None or partitions is None:
        return None
    if first == last:
        return (first,)
    if not all(partitions.has_partition_key(key) for key in (first, last)):
        return None
    return tuple(partitions.get_partition_keys_in_range(dg.PartitionKeyRange(first, last)))
