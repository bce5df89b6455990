"""Asset check for the age of a table's last commit, by the store's clock."""

from dataclasses import replace
from datetime import timedelta

import dagster as dg

from zero_rename.committer.commit.state.job_state import Committed
from zero_rename.committer.errors import TableNotFoundError
from zero_rename.committer.format.layout import UNPARTITIONED
from zero_rename.committer.scan.partition_state import LastCommit
from zero_rename.committer.table import Table
from zero_rename.orchestration.partitions_below import partitions_below
from zero_rename.orchestration.partitions_query import refuse_without_heads
from zero_rename.orchestration.runs.arguments import read_seconds
from zero_rename.orchestration.s3a.written_partitions import written_partitions
from zero_rename.tables import DeltaTable, Since

from .asset_reference import RESOURCE, AssetLike, AssetReference
from .heads import OBSERVE, last_commits, list_heads, read_heads

#: Number of heads that are read at once to find the last commit.
_NEWEST = 64


def freshness_check(
    asset: AssetLike,
    *,
    within: timedelta,
    severity: dg.AssetCheckSeverity | None = None,
    blocking: bool = False,
    table: str | None = None,
    name: str = "freshness",
    resource_key: str = RESOURCE,
) -> dg.AssetChecksDefinition:
    """Make a check that an asset's table has had a recent commit, by Dagster or any other program.

    The check reads the table's decisions and uses the store's clock, so it also counts loads of
    which Dagster has no event. A job that only rewrites rows, such as a compaction, does not count.
    For Hadoop's committers it reads the ledger of loads, and each ``_SUCCESS``. Run it by a
    schedule.

    :param asset: a definition or a key.
    :param within: the age up to which the last commit is recent.
    :param severity: of a failure; ``None``: ``ERROR`` if the check is blocking, else ``WARN``.
    :param blocking: if the check fails with severity ``ERROR``, assets that depend on this one are
        not run.
    :param name: the check's.
    :param resource_key: the key of the :class:`~dagster_zero_rename.ZeroRenameResource`.
    :param table: the table's name, if it is neither in the asset's metadata nor the asset's key.
    :raises InvalidInputError: ``within`` is not a duration.
    """
    reference = AssetReference.of(asset, table)
    within = timedelta(0, read_seconds("within", within))
    usual = dg.AssetCheckSeverity.ERROR if blocking else dg.AssetCheckSeverity.WARN
    of_failure = usual if severity is None else severity

    @dg.asset_check(
        asset=reference.key,
        name=name,
        blocking=blocking,
        required_resource_keys={resource_key},
        description=f"The table's last commit is at most {within} old.",
    )
    def check(context) -> dg.AssetCheckResult:
        target = reference.read_table(getattr(context.resources, resource_key))
        cleaned = False
        if isinstance(target, DeltaTable):
            last, now, cleaned = last_entry(target, within)
        else:
            last, now = last_commit(target)
        if last is None:
            return dg.AssetCheckResult(
                passed=False,
                severity=of_failure,
                description=f"The log of {target.root.url} was cleaned of every entry that left "
                "rows, so the age of the last commit is not known."
                if cleaned
                else f"Nothing has been committed to {target.root.url}.",
            )
        age = timedelta(seconds=max(0.0, now - (last.decided_at or 0.0)))
        return dg.AssetCheckResult(
            passed=age <= within,
            severity=of_failure,
            description=f"The last commit is {timedelta(seconds=round(age.total_seconds()))} old.",
            metadata={
                **({"zero_rename/job": last.job} if last.job else {}),
                "zero_rename/decided": dg.MetadataValue.timestamp(last.decided_at or 0.0),
                "age_seconds": round(age.total_seconds(), 3),
            },
        )

    return check


def last_commit(table: Table) -> tuple[LastCommit | None, float]:
    """Return the last commit that changed rows, and the present time, by the store's clock.

    A head is written after the decision that moves it. So heads that are older than a commit cannot
    name a later one, and need not be read.
    """
    listing = table.run(list_heads(table.root))
    heads = sorted(listing.objects, key=lambda head: head.last_modified, reverse=True)
    if not heads:
        refuse_without_heads(table, "reported", OBSERVE)
        return last_written(table), listing.date
    last: LastCommit | None = None
    for first in range(0, len(heads), _NEWEST):
        newest = heads[first : first + _NEWEST]
        if last is not None and newest[0].last_modified < _time_of(last):
            break
        states = table.run(read_heads(table.root, newest))
        found = (last, *last_commits(table, states).values())
        # A table's first job claims heads before it commits, so they may name no job.
        last = max(filter(None, found), key=_time_of, default=None)
    return last, listing.date


def last_written(table: Table) -> LastCommit | None:
    """Find the last commit of any of Hadoop's committers in any partition. It is found by a listing
    of the files, the ledger of loads, and each ``_SUCCESS``."""
    names = (UNPARTITIONED, *partitions_below(table, "", by_heads=False))
    written, _ = written_partitions(table, names, None)
    found = [LastCommit(it.job, 0, it.decided_at) for it in written.values() if it.decided_at]
    return max(found, key=_time_of, default=None)


def _time_of(commit: LastCommit) -> float:
    return commit.decided_at or 0.0


def last_entry(table: DeltaTable, within: timedelta) -> tuple[Committed | None, float, bool]:
    """Find the last entry of a Delta table's log that changed rows.

    :param within: older entries are read only if there is none of this age.
    :return: the entry; the store's time; and whether such entries may have been cleaned.
    """
    now, cleaned = table.now(), False
    # Of older entries, all: any number of them may have changed no rows.
    for since in (Since(time=now - within.total_seconds()), Since(version=-1)):
        try:
            _, changes = table.last_changes(None, since, newest=True)
        except TableNotFoundError:
            break
        if changes.of:
            last = max(changes.of.values(), key=lambda it: it.version)
            return replace(last.done, decided_at=last.at), now, False
        cleaned = changes.cleaned
    return None, now, cleaned
