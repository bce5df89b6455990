"""Which partitions a filter leaves: Spark's pushed filters and the option ``partitionFilter``.

Spark does not look again at a filter that a reader claims, so only those are claimed that come
out here exactly as in Spark: comparisons of a partition column with a literal of its own kind.
Values are compared as what they are, not as text, with SQL's three-valued logic (a comparison
with null is neither true nor false, and keeps no row). Floating-point columns are left to Spark,
whose NaN equals itself and exceeds all else; so are times.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as pt

from ..committer.errors import InvalidInputError
from ..committer.schema.hive_paths import partition_values

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "EqualTo": lambda a, b: a == b,
    "GreaterThan": lambda a, b: a > b,
    "GreaterThanOrEqual": lambda a, b: a >= b,
    "LessThan": lambda a, b: a < b,
    "LessThanOrEqual": lambda a, b: a <= b,
    "StringStartsWith": lambda a, b: a.startswith(b),
    "StringEndsWith": lambda a, b: a.endswith(b),
    "StringContains": lambda a, b: b in a,
}


@dataclass(frozen=True)
class Condition:
    """A comparison of one partition column.

    :param kind: the name of Spark's filter class, such as ``EqualTo``.
    :param value: a Python value of the column's kind; for ``In`` a tuple of them; unused for
        ``IsNull`` and ``IsNotNull``.
    """

    column: str
    kind: str
    value: Any = None
    negated: bool = False

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether it is *true* of a partition with these values."""
        outcome = self._outcome(values[self.column])
        return outcome is not None and outcome is not self.negated

    def _outcome(self, own: Any) -> bool | None:
        if self.kind == "IsNull":
            return own is None
        if self.kind == "IsNotNull":
            return own is not None
        if self.kind == "EqualNullSafe":
            return own is None if self.value is None else own is not None and own == self.value
        if own is None:
            return None
        if self.kind == "In":
            if own in self.value:
                return True
            return None if None in self.value else False
        return None if self.value is None else _COMPARE[self.kind](own, self.value)


def claim(pushed: Filter, schema: pa.Schema, partition_by: Sequence[str]) -> Condition | None:
    """A filter of Spark's as a condition that says exactly the same; ``None`` if there is none.

    :param schema: the table's.
    """
    negated = type(pushed).__name__ == "Not"
    inner: Any = pushed.child if negated else pushed  # pyright: ignore[reportAttributeAccessIssue]
    kind = type(inner).__name__
    path = getattr(inner, "attribute", ())
    if len(path) != 1 or path[0] not in partition_by:
        return None
    column: str = path[0]
    value: Any = getattr(inner, "value", None)
    fits = _fits(schema.field(column).type)
    if kind in ("IsNull", "IsNotNull"):
        return Condition(column, kind, None, negated)
    if kind == "In":
        members = tuple(value)
        known = all(member is None or fits(member) for member in members)
        return Condition(column, kind, members, negated) if known else None
    if kind == "EqualNullSafe" and value is None:
        return Condition(column, kind, None, negated)
    if kind == "EqualNullSafe" or kind in _COMPARE:
        return Condition(column, kind, value, negated) if fits(value) else None
    return None


def _fits(kind: pa.DataType) -> Callable[[Any], bool]:
    """Whether a literal can be compared with values of a column as Spark does."""
    if pt.is_string(kind):
        return lambda value: isinstance(value, str)
    if pt.is_boolean(kind):
        return lambda value: isinstance(value, bool)
    if pt.is_integer(kind):
        return lambda value: isinstance(value, int) and not isinstance(value, bool)
    if pt.is_decimal(kind):
        return lambda value: isinstance(value, int | Decimal) and not isinstance(value, bool)
    if pt.is_date(kind):
        return lambda value: isinstance(value, dt.date) and not isinstance(value, dt.datetime)
    if pt.is_timestamp(kind):
        zoned = kind.tz is not None
        return lambda value: isinstance(value, dt.datetime) and (value.tzinfo is not None) is zoned
    return lambda value: False


_OPERATORS = {
    "=": ("EqualTo", False),
    "==": ("EqualTo", False),
    "!=": ("EqualTo", True),
    "<>": ("EqualTo", True),
    ">": ("GreaterThan", False),
    ">=": ("GreaterThanOrEqual", False),
    "<": ("LessThan", False),
    "<=": ("LessThanOrEqual", False),
}
_COMPARISON = re.compile(
    r"\s*(?:`(?P<quoted>(?:[^`]|``)+)`|(?P<name>\w+))\s*(?P<operator><=|>=|!=|<>|==|=|<|>)\s*"
    r"(?:'(?P<text>(?:[^']|'')*)'|(?P<bare>[^\s'`<>=]+))\s*(?P<more>\band\b|$)",
    re.IGNORECASE,
)


def parse_filter(text: str, schema: pa.Schema, partition_by: Sequence[str]) -> list[Condition]:
    """The option ``partitionFilter``: comparisons joined by ``and``.

    ``day >= 2013-01-01 and name = 'M/S'``; a column with other characters than letters, digits
    and underscores stands in backquotes.

    :raises InvalidInputError: it cannot be read, or names a column that is no partition column.
    """
    conditions: list[Condition] = []
    position, more = 0, True
    while more:
        found = _COMPARISON.match(text, position)
        if found is None:
            raise _bad_filter(text, f"cannot be read from {text[position:][:60]!r} on")
        column = (found["quoted"] or "").replace("``", "`") or found["name"]
        if column not in partition_by:
            raise _bad_filter(text, f"names {column!r}, which is no partition column")
        literal = found["bare"] if found["text"] is None else found["text"].replace("''", "'")
        conditions.append(_condition(column, found["operator"], literal, schema))
        position, more = found.end(), bool(found["more"])
    return conditions


def _condition(column: str, operator: str, literal: str, schema: pa.Schema) -> Condition:
    from ..committer.schema.hive_paths import escape

    kind, negated = _OPERATORS[operator]
    path = f"{escape(column)}={escape(literal)}"
    value = partition_values(path, schema, (column,))[column]
    return Condition(column, kind, value, negated)


def _bad_filter(text: str, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"The option partitionFilter {why}: {text[:200]!r}.",
        remedy="Write comparisons of partition columns joined by and, such as "
        "day >= 2013-01-01 and day < 2013-02-01; other texts in single quotes.",
    )


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
