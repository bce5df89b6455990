"""Asset check by the conflicts of runs over an asset's table: whether all are settled."""

import dagster as dg

from zero_rename.maintenance.conflicts import conflicts_as_markdown, find_here, not_settled

from .asset_reference import RESOURCE, AssetLike, AssetReference


def conflicts_check(
    asset: AssetLike,
    *,
    blocking: bool = False,
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR,
    table: str | None = None,
    partitions_def: dg.PartitionsDefinition | None = None,
    name: str = "conflicts",
    resource_key: str = RESOURCE,
) -> dg.AssetChecksDefinition:
    """A check that no runs conflict over the partitions of an asset's table: that no commit has
    removed the rows of a newer run or of another job, and that no run gave way, unless somebody has
    settled that.

    Each look goes on from the one before; what is not settled fails each, and so does a record of
    runs that cannot be read. It reads records alone.

    :param asset: a definition or a key.
    :param blocking: what depends on the asset is not run where it fails.
    :param severity: of a check that fails.
    :param table: its name, where the asset's metadata does not say it and it is not its key.
    :param partitions_def: the asset's, where it is given by its key.
    :param name: the check's.
    :param resource_key: under which the :class:`~dagster_zero_rename.ZeroRenameResource` is.
    """
    reference = AssetReference.of(asset, table, partitions_def)

    def check(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        target = reference.table(getattr(context.resources, resource_key))
        found = find_here(target)
        left = sum(len(it.unresolved) for it in found)
        said = not_settled(found)
        return dg.AssetCheckResult(
            passed=not said,
            severity=severity,
            description=said,
            metadata={
                "unresolved": left,
                "settled": sum(len(it.conflicts) for it in found) - left,
                "unread": sum(len(it.unread) for it in found),
                "report": dg.MetadataValue.md(conflicts_as_markdown(found)),
            },
        )

    return dg.asset_check(
        asset=reference.key,
        name=name,
        blocking=blocking,
        required_resource_keys={resource_key},
        description="All conflicts of runs over its partitions are settled.",
    )(check)
