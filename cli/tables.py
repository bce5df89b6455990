"""Tables that a command is given: which kind lies at the root, and which kind the command knows."""

from __future__ import annotations

from typing import Any

from ..committer import Table
from ..committer.commit.state.table_kind import TableKind, table_kind
from ..committer.errors import TableMismatchError
from ..tables import DeltaTable
from ..tables.table_at import delta_alone, opened_as_it_is


def open_table(url: str) -> Table | DeltaTable:
    """Open what lies at a root: a Delta table, or a table of directories."""
    return opened_as_it_is(Table(url))


def table_of_directories(url: str, why: str, remedy: str) -> Table:
    """Open a table for a command that a Delta table has no use for.

    :param why: what a Delta table does instead.
    :param remedy: what to do there.
    :raises TableMismatchError: it is a Delta table.
    """
    opened = Table(url)
    _refuse_delta(opened, why, remedy)
    return opened


def delta_table(url: str, why: str, remedy: str) -> DeltaTable:
    """Open a Delta table for a command that others have no use for.

    :param why: what a table of directories does instead.
    :param remedy: what to do there.
    :raises TableMismatchError: it is a table of directories.
    :raises TableNotFoundError: nothing lies there.
    """
    return delta_alone(Table(url), why, remedy)


def refuse_delta(url: str, why: str, remedy: str, client: Any = None) -> None:
    """Refuse a Delta table.

    :param client: as of :class:`.Table`.
    :raises TableMismatchError: there is one.
    """
    _refuse_delta(Table(url, client), why, remedy)


def _refuse_delta(opened: Table, why: str, remedy: str) -> None:
    if opened.run(table_kind(opened.root)) is TableKind.DELTA:
        raise TableMismatchError(
            f"It is a Delta table: {why}. Nothing was changed.",
            table=opened.root.url,
            remedy=remedy,
        )


def refuse_option(opened: object, option: str, given: object, remedy: str) -> None:
    """Refuse an option of a command that a Delta table cannot honour.

    :raises TableMismatchError: it is given for a Delta table.
    """
    if given and isinstance(opened, DeltaTable):
        raise TableMismatchError(
            f"It is a Delta table, which has no {option}. Nothing was changed.",
            table=opened.root.url,
            remedy=remedy,
        )
