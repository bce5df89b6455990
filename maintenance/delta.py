"""Maintenance of Delta tables: recovery, purge, checkpoints that are due, and lost reports of runs.

In a table that another engine made, only jobs of this package are recovered, and the report says
so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ..committer.errors import TableMismatchError, TableNotFoundError
from ..committer.upkeep.purging.purge import PurgeAction, PurgeEntry
from ..committer.upkeep.recovery import Recovered
from ..tables import DeltaTable

#: The note about a table that another engine has made.
OF_ANOTHER_ENGINE = (
    "another engine made this Delta table: its files, its checkpoints and its VACUUM are left to "
    "that engine"
)
_UNNAMED = "no state within the retention names it, and no open job may"


def why_left(table: DeltaTable) -> str:
    """Return why a Delta table is left to another engine. Empty if a job of this package has made
    it, or if there is no table yet."""
    try:
        return "" if table.was_made_here() else OF_ANOTHER_ENGINE
    except TableNotFoundError:
        return ""
    except TableMismatchError as error:
        return f"{OF_ANOTHER_ENGINE} ({error.message})"


def settle_delta(
    table: DeltaTable, patience: float | None, jobs: Collection[str], apply: bool
) -> list[Recovered]:
    """Recover the jobs of a Delta table. Those that are named as dead come first.

    Jobs in a log send no heartbeats, so a short patience would take every job at work for dead.
    Only 0 counts: it says that no job is at work.
    """
    silent_for = 0.0 if patience == 0 else None
    if not apply:
        named = table.plan_give_up(jobs) if jobs else []
        return [*named, *(it for it in table.plan_recovery(silent_for) if it.job not in jobs)]
    named = table.give_up(jobs) if jobs else []
    return [*named, *table.recover(silent_for)]


def purge_delta(table: DeltaTable, records_older_than: float, apply: bool) -> Iterator[PurgeEntry]:
    """Remove files that nothing needs, and old records. Another engine's table is left as it is."""
    if why_left(table):
        return
    action = PurgeAction.REMOVED if apply else PurgeAction.WOULD_REMOVE
    now = table.now()
    for key in table.purge(apply):
        yield PurgeEntry(key, "", None, now, action, _UNNAMED)
    yield from table.purge_records(records_older_than, apply)


def data_root_prefixes(table: DeltaTable) -> tuple[str, ...]:
    """Return the prefixes of keys in a Delta table's data roots; empty for another engine's
    table."""
    return () if why_left(table) else table.data_root_prefixes


def write_due_checkpoint(table: DeltaTable, apply: bool) -> dict[str, int]:
    """Write the checkpoint that commits have missed, if any. Return it as a count for the
    report."""
    if not table.is_checkpoint_due():
        return {}
    if not apply:
        return {"would-be-checkpointed": 1}
    return {"checkpointed": 1} if table.checkpoint_log() is not None else {}


def write_lost_reports(table: DeltaTable, apply: bool) -> dict[str, int]:
    """Write the reports of runs that another program has deleted. Return them as a count for the
    report."""
    count = table.repair_reports(apply)
    return {"reports-written" if apply else "reports-would-be-written": count} if count else {}
