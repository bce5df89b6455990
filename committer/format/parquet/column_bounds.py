"""Bounds of columns: of a row group, from its statistics; and of a file, as a text on record.

By these texts readers skip files without opening them. A text has columns separated by ampersands.
Each has its name, ``=``, a letter for its kind, and, separated by commas, the smallest value, the
greatest, and the number of nulls: ``id=i0,999&origin=sJFK,SFO,2``. Zero nulls are left out. If the
rows are sorted, the names of the columns that they are sorted by come first: ``id,at&id=i0,999``. A
record has such a text for each file, so it must be short: at most eight columns, and 32 characters
of strings, the greatest rounded up.

A text is true of the file as it was written, and the table's columns may have changed since. Bounds
count only if they are of the column's kind and exactly values of its type; a text that cannot be
read gives no bounds.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import isnan
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from ..schema.types import normalise

#: Most columns of a file whose bounds are recorded: the first that have an order.
MOST_COLUMNS = 8
_LONGEST = 32
_ESCAPED = {ord(sign): f"%{ord(sign):02X}" for sign in '%&,="\\' + "".join(map(chr, range(32)))}
#: The letter of a column without known bounds.
_NONE = "n"
#: Writers with their first versions whose bounds of texts, decimals and unsigned numbers are in the
#: order of the type. Their footers say so by ``ColumnOrder``, which Arrow does not show. Earlier
#: versions compared bytes as signed numbers (PARQUET-686, PARQUET-1025).
_ORDERED = {"parquet-cpp-arrow": (1, 0), "parquet-mr": (1, 10), "DuckDB": (2, 0), "Polars": (2, 1)}
_CREATED_BY = re.compile(r"(?P<name>\S+)(?: \(\w+\))? version v?(?P<major>\d+)\.(?P<minor>\d+)")


@dataclass(frozen=True)
class ColumnBounds:
    """Known bounds of the values of one column.

    :param low: no value is smaller, except NaN; ``None``: not known.
    :param high: no value is greater; known if ``low`` is known.
    :param nulls: the number of nulls; ``None``: not counted.
    """

    low: pa.Scalar | None
    high: pa.Scalar | None
    nulls: int | None

    def guarantees(self, field: pa.Field, rows: int) -> list[pc.Expression]:
        """Return expressions; for each row, at least one of them is true.

        :param rows: the number of the column's rows.
        """
        column = pc.field(field.name)
        if self.nulls == rows:
            return [column.is_null()]
        if self.low is None or self.high is None:
            return [pc.scalar(True)]
        within = [column >= self.low, column <= self.high]
        if self.nulls != 0:
            within = [bound | column.is_null() for bound in within]
        bounded = within[0] & within[1]
        if not pt.is_floating(field.type):
            return [bounded]
        return [bounded, column == pa.scalar(float("nan"), field.type)]


NOTHING_KNOWN = ColumnBounds(None, None, None)


def has_bounds(stored: pa.DataType, kind: pa.DataType) -> bool:
    """Return whether statistics of a stored type are bounds of a column of the table's type.

    They must be in Arrow's order.

    :param kind: the table's type.
    """
    if _letter(stored) == _NONE:
        return False
    same = normalise(pa.schema([("x", stored)])).field(0).type
    return (
        same == kind
        or pt.is_floating(stored)
        or (pt.is_integer(stored) and pt.is_integer(kind))
        or (pt.is_decimal(stored) and pt.is_decimal(kind))
    )


def is_ordered(stored: pa.DataType, created_by: str | None) -> bool:
    """Return whether a file's bounds of a column are in the order of the column's type.

    For signed numbers, dates and times, those of all writers are. Other types are trusted if
    parquet-java trusts them: if the writer knew column orders.

    :param stored: the column's type in the file.
    :param created_by: the footer's ``created_by``, which names the writer.
    """
    if not (pt.is_string(stored) or pt.is_decimal(stored) or pt.is_unsigned_integer(stored)):
        return True
    found = _CREATED_BY.match(created_by or "")
    first = None if found is None else _ORDERED.get(found["name"])
    return (
        found is not None
        and first is not None
        and (int(found["major"]), int(found["minor"])) >= first
    )


def chunk_bounds(
    statistics: pq.Statistics | None, stored: pa.DataType, kind: pa.DataType
) -> ColumnBounds:
    """Return the bounds of a row group's values in one column, in the table's type ``kind``."""
    if statistics is None:
        return NOTHING_KNOWN
    nulls = statistics.null_count if statistics.has_null_count else None
    low = high = None
    if statistics.has_min_max:
        try:
            if pt.is_timestamp(stored):
                raw = (statistics.min_raw, statistics.max_raw)
                low, high = (pa.scalar(value, pa.int64()).cast(stored) for value in raw)
            else:
                low, high = pa.scalar(statistics.min, stored), pa.scalar(statistics.max, stored)
            low, high = low.cast(kind), high.cast(kind)
            if pt.is_floating(kind) and (isnan(low.as_py()) or isnan(high.as_py())):
                low = high = None  # Old writers left NaN as a bound, which bounds nothing.
        except (pa.ArrowException, ValueError, TypeError, OverflowError, ArithmeticError):
            low = high = None  # Not values of the type, or they would change in the cast.
    return ColumnBounds(low, high, nulls)


# On record


def summarise(metadata: pq.FileMetaData, schema: pa.Schema, sorted_by: Sequence[str] = ()) -> str:
    """Write the bounds of a file's columns as a text.

    :param schema: the file's columns, in a table's types.
    :param sorted_by: columns by which its rows are sorted: their bounds come first.
    """
    parts = [order_text(sorted_by)] if sorted_by else []
    found = flat_columns(metadata.schema, schema)
    names = [*sorted_by, *(name for name in found if name not in sorted_by)]
    for name in [name for name in names if name in found][:MOST_COLUMNS]:
        text = _column_text(metadata, *found[name])
        if text:
            parts.append(f"{_escaped(name)}={text}")
    return "&".join(parts)


def flat_columns(file: pq.ParquetSchema, schema: pa.Schema) -> dict[str, tuple[int, pa.DataType]]:
    """Return the columns that have an order, each with its number among the leaves, and its type.

    Paths cannot be used to find a leaf: a column ``a.b`` has the same path as ``b`` in ``a``.

    :param schema: the file's columns, in Arrow's types.
    """
    found, leaf = {}, 0
    for field in schema:
        is_there = leaf < len(file) and file.column(leaf).path == field.name
        if is_there and _letter(field.type) != _NONE:
            found[field.name] = (leaf, field.type)
        leaf += count_leaves(field.type)
    return found


def count_leaves(kind: pa.DataType) -> int:
    """Count the Parquet columns that store a column of a type."""
    inner = [kind.field(number).type for number in range(kind.num_fields)]
    return sum(map(count_leaves, inner)) if inner else 1


def _column_text(metadata: pq.FileMetaData, leaf: int, kind: pa.DataType) -> str:
    """Write a column's bounds and nulls over all row groups; empty: nothing is known."""
    low = high = None
    nulls, known = 0, True
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        count, least, most = _plain_bounds(group.column(leaf).statistics, kind)
        if count is None:
            return ""
        nulls += count
        if least is None or most is None:
            known = known and count == group.num_rows
            continue
        low = least if low is None else min(low, least)
        high = most if high is None else max(high, most)
    if isinstance(low, str) and isinstance(high, str):
        low, high = low[:_LONGEST], _rounded_up(high)
    if not known or low is None or high is None:
        return f"{_NONE}{nulls}" if nulls else ""
    values = [_text(low), _text(high), *([str(nulls)] if nulls else [])]
    return _letter(kind) + ",".join(values)


