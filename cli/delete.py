"""The command that deletes rows by comparisons."""

from __future__ import annotations

import re
from typing import Annotated

import pyarrow as pa
import pyarrow.compute as pc
import typer

from ..committer import Table
from ..committer.errors import InvalidInputError
from ..committer.format.schema.types import find_column
from .output import DRY, Apply, AsJson, Url, plain, print_rows, refusals, say

_NULL = re.compile(r"\s*(?P<column>\w+|`[^`]+`)\s+is\s+(?P<not>not\s+)?null\s*", re.IGNORECASE)
_COMPARED = re.compile(
    r"\s*(?P<column>\w+|`[^`]+`)\s*(?P<how><=|>=|!=|=|<|>)\s*"
    r"(?:'(?P<quoted>(?:[^']|'')*)'|(?P<bare>[^'\s]+))\s*"
)


def comparison(text: str, schema: pa.Schema) -> pc.Expression:
    """A comparison of a column with a value, in the column's type.

    :raises InvalidInputError: it is none over these columns.
    """
    null, compared = _NULL.fullmatch(text), _COMPARED.fullmatch(text)
    found = null or compared
    name = None if found is None else find_column(found["column"].strip("`"), schema.names)
    if found is None or name is None:
        why = "is no comparison of one column with one value"
        if found is not None:
            why = f"names no column of {', '.join(schema.names)}"
        raise InvalidInputError(
            f"--where {text!r} {why}; nothing was changed.",
            remedy='Write it as "day < \'2026-01-01\'" or "name is null", one for each --where.',
        )
    column = pc.field(name)
    if null is not None:
        return column.is_valid() if null["not"] else column.is_null()
    assert compared is not None
    quoted, kind = compared["quoted"], schema.field(name).type
    value = compared["bare"] if quoted is None else quoted.replace("''", "'")
    try:
        scalar = pa.scalar(value).cast(kind)
    except (pa.ArrowException, ValueError) as error:
        raise InvalidInputError(
            f"--where {text!r}: {value!r} is no value of {name}, which is {kind}; nothing was "
            "changed.",
            remedy="Compare it with a value of its type.",
        ) from error
    how = {
        "=": column == scalar,
        "!=": column != scalar,
        "<": column < scalar,
        "<=": column <= scalar,
        ">": column > scalar,
        ">=": column >= scalar,
    }
    return how[compared["how"]]


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
        condition = comparison(where[0], opened.schema)
        for text in where[1:]:
            condition &= comparison(text, opened.schema)
        done = opened.delete(condition, partitions=partition or None, apply=apply)
    rows = [(name, "deleted from" if apply else "would delete from") for name in done.partitions]
    (found,) = plain([done])
    print_rows(as_json, ("partition", "action"), rows, found, "No row fits: nothing is deleted.")
    if done.partitions and not as_json:
        does = "were" if apply else "would be"
        say(f"{done.rows.deleted:,} rows {does} deleted, {done.rows.unchanged:,} looked at stay.")
    if done.partitions and not apply:
        say(DRY)
