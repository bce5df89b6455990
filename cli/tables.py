"""Tables that are given to commands: opens one, or refuses a layout that a command does not
support."""

from __future__ import annotations

from typing import Any

from ..committer import Table
from ..committer.commit.state.found_table import root_around
from ..committer.commit.state.table_kind import TableKind, table_kind
from ..committer.errors import InvalidInputError, TableMismatchError, ZeroRenameError
from ..tables import DeltaTable
from ..tables.table_at import delta_alone, opened_as_it_is


def open_table(url: str) -> Table | DeltaTable:
    """Open the table at a root: a Delta table, or a table of directories."""
    return opened_as_it_is(Table(url))


def table_of_directories(url: str, why: str, remedy: str) -> Table:
    """Open a table of directories for a command that does not support Delta tables.

    :param why: what a Delta table does instead.
    :param remedy: what to do there.
    :raises TableMismatchError: it is a Delta table.
    """
    opened = Table(url)
    _refuse_delta(opened, why, remedy)
    return opened


def delta_table(url: str, why: str, remedy: str) -> DeltaTable:
    """Open a Delta table for a command that does not support tables of directories.

    :param why: what a table of directories does instead.
    :param remedy: what to do there.
    :raises TableMismatchError: it is a table of directories.
    :raises TableNotFoundError: there is no table.
    """
    return delta_alone(Table(url), why, remedy)


def refuse_delta(url: str, why: str, remedy: str, client: Any = None) -> None:
    """Refuse a Delta table.

    :param client: as for :class:`.Table`.
    :raises TableMismatchError: it is a Delta table.
    """
    _refuse_delta(Table(url, client), why, remedy)


def _refuse_delta(opened: Table, why: str, remedy: str) -> None:
    if opened.run(table_kind(opened.root)) is TableKind.DELTA:
        raise TableMismatchError(
            f"This is a Delta table: {why}. Nothing was changed.",
            table=opened.root.url,
            remedy=remedy,
        )


def why_no_table(opened: Table | DeltaTable) -> str:
    """Return a sentence that names the table around a partition's folder.

    ``""``: the root is no partition's folder, or the store refuses to say.
    """
    try:
        around = opened.run(root_around(opened.root))
    except ZeroRenameError:
        return ""
    if around is None:
        return ""
    return f"{opened.root.url} is a partition of the table {around.url}: name that table."


def refuse_option(opened: object, option: str, given: object, remedy: str) -> None:
    """Refuse an option of a command if the table is a Delta table, which cannot honour it.

    :raises TableMismatchError: the option is given, and it is a Delta table.
    """
    if given and isinstance(opened, DeltaTable):
        raise TableMismatchError(
            f"This is a Delta table, which has no {option}. Nothing was changed.",
            table=opened.root.url,
            remedy=remedy,
        )


def refuse_apply_alone(table: str, apply: bool, setting: str) -> None:
    """Refuse --apply of a command that only shows a setting, since no value is given for it.

    :param setting: the name of the setting.
    :raises InvalidInputError: --apply is given.
    """
    if apply:
        raise InvalidInputError(
            f"--apply is given without the {setting} that is to be set. Nothing was changed.",
            table=table,
            remedy=f"Give the {setting}, too; or leave --apply out to see the present one.",
        )
