"""Maintenance of Delta tables: jobs are settled, what nothing needs is purged, a missed checkpoint
is written, and the log is compared with what is there. Another engine's table is named, and only
jobs of this package are settled there."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from ..committer.errors import TableMismatchError, TableNotFoundError
from ..committer.upkeep.purge import PurgeAction, PurgeEntry
from ..committer.upkeep.recovery import Recovered
from ..tables import DeltaTable

if TYPE_CHECKING:
    pass

#: Said of a table that another engine has made.
OF_ANOTHER_ENGINE = (
    "another engine made this Delta table: its files, its checkpoints and its VACUUM are left to "
    "that engine"
)
_UNNAMED = "no state within the retention names it, and no open job may"


def why_left(table: DeltaTable) -> str:
    """Tell why a Delta table is left to another engine: empty where a job of this package has made
    it, or where there is no table yet."""
    try:
        return "" if table.was_made_here() else OF_ANOTHER_ENGINE
    except TableNotFoundError:
        return ""
    except TableMismatchError as error:
        return f"{OF_ANOTHER_ENGINE} ({error.message})"


def settle_delta(
    table: DeltaTable, patience: float | None, jobs: Collection[str], apply: bool
) -> list[Recovered]:
    """Settle the jobs of a Delta table, those named as dead first.

    Jobs there send no heartbeats, so that a short patience would take each for dead that is at
    work: only 0 counts, which says that none is.
    """
    silent_for = 0.0 if patience == 0 else None
    if not apply:
        return table.plan_recovery(silent_for)
    named = table.give_up(jobs) if jobs else []
    return [*named, *table.recover(silent_for)]


def purge_delta(table: DeltaTable, records_older_than: float, apply: bool) -> Iterator[PurgeEntry]:
    """Remove the files that nothing needs, and old records; of another engine's table nothing."""
    if why_left(table):
        return
    action = PurgeAction.REMOVED if apply else PurgeAction.WOULD_REMOVE
    now = table.now()
    for key in table.purge(apply):
        yield PurgeEntry(key, "", None, now, action, _UNNAMED)
    yield from table.purge_records(records_older_than, apply)


def data_root_prefixes(table: DeltaTable) -> tuple[str, ...]:
    """Return the prefixes of keys in a Delta table's data roots; none for a table of another
    engine, which has no such roots."""
    return () if why_left(table) else table.data_root_prefixes


def write_due_checkpoint(table: DeltaTable, apply: bool) -> dict[str, int]:
    """Write the checkpoint that commits have missed, if any; return it as a count."""
    if not table.is_checkpoint_due():
        return {}
    if not apply:
        return {"would-be-checkpointed": 1}
    return {"checkpointed": 1} if table.checkpoint_log() is not None else {}
