"""Table that others write, as an asset that Dagster observes."""

import hashlib
from typing import Any

import dagster as dg

from zero_rename.committer.commit.snapshot import Snapshot
from zero_rename.committer.format.layout import UNPARTITIONED

from .asset_reference import RESOURCE, AssetReference


def observable_table(
    name: str,
    *,
    table: str | None = None,
    partitions_def: dg.PartitionsDefinition | None = None,
    partition_expr: Any = None,
    resource_key: str = RESOURCE,
    **given: Any,
) -> Any:
    """An asset whose observation gives the version of a table's rows: of each partition its epoch,
    so that what depends on one shows as stale when anybody has changed it.

    A table that another committer writes has no epochs: its versions tell its files.

    :param name: the asset's key.
    :param table: its name, where it is not the asset's key.
    :param partitions_def: ``None``: one version of the whole table.
    :param partition_expr: as of :meth:`..resource.ZeroRenameResource.write`.
    :param resource_key: under which the :class:`~dagster_zero_rename.ZeroRenameResource` is.
    :param given: further arguments of ``dagster.observable_source_asset``, such as
        ``group_name`` and ``automation_condition``.
    """
    key = dg.AssetKey.from_user_string(name)
    said = {"table": table, "partition_expr": partition_expr}
    metadata = {name: value for name, value in said.items() if value is not None}
    reference = AssetReference(key, partitions_def, metadata)

    @dg.observable_source_asset(
        key=key,
        partitions_def=partitions_def,
        metadata={**given.pop("metadata", {}), **metadata},
        required_resource_keys={resource_key},
        **given,
    )
    def observed(context) -> Any:
        target = reference.table(getattr(context.resources, resource_key))
        snapshot = target.state()
        versions = _versions(snapshot)
        if partitions_def is None:
            return dg.DataVersion(versions.get(UNPARTITIONED) or _digest(versions.items()))
        keys = reference.keys(target, context.instance)
        return dg.DataVersionsByPartition(
            {keys[path]: version for path, version in versions.items() if path in keys}
        )

    return observed


def _versions(snapshot: Snapshot) -> dict[str, str]:
    """By partition: its epoch, or where it has none what tells its files."""
    listed = {
        path: _digest((file.key, file.size) for file in files)
        for path, files in snapshot.by_partition().items()
    }
    return {**listed, **{path: str(epoch) for path, epoch in snapshot.epochs.items()}}


def _digest(items: Any) -> str:
    return hashlib.sha256(repr(sorted(items)).encode()).hexdigest()[:16]
