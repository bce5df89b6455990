"""Asset that a check, a sensor or an observation is about, and its table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster._time import get_current_datetime

from zero_rename.committer.errors import InvalidInputError, first_few

from ..event_metadata import job_of
from ..key_paths import Layout, key_paths, keys_by_path, layout_of
from ..resource import PARTITION_EXPR, TABLE, ZeroRenameResource

if TYPE_CHECKING:
    from zero_rename.committer.table import Table

    from ..asset_step import AssetTable

#: The forms in which an asset may be given.
AssetLike = dg.AssetsDefinition | dg.AssetSpec | dg.AssetKey | str
#: The default key of the resource.
RESOURCE = "zero_rename"
#: How long before the start of a time window, by Dagster's clock, others may have loaded it: they
#: may have another time zone, or another clock.
_AHEAD = timedelta(days=2)


@dataclass(frozen=True)
class AssetReference:
    """An asset with what is needed to find its table.

    :param metadata: of its definition: ``table``, ``partition_expr``.
    """

    key: dg.AssetKey
    partitions_def: dg.PartitionsDefinition | None = None
    metadata: Mapping[str, Any] | None = None
    _paths: dict[str, dict[str, str]] = field(default_factory=dict, repr=False, compare=False)

    @staticmethod
    def of(
        asset: AssetLike,
        table: str | None = None,
        partitions_def: dg.PartitionsDefinition | None = None,
    ) -> AssetReference:
        """Make a reference from a definition; or from a key, and its partitions if these are given.

        :param table: the table's name, if the definition does not have it.
        """
        if isinstance(asset, dg.AssetsDefinition):
            asset = asset.specs_by_key[asset.key]
        if not isinstance(asset, dg.AssetSpec):
            asset = dg.AssetSpec(asset, partitions_def=partitions_def)
        named = {} if table is None else {TABLE: table}
        metadata = {**asset.metadata, **named}
        return AssetReference(asset.key, partitions_def or asset.partitions_def, metadata)

    @property
    def name(self) -> str:
        """The key, written as users write it."""
        return self.key.to_user_string()

    @property
    def identifier(self) -> str:
        """The key, written as a part of names of Dagster's definitions."""
        return self.key.to_python_identifier()

    def told(self, instance: dg.DagsterInstance, key: str | None) -> str | None:
        """Return the job that Dagster's last materialisation of a partition names."""
        return job_of(self.last_metadata(instance, key) or {})

    def last_metadata(
        self, instance: dg.DagsterInstance, key: str | None
    ) -> Mapping[str, Any] | None:
        """Return the metadata of Dagster's last materialisation of a partition; ``None``: there is
        none."""
        wanted = dg.AssetRecordsFilter(self.key, asset_partitions=None if key is None else [key])
        for record in instance.fetch_materializations(wanted, limit=1).records:
            event = record.asset_materialization
            return None if event is None else event.metadata
        return None

    def table(self, resource: ZeroRenameResource) -> Table:
        return resource.asset_table(self.key, self.metadata or {})

    def read_table(self, resource: ZeroRenameResource) -> AssetTable:
        """Open the table in the layout that it has."""
        return resource.read_table(self.key, self.metadata or {})

    def paths(self, keys: Any, table: AssetTable) -> dict[str, str]:
        """Return the partition of each key. Keys of an asset that appends may share one.

        :raises TableNotFoundError: there is no table.
        :raises InvalidInputError: as :func:`.key_paths.key_paths`.
        """
        return self._paths_in(layout_of(table), keys)

    def _paths_in(self, layout: Layout, keys: Any) -> dict[str, str]:
        expr = (self.metadata or {}).get(PARTITION_EXPR)
        return key_paths(self.name, keys, self.partitions_def, expr, layout, may_share=True)

    def keys(self, table: AssetTable, instance: dg.DagsterInstance) -> dict[str, str]:
        """Return the key of each partition that the asset has now; empty for an asset without
        partitions.

        The partition of a key is computed once in a process: ten years of hours have 88,000.

        :raises InvalidInputError: two keys are one partition; or as :meth:`paths`.
        """
        if self.partitions_def is None:
            return {}
        with dg.partition_loading_context(dynamic_partitions_store=instance):
            now = self.partitions_def.get_partition_keys()
        layout = layout_of(table)
        known = self._paths.setdefault(_kinds(layout), {})
        known.update(self._paths_in(layout, [key for key in now if key not in known]))
        found = {known[key]: key for key in now}
        if len(found) < len(now):
            self._refuse_shared({key: known[key] for key in now})
        return found

    def _refuse_shared(self, paths: Mapping[str, str]) -> None:
        path, keys = next(it for it in keys_by_path(paths).items() if len(it[1]) > 1)
        raise InvalidInputError(
            f"The partition keys {first_few(keys)} of the asset {self.name!r} are all {path} in "
            "its table, so a change of that partition cannot be told from a change of another key. "
            "Nothing was reported or started.",
            remedy="Make partition_expr as fine as the asset's partitions, or the partitions as "
            "coarse as those of the table.",
        )

    def partitions_to_come(
        self, table: AssetTable, instance: dg.DagsterInstance
    ) -> AbstractSet[str]:
        """Return the partitions of time windows that are not over: they will get a key later.
        Dagster has a key from the end of its window on."""
        ends = [
            window.start
            for definition in _time_windows(self.partitions_def)
            if (window := _next_window(definition)) is not None
        ]
        if self.partitions_def is None or not ends:
            return frozenset()
        with dg.partition_loading_context(dynamic_partitions_store=instance):
            now = set(self.partitions_def.get_partition_keys())
        with dg.partition_loading_context(max(ends), instance):
            then = self.partitions_def.get_partition_keys()
        return frozenset(self.paths([key for key in then if key not in now], table).values())


def _kinds(layout: Layout) -> str:
    """Return the names and types of the partition columns as text, by which they are compared."""
    by = layout.partition_by or ()
    return "/".join(str(layout.schema.field(name)) for name in by)


def _time_windows(
    definition: dg.PartitionsDefinition | None,
) -> Iterator[dg.TimeWindowPartitionsDefinition]:
    """Yield the dimensions that are time windows."""
    if isinstance(definition, dg.TimeWindowPartitionsDefinition):
        yield definition
    elif isinstance(definition, dg.MultiPartitionsDefinition):
        for dimension in definition.partitions_defs:
            yield from _time_windows(dimension.partitions_def)


def _next_window(definition: dg.TimeWindowPartitionsDefinition) -> dg.TimeWindow | None:
    """Return the first time window that others cannot have loaded yet."""
    return definition.get_next_partition_window(
        get_current_datetime() + _AHEAD, respect_bounds=False
    )