def _plain_bounds(
    statistics: pq.Statistics | None, kind: pa.DataType
) -> tuple[int | None, Any, Any]:
    """Return the nulls and bounds of a row group, as Python values like those of :func:`_plain`.

    For most types the statistics have such values. Then no scalar of Arrow is made, which would
    import pandas (:mod:`.schema.whole_numbers`).
    """
    it = None if pt.is_unsigned_integer(kind) else _stated_bounds(statistics, kind)
    if it is not None:
        return it
    bounds = chunk_bounds(statistics, kind, kind)
    if bounds.low is None or bounds.high is None:
        return bounds.nulls, None, None
    return bounds.nulls, _plain(bounds.low), _plain(bounds.high)


def _stated_bounds(
    statistics: pq.Statistics | None, kind: pa.DataType
) -> tuple[int, Any, Any] | None:
    if statistics is None or not (statistics.has_null_count and statistics.has_min_max):
        return None
    try:
        if pt.is_timestamp(kind) or pt.is_date32(kind):
            low, high = statistics.min_raw, statistics.max_raw
        else:
            low, high = statistics.min, statistics.max
    except (pa.ArrowException, ValueError):  # Not UTF-8, or a type that an old pyarrow lacks.
        return None
    if pt.is_floating(kind) and (isnan(low) or isnan(high)):
        return None
    return statistics.null_count, low, high


