"""The command that deletes rows by comparisons."""

from __future__ import annotations

from typing import Annotated

import typer

from ..committer import Table
from ..committer.format.parquet.comparison import comparison
from .output import DRY, Apply, AsJson, Url, plain, print_rows, refusals, say


def delete(
    table: Url,
    where: Annotated[
        list[str],
        typer.Option(help='The rows: "id = 3", "name is null". May be repeated: all must hold.'),
    ],
    partition: Annotated[
        list[str] | None, typer.Option(help="Only in this one, such as day=1; may be repeated.")
    ] = None,
    apply: Apply = False,
    as_json: AsJson = False,
) -> None:
    """Delete the rows that fit all comparisons; without --apply only count them."""
    with refusals():
        opened = Table(table)
        condition = comparison(where[0], opened.schema, "--where")
        for text in where[1:]:
            condition &= comparison(text, opened.schema, "--where")
        done = opened.delete(condition, partitions=partition or None, apply=apply)
    rows = [(name, "deleted from" if apply else "would delete from") for name in done.partitions]
    (found,) = plain([done])
    print_rows(as_json, ("partition", "action"), rows, found, "No row fits: nothing is deleted.")
    if done.partitions and not as_json:
        does = "were" if apply else "would be"
        say(f"{done.rows.deleted:,} rows {does} deleted, {done.rows.unchanged:,} looked at stay.")
    if done.partitions and not apply:
        say(DRY)
