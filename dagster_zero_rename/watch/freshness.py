"""Asset check by the time of a table's last commit, as its store has it."""

from dataclasses import replace
from datetime import timedelta

import dagster as dg

from zero_rename.committer.commit.state.job_state import Committed
from zero_rename.committer.errors import TableNotFoundError
from zero_rename.committer.table import Table
from zero_rename.tables import DeltaTable, Since

from .asset_reference import RESOURCE, AssetLike, AssetReference
from .heads import list_heads, read_heads

#: Heads that are read for the time of the last commit.
_NEWEST = 64


def freshness_check(
    asset: AssetLike,
    *,
    within: timedelta,
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.WARN,
    blocking: bool = False,
    table: str | None = None,
    name: str = "freshness",
    resource_key: str = RESOURCE,
) -> dg.AssetChecksDefinition:
    """A check that somebody, Dagster or not, has committed to an asset's table lately.

    It goes by the table's decisions and by the store's clock, so it holds for loads of which
    Dagster has no event. Run it by a schedule.

    :param asset: a definition or a key.
    :param within: the age from which the last commit is too old.
    :param severity: of a check that fails.
    :param blocking: what depends on the asset is not run where it fails.
    :param name: the check's.
    :param resource_key: under which the :class:`~dagster_zero_rename.ZeroRenameResource` is.
    :param table: its name, where the asset's metadata does not say it and it is not its key.
    """
    reference = AssetReference.of(asset, table)

    @dg.asset_check(
        asset=reference.key,
        name=name,
        blocking=blocking,
        required_resource_keys={resource_key},
        description=f"The table's last commit is at most {within} old.",
    )
    def check(context) -> dg.AssetCheckResult:
        target = reference.read_table(getattr(context.resources, resource_key))
        is_delta = isinstance(target, DeltaTable)
        last, now = last_entry(target, within) if is_delta else last_commit(target)
        if last is None:
            return dg.AssetCheckResult(
                passed=False,
                severity=severity,
                description=f"Nothing has been committed to {target.root.url}.",
            )
        age = timedelta(seconds=max(0.0, now - last.decided_at))
        return dg.AssetCheckResult(
            passed=age <= within,
            severity=severity,
            description=f"The last commit is {timedelta(seconds=round(age.total_seconds()))} old.",
            metadata={
                "zero_rename/job": last.job,
                "zero_rename/decided": dg.MetadataValue.timestamp(last.decided_at),
                "age_seconds": round(age.total_seconds(), 3),
            },
        )

    return check


def last_commit(table: Table) -> tuple[Committed | None, float]:
    """The last commit that partitions name, and the time now, by the store's clock.

    Of the :data:`_NEWEST` heads that were written last: a job writes its heads right after it has
    decided, so that one which is missed is no older than what it takes to apply another.
    """
    listing = table.run(list_heads(table.root))
    newest = sorted(listing.objects, key=lambda head: head.last_modified)[-_NEWEST:]
    jobs = {state.head.last_job for state in table.run(read_heads(table.root, newest))} - {None}
    found = [done for job in jobs if (done := table.result(str(job))) is not None]
    return max(found, key=lambda done: done.decided_at, default=None), listing.date


def last_entry(table: DeltaTable, within: timedelta) -> tuple[Committed | None, float]:
    """Find the last entry of a Delta table's log that changed rows, and the time by the store's
    clock.

    :param within: entries that are older are read only where there is none so young.
    """
    now = table.now()
    for since in (Since(time=now - within.total_seconds()), Since()):
        try:
            _, changes = table.last_changes(None, since)
        except TableNotFoundError:
            break
        if changes.of:
            last = max(changes.of.values(), key=lambda it: it.version)
            return replace(last.done, decided_at=last.at), now
    return None, now
