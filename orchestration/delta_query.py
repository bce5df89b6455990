"""Poll of a Delta table for a sensor: the answers come from the table's log, not from heads.

=====================  ============================================================================
question               source of the answer
=====================  ============================================================================
the job of a run       the transaction of its key, and the entry that the transaction names
a job by its id        its entry, or a fence: the job will never commit
partitions             the live files of each, and the last entry that changed its rows
=====================  ============================================================================

Readers of the log see a committed job at once: no job is half applied.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, MutableMapping
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from ..committer.commit.state.table_kind import TableKind, table_kind
from ..committer.errors import InvalidInputError, TableNotFoundError
from ..committer.format.layout import UNPARTITIONED
from .look import State

if TYPE_CHECKING:
    from ..committer import Table
    from ..committer.commit.snapshot import Snapshot
    from ..tables import DeltaTable, LastChange

#: Seconds for which the layout of a root counts as known. A triggerer polls for months, and a table
#: may be deleted and made anew in the other layout.
KNOWN_FOR = 300.0


@dataclass(frozen=True)
class _Known:
    """The layout of a root.

    :param at: when it was read, by the clock of ``time.monotonic``.
    :param delta: the Delta table there; ``None``: a table of directories is there.
    """

    at: float
    delta: DeltaTable | None


_known: MutableMapping[Table, _Known] = WeakKeyDictionary()


def delta_table_at(table: Table) -> DeltaTable | None:
    """Return the Delta table at a root; ``None`` if there is none.

    This takes three requests; none for some minutes once the root holds a table of either layout.
    """
    known, now = _known.get(table), monotonic()
    if known is None or now - known.at >= KNOWN_FOR:
        kind = table.run(table_kind(table.root))
        if kind is TableKind.NONE:
            _known.pop(table, None)
            return None
        # Imported on use: processes that only parse DAG files need not load it.
        from ..tables.table_at import delta_at

        delta = None
        if kind is TableKind.DELTA:
            delta = known.delta if known is not None else None
            delta = delta_at(table) if delta is None else delta
        known = _known[table] = _Known(now, delta)
    return known.delta


def log_state(table: DeltaTable, last: State | None) -> State:
    """Return the version and ETag of a table's newest entry, by one listing.

    An answer about the table can change only if these change.

    :param last: the result of the last call: the listing begins at that entry.
    """
    newest = table.newest_entry(int(last[0][0]) if last else 0)
    return () if newest is None else ((str(newest.version), newest.etag),)


def refuse_of_directories(table: Table | DeltaTable, **given: object) -> None:
    """Refuse a sensor's arguments that are only for tables of directories.

    :param given: arguments about directories and ``_SUCCESS``, by name.
    :raises InvalidInputError: one has a value that counts as true; the error names the first.
    """
    for name, value in given.items():
        if value:
            raise InvalidInputError(
                f"{name}={value} is about tables of directories, and {table.root.url} is a "
                "Delta table, whose log tells what is committed.",
                remedy=f"Leave {name} out.",
            )


def partitions_in(table: DeltaTable, directory: str) -> tuple[str, ...]:
    """Find the partitions with files below a directory; empty if there is no table yet.

    :param directory: the path above them, such as ``year=2013``; ``""`` for all.
    """
    try:
        names = table.state().by_partition().keys() - {UNPARTITIONED}
    except TableNotFoundError:
        return ()
    below = f"{directory}/" if directory else ""
    return tuple(sorted(name for name in names if name.startswith(below)))


def look_at_partitions(
    table: DeltaTable, partitions: Collection[str], version: int | None, time: float | None
) -> tuple[Snapshot | None, Mapping[str, LastChange], bool]:
    """Read the state of partitions, and the last change of each after a version and a time.

    :param time: in Unix seconds.
    :return: the table's state (``None``: there is no table yet), the changes by partition, and
        whether entries that were cleaned from the log may have made more changes.
    """
    # Imported on use: processes that only parse DAG files need not load it.
    from ..tables import Since

    try:
        state, changes = table.last_changes(partitions, Since(version, time))
    except TableNotFoundError:
        return None, {}, False
    return state, changes.of, changes.cleaned
