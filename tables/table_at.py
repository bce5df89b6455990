"""Table at a root, of whichever kind lies there: a Delta table, or one of directories."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..committer.commit.state.table_kind import TableKind, table_kind
from .delta_table import DeltaTable

if TYPE_CHECKING:
    from ..committer import Table


def delta_at(table: Table) -> DeltaTable:
    """Open the Delta table at a root that was opened as a table of directories."""
    return DeltaTable(table.root.url, driver=table.driver)


def opened_as_it_is(table: Table) -> Table | DeltaTable:
    """Open what lies at a root, by three requests: a Delta table, or a table of directories."""
    return delta_at(table) if table.run(table_kind(table.root)) is TableKind.DELTA else table
