"""Asset check that all conflicts of runs over an asset's table are settled."""

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
    """Make a check that no runs are in conflict over the partitions of an asset's table.

    It fails if a commit has removed the rows of a newer run or of another job, or if a run gave
    way, until that is settled. It also fails for a record of runs that cannot be read.

    Each search continues where the last one ended, and reports what is still not settled. Only
    records are read.

    :param asset: a definition or a key.
    :param blocking: if the check fails with severity ``ERROR``, assets that depend on this one are
        not run.
    :param severity: of a failure.
    :param table: the table's name, if it is neither in the asset's metadata nor the asset's key.
    :param partitions_def: the asset's, if only its key is given.
    :param name: the check's.
    :param resource_key: the key of the :class:`~dagster_zero_rename.ZeroRenameResource`.
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
        description="All conflicts of runs over the asset's partitions are settled.",
    )(check)
