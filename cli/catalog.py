"""The commands about other engines: the lists of files that they read, and what they are told."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from ..committer import Table
from .output import EXIT_CODES, AsJson, Exit, Url, print_rows, refusals, say

app = typer.Typer(
    no_args_is_help=True,
    help="Tables as Athena, Trino, Hive, Redshift, Spark SQL and DuckDB meet them.",
    epilog=EXIT_CODES,
)


@app.command()
def manifests(
    table: Url,
    off: Annotated[
        bool, typer.Option("--off", help="Keep them no more, and remove those that are there.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Keep a symlink manifest of each partition from now on, and write all of them anew."""
    with refusals():
        report = Table(table).keep_symlinks(not off)
    row = ("kept" if report.kept else "not kept", report.partitions, report.written)
    columns = ("manifests are", "partitions", "written or removed")
    print_rows(as_json, columns, [row], dataclasses.asdict(report), "")
    if report.unaware:
        again = f"zero-rename catalog manifests {table}{' --off' if off else ''}"
        say(
            f"{len(report.unaware)} jobs were open already ({', '.join(report.unaware[:5])}); "
            f"when they have ended, run it again: {again}"
        )
        raise typer.Exit(Exit.LOOK)