def _rounded_up(text: str) -> str | None:
    """Return a short text that is not smaller than ``text``; ``None``: not possible."""
    if len(text) <= _LONGEST:
        return text
    for end in range(_LONGEST, 0, -1):
        after = ord(text[end - 1]) + 1
        if after <= sys.maxunicode:  # Surrogates, which no text has, are skipped.
            return text[: end - 1] + chr(0xE000 if after == 0xD800 else after)
    return None


def _escaped(text: str) -> str:
    return text.translate(_ESCAPED)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return _escaped(value)
    return format(value, "f") if isinstance(value, Decimal) else repr(value)


def order_text(sorted_by: Sequence[str]) -> str:
    """Write the columns that a file's rows are sorted by as a text; :func:`sort_order` reads it."""
    return ",".join(map(_escaped, sorted_by))


def sort_order(summary: str) -> tuple[str, ...]:
    """Return the columns that a file's rows are sorted by, from its summary."""
    first = summary.split("&", 1)[0]
    return () if "=" in first or not first else tuple(map(unquote, first.split(",")))


def recorded_bounds(summary: str, schema: pa.Schema, names: Collection[str]) -> dict[str, Any]:
    """Return the recorded bounds of some of a file's columns, in the table's types.

    :param schema: the table's schema.
    :returns: a :class:`ColumnBounds` for each column, by name.
    """
    found = {}
    for part in summary.split("&"):
        name, _, rest = part.partition("=")
        name = unquote(name)
        if rest and name in names:
            try:
                found[name] = _read(rest[0], rest[1:].split(","), schema.field(name).type)
            except (pa.ArrowException, ValueError, OverflowError, ArithmeticError):
                continue  # The bounds are of the column's former type; nothing is known.
    return found


def _read(letter: str, values: Sequence[str], kind: pa.DataType) -> ColumnBounds:
    if letter == _NONE:
        return ColumnBounds(None, None, int(values[0]))
    low, high, nulls = values if len(values) > 2 else (*values, "0")
    if letter != _letter(kind):
        return ColumnBounds(None, None, int(nulls))
    return ColumnBounds(_scalar(low, kind), _scalar(high, kind), int(nulls))


# Kinds of values


def _letter(kind: pa.DataType) -> str:
    """Return the letter for a type; types whose values compare alike share one."""
    letters = {
        "i": pt.is_integer(kind),
        "f": pt.is_floating(kind),
        "d": pt.is_decimal(kind),
        "y": pt.is_date32(kind),
        "t": pt.is_timestamp(kind) and kind.tz is None,
        "z": pt.is_timestamp(kind) and kind.tz is not None,
        "s": pt.is_string(kind),
    }
    return next((letter for letter, holds in letters.items() if holds), _NONE)


def _plain(value: pa.Scalar) -> Any:
    """Return a value that Python can compare: dates and times as numbers, without range limits."""
    if pt.is_date32(value.type):
        return value.cast(pa.int32()).as_py()
    return (value.cast(pa.int64()) if pt.is_timestamp(value.type) else value).as_py()


def _scalar(text: str, kind: pa.DataType) -> pa.Scalar:
    """Parse a value from a text, exactly.

    :raises ValueError: it is not a value of this type.
    """
    if pt.is_string(kind):
        return pa.scalar(unquote(text), kind)
    if pt.is_date32(kind):
        return pa.scalar(int(text), pa.int32()).cast(kind)
    if pt.is_timestamp(kind):
        return pa.scalar(int(text), pa.int64()).cast(kind)
    if pt.is_decimal(kind):
        return pa.scalar(Decimal(text), kind)
    if pt.is_integer(kind):
        return pa.scalar(int(text), kind)
    value = pa.scalar(float(text), kind)
    if value.as_py() != float(text):
        raise ValueError(f"{text} is not exactly a {kind}")
    return value
