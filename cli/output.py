"""Output and errors of all commands."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import IntEnum
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table as Sheet
from typer.core import TyperGroup

from ..catalog.catalog_report import CatalogUnsyncedError
from ..committer.errors import (
    OutcomeUnknownError,
    TableNotFoundError,
    UnfinishedCommitError,
    UnfinishedUpkeepError,
    ZeroRenameError,
    escaped,
)


class Exit(IntEnum):
    """Exit codes of every command."""

    DONE = 0
    LOOK = 1
    REFUSED = 2
    UNKNOWN = 3


#: The exit codes in ``--help``; docs/commands.md has them by command.
EXIT_CODES = (
    "Exit codes: 0 done, and nothing is wrong; 1 something is wrong, or was not done; 2 refused, "
    "nothing was changed; 3 unknown whether it happened, or begun and not finished: run it again."
)
#: Errors after which something may have happened.
_UNSURE = (
    *(OutcomeUnknownError, UnfinishedCommitError, UnfinishedUpkeepError),
    CatalogUnsyncedError,
)
#: The remark of a command without ``--apply``, if it would delete or decide.
DRY = "Nothing was changed; --apply does it."


def say(text: str) -> None:
    """Print a remark on standard error, on a line of its own."""
    typer.echo(escaped(text), err=True)


@contextmanager
def counting(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show progress on standard error if it is a terminal: how many of how many are done.

    :param what: what is counted, such as ``footers read``.
    """
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    shown = console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=not shown) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


Url = Annotated[str, typer.Argument(metavar="TABLE", help="The table's root, s3://bucket/prefix.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Partitions = Annotated[
    list[str] | None,
    typer.Option("--partition", help="Only this partition, such as day=1; may be repeated."),
]
Apply = Annotated[
    bool, typer.Option("--apply", help="Act. Without it, only say what would be done.")
]


class Refusing(TyperGroup):
    """Commands whose errors become one paragraph on standard error and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except ZeroRenameError as error:
            typer.echo(f"{type(error).__name__}: {error}", err=True)
            for note in (*getattr(error, "__notes__", ()), *_of_hadoop(error)):
                say(note)
            unsure = isinstance(error, _UNSURE)
            raise typer.Exit(Exit.UNKNOWN if unsure else Exit.REFUSED) from error


#: Advice about a destination of Hadoop's committers.
HADOOPS = (
    "This is a destination of Hadoop's committers. This package has no records of its files. "
    "`zero-rename s3a-jobs` lists what its jobs left, and s3a-recover rolls these jobs forward or "
    "back. purge, maintain and conflicts work as on any table."
)


def is_of_hadoop(url: str) -> bool:
    """Return whether a destination of Hadoop's committers lies at a root."""
    from ..committer import Table
    from ..maintenance.destinations import destination_at

    table = Table(url)
    return table.run(destination_at(table.root)).is_s3a


def _of_hadoop(error: ZeroRenameError) -> tuple[str, ...]:
    """Return advice about an error if its table is missing and a committer of Hadoop's has written
    there."""
    if not isinstance(error, TableNotFoundError) or not error.table:
        return ()
    with suppress(ZeroRenameError):
        return (HADOOPS,) if is_of_hadoop(error.table) else ()
    return ()


def look_where(found: object) -> None:
    """Exit with code 1 if something was found that needs action.

    :raises typer.Exit: something was found.
    """
    if found:
        raise typer.Exit(Exit.LOOK)


def print_rows(
    as_json: bool, columns: Sequence[str], rows: Sequence[Sequence[Any]], document: Any, empty: str
) -> None:
    """Print ``rows`` as a table, or ``document`` as JSON. Control characters in keys, owners and
    other texts are shown escaped, so that they do not reach the terminal; JSON escapes them itself.

    :param empty: the sentence to print if there are no rows.
    """
    if as_json:
        typer.echo(json.dumps(document, indent=2, default=str))
        return
    if not rows:
        typer.echo(empty)
        return
    # Cells are keys and ids. If they were wrapped, a user could not copy them.
    console = Console(width=None if sys.stdout.isatty() else 240, markup=False, highlight=False)
    console.print(sheet_of(columns, rows))


def sheet_of(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Sheet:
    """Return a table for the terminal, with control characters in its cells escaped."""
    sheet = Sheet()
    for name in columns:
        # On a narrow terminal, fold a cell: a key that is cut off would be useless.
        sheet.add_column(name, overflow="fold")
    for row in rows:
        sheet.add_row(*("" if cell is None else escaped(str(cell)) for cell in row))
    return sheet


def plain(records: Sequence[Any]) -> list[dict[str, Any]]:
    """Return dataclasses as dicts for JSON."""
    return [dataclasses.asdict(record) for record in records]
