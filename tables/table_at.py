"""Table at a root, of whichever kind lies there: a Delta table, or one of directories."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..committer.commit.state.table_kind import TableKind, table_kind
from ..committer.errors import TableMismatchError, TableNotFoundError
from ..committer.store.requests import ListObjects
from .delta_table import DeltaTable

if TYPE_CHECKING:
    from ..committer import Table


def delta_at(table: Table) -> DeltaTable:
    """Open the Delta table at a root that was opened as a table of directories."""
    return DeltaTable(table.root.url, driver=table.driver)


def opened_as_it_is(table: Table) -> Table | DeltaTable:
    """Open what lies at a root, by three requests: a Delta table, or a table of directories."""
    return delta_at(table) if table.run(table_kind(table.root)) is TableKind.DELTA else table


def delta_alone(table: Table, why: str, remedy: str, undone: str = "changed") -> DeltaTable:
    """Open the Delta table at a root, for what other tables have no use for.

    :param why: what a table of directories does instead.
    :param remedy: what to do there.
    :param undone: what was not done.
    :raises TableMismatchError: it is a table of directories, or files of others lie there.
    :raises TableNotFoundError: nothing lies there.
    """
    opened = opened_as_it_is(table)
    if isinstance(opened, DeltaTable):
        return opened
    if not table.run(ListObjects(f"{table.root.prefix}/")).objects:
        raise TableNotFoundError(
            f"There is no table here: nothing lies below this root. Nothing was {undone}.",
            table=table.root.url,
            remedy="Check the root.",
        )
    raise TableMismatchError(
        f"It is no Delta table: {why}. Nothing was {undone}.", table=table.root.url, remedy=remedy
    )
