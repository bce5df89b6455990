"""Table at a root, opened by its kind: a Delta table, or a table of directories."""

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


def directories_at(table: Table | DeltaTable) -> Table:
    """Open the root of a Delta table as a directory. Hadoop's committers may have loaded it before
    it was adopted; their records lie beside it.

    :param table: a table of directories is returned as it is.
    """
    if not isinstance(table, DeltaTable):
        return table
    # Imported on use: processes that only parse DAG files need not load it.
    from ..committer import Table

    found = Table(table.root.url)
    found.driver = table.driver
    return found


def opened_as_it_is(table: Table) -> Table | DeltaTable:
    """Open the table at a root by its kind, a Delta table or a table of directories: three
    requests."""
    return delta_at(table) if table.run(table_kind(table.root)) is TableKind.DELTA else table


def delta_alone(table: Table, why: str, remedy: str, undone: str = "changed") -> DeltaTable:
    """Open the Delta table at a root for an operation that only Delta tables have.

    :param why: what a table of directories does instead, for the error.
    :param remedy: what to do there, for the error.
    :param undone: what was not done, for the error.
    :raises TableMismatchError: there is a table of directories, or files of other programs.
    :raises TableNotFoundError: there is nothing.
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
        f"This table is no Delta table: {why}. Nothing was {undone}.",
        table=table.root.url,
        remedy=remedy,
    )
