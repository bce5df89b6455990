"""Asset check by the conflicts of runs over an asset's table: whether all are settled."""

import dagster as dg

from zero_rename.committer.errors import counted
from zero_rename.maintenance.conflicts import conflicts_as_markdown, find_here

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

    Each look goes on from the one before; what is not settled fails each. It reads records alone.

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
        left = [it for one in found for it in one.unresolved]
        unread = [why for one in found for why in one.unread]
        said = (
            f"{counted(len(left), 'conflict is', 'conflicts are')} not settled. {left[0]}"
            if left
            else ""
        )
        return dg.AssetCheckResult(
            passed=not left and not unread,
            severity=severity,
            description=said,
            metadata={
                "unresolved": len(left),
                "settled": sum(len(it.conflicts) for it in found) - len(left),
                "unread": len(unread),
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
