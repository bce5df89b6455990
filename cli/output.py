"""Output and refusals that all commands share."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table as Sheet

from ..committer.errors import ZeroRenameError, escaped


def say(text: str) -> None:
    """A remark on standard error, on a line of its own."""
    typer.echo(escaped(text), err=True)


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@contextmanager
def refusals() -> Iterator[None]:
    """Errors of this package as one paragraph on standard error, exit code 2."""
    try:
        yield
    except ZeroRenameError as error:
        typer.echo(f"{type(error).__name__}: {error}", err=True)
        raise typer.Exit(2) from error


def print_rows(
    as_json: bool, columns: Sequence[str], rows: Sequence[Sequence[Any]], document: Any
) -> None:
    """A table of ``rows``, or ``document`` as JSON. What keys, owners and other words of strangers
    would do to a terminal is shown instead of done; JSON escapes it by itself."""
    if as_json:
        typer.echo(json.dumps(document, indent=2, default=str))
        return
    sheet = Sheet(*columns)
    for row in rows:
        sheet.add_row(*("" if cell is None else escaped(str(cell)) for cell in row))
    # Cells are keys and ids: to wrap them would break them for who copies one.
    console = Console(width=None if sys.stdout.isatty() else 240, markup=False, highlight=False)
    console.print(sheet)


def plain(records: Sequence[Any]) -> list[dict[str, Any]]:
    """Dataclasses as JSON takes them."""
    return [dataclasses.asdict(record) for record in records]
