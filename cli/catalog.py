"""Commands that register tables with other engines."""

from __future__ import annotations

import dataclasses
import re
from typing import Annotated

import typer

from ..catalog import Engine, ReadBy, describe, sync_catalog, sync_settled
from ..catalog import ddl as statements
from ..catalog.catalog_report import CatalogUrl, table_name
from ..committer import Table
from ..committer.errors import InvalidInputError, ZeroRenameError, escaped
from ..tables import DeltaTable
from .output import EXIT_CODES, AsJson, Url, print_rows, say
from .tables import open_table

app = typer.Typer(
    no_args_is_help=True,
    help="Register tables with Athena, Trino, Hive, Redshift, Spark SQL or DuckDB.",
    epilog=EXIT_CODES,
)

Exclude = Annotated[
    list[str] | None,
    typer.Option(
        help="A column to leave out, so that the engine does not see it; may be repeated."
    ),
]


Registered = Annotated[
    str | None,
    typer.Option(
        "--catalog",
        metavar="URL",
        help="With --apply: register the table there once its jobs are recovered, as catalog sync "
        "does; glue://database/table.",
    ),
]


def check_registered(catalog: str | None) -> None:
    """Check the URL of a catalog before anything is done.

    :raises InvalidInputError: it is invalid.
    """
    if catalog:
        CatalogUrl.parse(catalog)


def register_settled(table: Table | DeltaTable, catalog: str) -> bool:
    """Register a table in a catalog once its jobs are recovered, and report that on standard error.

    A Delta table that another engine made is left to that engine.

    :return: whether the catalog has what the table is: also where no job has made the table yet.
    """
    from ..maintenance.delta import why_left

    if isinstance(table, DeltaTable) and (why := why_left(table)):
        sync = f"zero-rename catalog sync {table.root.url} --catalog {catalog}"
        say(f"{table.root.url} is not registered: {escaped(why)}. To do it all the same: {sync}")
        return True
    try:
        report = sync_settled(table, catalog)
    except ZeroRenameError as error:
        say(f"Jobs are recovered, but {catalog} was not updated: {type(error).__name__}: {error}")
        return False
    if report is None:
        say(f"No job has made the table yet: there is nothing to register in {catalog}.")
        return True
    say(
        f"{report.catalog}: {report.table}; partitions: {report.added} added, {report.updated} "
        f"updated, {report.dropped} dropped."
    )
    return True


@app.command()
def ddl(
    table: Url,
    engine: Annotated[Engine, typer.Option(help="The engine that is to read the table.")],
    name: Annotated[
        str | None,
        typer.Option(
            help="The table's name there. Default: the last part of its root, with underscores."
        ),
    ] = None,
    exclude: Exclude = None,
    as_json: AsJson = False,
) -> None:
    """Print the statements that register the table with an engine. Nothing is sent to the
    engine."""
    opened = open_table(table)
    described = describe(opened, exclude or ())
    last = table_name(opened.root)
    of_trino = "delta" if described.read_by is ReadBy.LOG else "hive"
    default = f"{of_trino}.default.{last}" if engine is Engine.TRINO else last
    found = list(statements(described, engine, name or default))
    if as_json:
        print_rows(as_json, (), [], {"statements": found}, "")
        return
    for statement in found:
        _refuse_controls(statement, opened.root.url)
    for statement in found:
        typer.echo(f"{statement};\n")


#: Control characters, which a terminal obeys or a file of statements may lose, and characters that
#: change the direction of text.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def _refuse_controls(statement: str, table: str) -> None:
    """Refuse a statement that cannot be printed as it is.

    :raises InvalidInputError: a partition or a column has a control character in its name.
    """
    line = next((it for it in statement.split("\n") if _CONTROLS.search(it)), None)
    if line is not None:
        raise InvalidInputError(
            f"A statement has control characters, which would not reach a catalog as they are: "
            f"{escaped(line.strip())[:200]}. Nothing was printed.",
            table=table,
            remedy="Print the statements with --json, which escapes them; or let zero-rename "
            "catalog sync register the table in AWS Glue.",
        )


@app.command()
def sync(
    table: Url,
    catalog: Annotated[
        str,
        typer.Option(metavar="URL", help="Where the table is registered: glue://database/table."),
    ],
    exclude: Exclude = None,
    as_json: AsJson = False,
) -> None:
    """Register the table's present state in a catalog: its columns, and the partitions that hold
    files.

    Only the location and columns of a Delta table are registered: engines read the rest from its
    log.
    """
    report = sync_catalog(table, catalog, exclude=exclude or ())
    columns = ("table", "read by", "partitions added", "updated", "dropped")
    row = (report.table, report.read_by, report.added, report.updated, report.dropped)
    print_rows(as_json, columns, [row], dataclasses.asdict(report), "")
    if report.projected:
        say("Its partitions are projected: the engine computes them, and none are registered.")
