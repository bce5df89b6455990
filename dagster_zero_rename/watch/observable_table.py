"""Table that other programs write, as an asset to observe."""

from typing import Any

import dagster as dg

from zero_rename.committer.commit.snapshot import Snapshot
from zero_rename.committer.format.records.inputs import content_of
from zero_rename.committer.format.schema.directory import canonical_name

from ..event_metadata import version_of
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
    """Make an asset whose observation gives the version of a table's rows.

    Each partition has the digest of its content as version. So what depends on a partition shows as
    stale once any program has changed its rows. For a table of another committer, the version comes
    from the names and sizes of its files.

    :param name: the asset's key.
    :param table: the table's name, if it is not the asset's key.
    :param partitions_def: ``None``: one version of the whole table.
    :param partition_expr: as for :meth:`.resource.ZeroRenameResource.write`.
    :param resource_key: the key of the :class:`~dagster_zero_rename.ZeroRenameResource`.
    :param given: further arguments of ``dagster.observable_source_asset``, such as ``group_name``
        and ``automation_condition``.
    """
    key = dg.AssetKey.from_user_string(name)
    said = {"table": table, "partition_expr": partition_expr}
    metadata = {name: value for name, value in said.items() if value is not None}
    reference = AssetReference(key, partitions_def, metadata)

    @dg.observable_source_asset(
        key=key,
        partitions_def=partitions_def,
        metadata={**(given.pop("metadata", None) or {}), **metadata},
        required_resource_keys={resource_key},
        **given,
    )
    def observed(context) -> Any:
        target = reference.read_table(getattr(context.resources, resource_key))
        state = target.state()
        if partitions_def is None:
            return dg.DataVersion(version_of(state))
        keys = reference.keys(target, context.instance)
        emptied = dict.fromkeys(state.versions, ())
        held = {**emptied, **state.by_partition()}
        if state.lists:
            # A format may spell the folders of another committer differently: month=1 for month=01.
            spelled = {_canonical(state, path): key for path, key in keys.items()}
            keys = {**{path: spelled.get(_canonical(state, path), "") for path in held}, **keys}
        return dg.DataVersionsByPartition(
            {key: content_of(files) for path, files in held.items() if (key := keys.get(path))}
        )

    return observed


def _canonical(state: Snapshot, partition: str) -> str:
    return canonical_name(partition, state.schema, state.partition_by) or partition
