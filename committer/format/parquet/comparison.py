"""Comparison of a column with a value, written as SQL has it, as a condition over rows."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from ...errors import InvalidInputError
from ..schema.types import find_column

_NULL = re.compile(r"\s*(?P<column>\w+|`[^`]+`)\s+is\s+(?P<not>not\s+)?null\s*", re.IGNORECASE)
_COMPARED = re.compile(
    r"\s*(?P<column>\w+|`[^`]+`)\s*(?P<how><=|>=|!=|=|<|>)\s*"
    r"(?:'(?P<quoted>(?:[^']|'')*)'|(?P<bare>[^'\s]+))\s*"
)


def comparison(text: str, schema: pa.Schema, name: str) -> pc.Expression:
    """A comparison of a column with a value, in the column's type: ``op = 'D'``, ``op is null``.

    :param name: of the argument, for errors.
    :raises InvalidInputError: it is none over these columns.
    """
    null, compared = _NULL.fullmatch(text), _COMPARED.fullmatch(text)
    found = null or compared
    column_name = None if found is None else find_column(found["column"].strip("`"), schema.names)
    if found is None or column_name is None:
        why = "is no comparison of one column with one value"
        if found is not None:
            why = f"names no column of {', '.join(schema.names)}"
        raise InvalidInputError(
            f"{name} {text!r} {why}; nothing was changed.",
            remedy=f'Write it as "day < \'2026-01-01\'" or "name is null", one for each {name}.',
        )
    column = pc.field(column_name)
    if null is not None:
        return column.is_valid() if null["not"] else column.is_null()
    assert compared is not None
    quoted, kind = compared["quoted"], schema.field(column_name).type
    value = compared["bare"] if quoted is None else quoted.replace("''", "'")
    try:
        scalar = pa.scalar(value).cast(kind)
    except (pa.ArrowException, ValueError) as error:
        raise InvalidInputError(
            f"{name} {text!r}: {value!r} is no value of {column_name}, which is {kind}; nothing "
            "was changed.",
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
