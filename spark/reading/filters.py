"""Conditions in words: the option and argument ``where``, comparisons of columns.

Values are compared as what they are, not as text, as Spark compares them: a comparison with null
is neither true nor false and keeps no row; NaN equals itself and exceeds all else.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from ...committer.errors import InvalidInputError, UnsupportedTypeError
from ...committer.parquet.row_filter import RowFilter
from ...committer.schema.hive_paths import escape, partition_values
from ..option_values import Comparison, comparisons

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_SYNONYMS = {"==": "=", "<>": "!="}


@dataclass(frozen=True)
class Condition:
    """A comparison of one column.

    :param operator: a key of ``_OPERATORS``.
    :param value: a Python value of the column's kind, or ``None`` for null.
    """

    column: str
    operator: str
    value: Any

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether it is *true* of a partition with these values."""
        own = values[self.column]
        if own is None or self.value is None:
            return False
        return self.compared(_ordered(own), _ordered(self.value))

    def compared(self, left: Any, right: Any) -> Any:
        """The comparison of two values, or of whatever overloads Python's operators."""
        return _OPERATORS[self.operator](left, right)

    def expression(self, kind: pa.DataType) -> pc.Expression:
        """The same of a column of Arrow's, whose NaN is less than, equal to and greater than
        nothing.

        :param kind: the column's type.
        """
        column, value = pc.field(self.column), self.value
        if value is None:
            return pc.scalar(False)
        if not pt.is_floating(kind):
            return self.compared(column, pa.scalar(value, kind))
        nan = column.is_nan()
        if math.isnan(value):
            others = {"=": nan, "!=": ~nan, ">": pc.scalar(False), ">=": nan, "<": ~nan}
            return others.get(self.operator, column.is_valid())
        found = self.compared(column, pa.scalar(value, kind))
        return found | nan if self.operator in ("!=", ">", ">=") else found


def _ordered(value: Any) -> Any:
    """A value that Python orders as Spark orders the original."""
    if isinstance(value, float):
        return (True, 0.0) if math.isnan(value) else (False, value)
    return value


def parse_filter(text: str, schema: pa.Schema) -> list[Condition]:
    """Comparisons of columns joined by ``and``.

    ``day >= 2013-01-01 and name = 'M/S'``; a column with other characters than letters, digits
    and underscores stands in backquotes.

    :param schema: the table's.
    :raises InvalidInputError: it cannot be read, names a column that the table does not have, or
        one whose values cannot be written as text.
    """
    try:
        found = comparisons(text)
    except ValueError as error:
        raise _bad_filter(text, str(error)) from error
    for one in found:
        if schema.get_field_index(one.column) < 0:
            raise _bad_filter(text, f"names {one.column!r}, which is no column of the table")
    return [_condition(text, one, schema) for one in found]


def _condition(text: str, found: Comparison, schema: pa.Schema) -> Condition:
    column, symbol = found.column, _SYNONYMS.get(found.operator, found.operator)
    kind = schema.field(column).type
    if pt.is_string(kind):
        return Condition(column, symbol, found.literal)
    if not found.literal:
        raise _bad_filter(text, f"compares {column}, which is {kind}, with an empty text")
    path = f"{escape(column)}={escape(found.literal)}"
    try:
        return Condition(column, symbol, partition_values(path, schema, (column,))[column])
    except UnsupportedTypeError:
        raise _bad_filter(text, f"names {column}, whose type {kind} cannot be compared") from None


def _bad_filter(text: str, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"where={text[:200]!r} {why}; nothing was read.",
        remedy="Write comparisons of columns joined by and, such as "
        "day >= 2013-01-01 and day < 2013-02-01; other texts in single quotes.",
    )


def row_filter(conditions: Sequence[Condition], schema: pa.Schema) -> RowFilter | None:
    """The rows of which all conditions hold; ``None`` for all rows."""
    found = [one.expression(schema.field(one.column).type) for one in conditions]
    return RowFilter(found, schema) if found else None


class Selected(Collection[str]):
    """The partitions of which all conditions hold, as a collection that is not written out.

    :meth:`zero_rename.committer.Table.snapshot` asks it about each partition that the table's
    listing names, so that the heads of others are never read.
    """

    def __init__(
        self,
        conditions: Sequence[Condition],
        schema: pa.Schema,
        partition_by: Sequence[str],
        named: Collection[str] | None = None,
    ) -> None:
        self._conditions = tuple(conditions)
        self._schema = schema
        self._partition_by = tuple(partition_by)
        self._named = None if named is None else frozenset(named)

    def __contains__(self, partition: object) -> bool:
        if self._named is not None and partition not in self._named:
            return False
        if not self._conditions:
            return True
        values = partition_values(str(partition), self._schema, self._partition_by)
        return all(condition.holds(values) for condition in self._conditions)

    def __iter__(self) -> Iterator[str]:
        named: Iterable[str] = self._named or ()
        return (partition for partition in named if partition in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)
