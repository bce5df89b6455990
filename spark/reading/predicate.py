"""Conversion of a condition in Spark's SQL to an Arrow expression that excludes no fitting row.

Spark decides which rows fit. The expression made here is true for *each* row for which Spark's
condition is true, so it only leaves out rows that cannot fit. sqlglot parses the text, in Spark's
dialect. Parts that are not surely understood exclude no row. A comparison of a column with a
literal is understood if neither a setting of the session nor a conversion decides how the two are
compared: literals of the column's own kind, strings without collation or padding, no floats of 32
bits. A time without a zone has the session's zone, which is not known here: it counts as any time
within a day before or after.
"""

from __future__ import annotations

import datetime as dt
import logging
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from operator import and_, eq, ge, gt, le, lt, ne, or_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from ...committer.errors import InvalidInputError, UnsupportedTypeError
from ...committer.format.parquet.row_filter import RowFilter
from ...committer.format.schema.compatibility import find_column
from ...committer.format.schema.hive_paths import NULL, escape
from ...committer.scan.partition_condition import PartitionCondition
from ..types import spark_schema
from .char_columns import CHAR_TYPE

logger = logging.getLogger("zero_rename.spark.reading.predicate")
MISSING = "sqlglot, which reads conditions, is not installed: pip install sqlglot"
#: Longer texts are not parsed: expressions are nested, and so are their evaluations.
_LONGEST = 20_000
#: Quotes, escapes, variables and comments, whose meaning depends on settings of the session.
_UNSURE = re.compile(r"""["\\]|''|\$\{|--|/\*""")
_WHOLE = re.compile(r"[0-9]{1,38}")
_NUMBER = re.compile(r"[0-9]{1,38}(\.[0-9]{0,38})?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MOMENT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
    r"(?P<zone>Z|[+-](0[0-9]|1[0-7]):[0-5][0-9])?)?"
)
_PREFIX = re.compile(r"([^%_]*)%")
#: More than a session's zone can shift a time: zones are at most 18 hours from UTC.
_ANY_ZONE = dt.timedelta(days=1)
_Compare = Callable[[Any, Any], Any]
#: Comparisons, each with its negation.
_NEGATED: dict[_Compare, _Compare] = {eq: ne, ne: eq, lt: ge, ge: lt, gt: le, le: gt}
#: Comparisons, each with the equivalent one for exchanged sides.
_FLIPPED: dict[_Compare, _Compare] = {eq: eq, ne: ne, lt: gt, gt: lt, le: ge, ge: le}


@dataclass(frozen=True)
class Predicate:
    """Arrow expression for a condition in Spark's SQL.

    :param expression: true for each row that the condition selects; ``None``: nothing is known.
    :param unsure: why the expression may also be true for other rows; ``None``: it is true for the
        selected rows only.
    """

    expression: pc.Expression | None
    unsure: str | None = None


def read_predicate(
    text: str, schema: pa.Schema, columns: Collection[str] | None = None
) -> Predicate:
    """Convert a condition to an Arrow expression over some columns.

    :param text: a condition as for ``DataFrame.where``.
    :param schema: the table's columns.
    :param columns: the only columns that the expression may use; ``None`` for any.
    """
    tree = _tree(text)
    if isinstance(tree, str):
        return Predicate(None, tree)
    reading = _PredicateReading(schema, schema.names if columns is None else columns)
    try:
        known = reading.where(tree, wanted=True)
    except RecursionError:
        return Predicate(None, "it is nested too deeply")
    return Predicate(known, reading.unsure)


def row_filter(
    text: str | None, schema: pa.Schema, columns: Collection[str] | None = None
) -> RowFilter | None:
    """Make a filter that leaves out rows that a condition cannot select; ``None``: it keeps all.

    :param columns: the only columns that the filter may use; ``None`` for any.
    """
    known = None if text is None else read_predicate(text, schema, columns).expression
    return None if known is None else RowFilter([known], schema)


def selected_partitions(
    text: str, schema: pa.Schema, by: Sequence[str], named: Collection[str] | None = None
) -> Collection[str] | None:
    """Select the partitions that may hold rows for a condition; ``None``: any may.

    :param by: the partition columns.
    :param named: the only partitions to select from; ``None`` for all.
    """
    known = read_predicate(text, schema, by).expression if by else None
    if known is None:
        return named
    return PartitionCondition(RowFilter([known], schema), schema, by, named)


def named_partition(text: str, schema: pa.Schema, by: Sequence[str]) -> str | None:
    """Return the path of the one partition that a condition names.

    The condition must have ``column = value`` for each partition column, and nothing else. ``None``
    for other conditions, and if a value may mean one thing to Spark and another in a path.

    :param schema: the table's columns.
    :param by: its partition columns.
    """
    tree = _tree(text)
    if isinstance(tree, str):
        return None
    from sqlglot import exp

    parts: dict[str, str] = {}
    for side in tree.flatten() if isinstance(tree, exp.And) else [tree]:
        plain = isinstance(side, exp.EQ) and isinstance(side.this, exp.Column)
        own = find_column(side.this.name, by) if plain and len(side.this.parts) == 1 else None
        if own is None or own in parts or not isinstance(side.expression, exp.Literal):
            return None
        if not _is_one_value(schema, schema.field(own), side.expression):
            return None
        parts[own] = side.expression.this
    if not by or parts.keys() != set(by):
        return None
    return "/".join(f"{escape(name)}={escape(parts[name])}" for name in by)


def _is_one_value(schema: pa.Schema, field: pa.Field, literal: Any) -> bool:
    """Return whether a literal has the same value for Spark's comparison and in a path's text."""
    kind, text, quoted = field.type, literal.this, literal.is_string
    if pt.is_integer(kind):
        return True
    if pt.is_decimal(kind):  # Spark compares it with a text as 64-bit floats: 15 digits are sure.
        return not quoted or kind.precision <= 15
    if pt.is_string(kind):
        return quoted and text not in ("", NULL) and _is_plain(schema, field)
    if pt.is_timestamp(kind) and kind.tz is not None:  # Without a zone, it has the session's.
        found = _MOMENT.fullmatch(text) if quoted else None
        return found is not None and found["zone"] is not None
    is_plain = pt.is_boolean(kind) or pt.is_date(kind) or pt.is_timestamp(kind) or pt.is_time(kind)
    return quoted and is_plain


def require_text(name: str, given: object, undone: str) -> None:
    """Check that an expression is a text, not a column of Spark's or a value.

    :param name: the parameter, for the error.
    :param undone: what was not done, for the error.
    :raises InvalidInputError: it is not.
    """
    if not isinstance(given, str):
        raise InvalidInputError(
            f"{name} is a {type(given).__name__}, not a text; nothing was {undone}.",
            remedy='Write it in Spark\'s SQL: "day = \'2013-01-01\'", "price * 2", "0", "null".',
        )


def refuse_beyond_rows(name: str, text: str) -> None:
    """Refuse an expression that cannot be evaluated row by row.

    An expression that cannot be parsed here is left for Spark to refuse.

    :param name: the parameter, for the error.
    :raises InvalidInputError: it is not a text, or has an aggregate, a window or a subquery.
    """
    require_text(name, text, "changed")
    try:
        import sqlglot
        from sqlglot import exp
        from sqlglot.errors import SqlglotError
    except ModuleNotFoundError:
        return
    try:
        tree = sqlglot.parse_one(text, read="spark")
    except (SqlglotError, RecursionError):
        return
    found = tree.find(exp.AggFunc, exp.Window, exp.Query)
    if found is not None:
        raise InvalidInputError(
            f"{name} has {found.sql('spark')[:100]!r}, and is evaluated row by row: no aggregate, "
            "window or subquery. Nothing was changed.",
            remedy="Compute it first, and give the value, or join it to the frame.",
        )


def _tree(text: str) -> Any:
    """Parse a condition by sqlglot. Return the reason instead if the result would not be sure."""
    try:
        import sqlglot
        from sqlglot.errors import SqlglotError
    except ModuleNotFoundError:
        logger.warning("where=%r leaves nothing unread: %s", text[:200], MISSING)
        return MISSING
    if len(text) > _LONGEST:
        return "it is too long"
    if _UNSURE.search(text):
        return "it has double quotes, escapes, variables or comments"
    try:
        return sqlglot.parse_one(text, read="spark")
    except (SqlglotError, RecursionError) as error:
        return str(error).splitlines()[0][:200]


class _PredicateReading:
    """Conversion of one condition over a table's columns to an Arrow expression.

    :attr:`unsure` says which part was not surely understood; ``None``: all parts were.
    """

    def __init__(self, schema: pa.Schema, columns: Collection[str]) -> None:
        self._schema = schema
        self._columns = columns
        self.unsure: str | None = None

    def where(self, node: Any, wanted: bool) -> pc.Expression | None:
        """Return an expression that is true for each row for which a node is true.

        If not ``wanted``, for each row for which it is false. A node that is null is neither.
        """
        from sqlglot import exp

        if node.args.get("negate"):
            node, wanted = node.copy(), not wanted
            node.set("negate", None)
        if isinstance(node, exp.Paren):
            return self.where(node.this, wanted)
        if isinstance(node, exp.Not):
            return self.where(node.this, not wanted)
        if isinstance(node, exp.And | exp.Or):
            sides = [self.where(side, wanted) for side in node.flatten()]
            return _joined(sides, isinstance(node, exp.And) is wanted)
        found = self._one(node, wanted)
        return self._unknown(node) if found is None else found

    def _unknown(self, node: Any) -> None:
        self.unsure = self.unsure or f"{node.sql('spark')[:100]!r} is not surely understood"

    def _one(self, node: Any, wanted: bool) -> pc.Expression | None:
        """Convert a node that is neither *and*, *or* nor *not*, as :meth:`where` does."""
        from sqlglot import exp

        comparisons = {exp.EQ: eq, exp.NEQ: ne, exp.LT: lt, exp.LTE: le, exp.GT: gt, exp.GTE: ge}
        given = {name for name, value in node.args.items() if value}
        kind = type(node)
        if kind in comparisons and given == {"this", "expression"}:
            return self._compared(node.this, comparisons[kind], node.expression, wanted)
        if kind is exp.Between and given == {"this", "low", "high"}:
            bounds = ((ge, node.args["low"]), (le, node.args["high"]))
            sides = [self._compared(node.this, one, bound, wanted) for one, bound in bounds]
            return _joined(sides, wanted)
        column = self._column(node.this) if given else None
        if column is None or kind not in (exp.In, exp.Like, exp.Is):
            return None
        if kind is exp.In and given == {"this", "expressions"}:
            if pt.is_floating(column.type) or pt.is_timestamp(column.type):
                return None  # Spark may compare all of them as texts.
            sides = [self._compared(node.this, eq, item, wanted) for item in node.expressions]
            return _joined(sides, not wanted)
        if given != {"this", "expression"}:
            return None
        field = pc.field(column.name)
        if kind is exp.Is and isinstance(node.expression, exp.Null):
            return field.is_null() if wanted else field.is_valid()
        prefix = _PREFIX.fullmatch(_text(node.expression) or "")
        if kind is not exp.Like or prefix is None or not pt.is_string(column.type):
            return None
        found = pc.starts_with(field, prefix[1])
        return found if wanted else ~found

    def _compared(
        self, left: Any, compare: _Compare, right: Any, wanted: bool
    ) -> pc.Expression | None:
        column = self._column(left)
        if column is None:
            left, right, compare = right, left, _FLIPPED[compare]
            column = self._column(left)
        bounds = None if column is None else _bounds(right, column.type)
        if column is None or bounds is None:
            return self._unknown(right)
        low, high = bounds
        if low != high:
            self.unsure = self.unsure or f"{right.sql('spark')!r} has no zone"
        field = pc.field(column.name)
        compare = compare if wanted else _NEGATED[compare]
        if compare is eq and low != high:
            return (field >= low) & (field <= high)
        if compare is ne and low != high:
            return field.is_valid()
        found = compare(field, low if compare in (gt, ge) else high)
        # In Spark, NaN is greater than all other values.
        is_nan = pt.is_floating(column.type) and compare in (ne, gt, ge)
        return found | field.is_nan() if is_nan else found

    def _column(self, node: Any) -> pa.Field | None:
        """Return the column that a node names, if Spark compares its values without conversion."""
        from sqlglot import exp

        # For an id of 64 bits, Spark resolves `id in (1, 2)` to a cast of it to its own type.
        widened = _cast(node, exp.DataType.Type.BIGINT)
        node = node if widened is None else widened
        name = node.this.name if isinstance(node, exp.Column) and len(node.parts) == 1 else None
        own = None if name is None else find_column(name, self._schema.names)
        if own is None or own not in self._columns:
            return None
        field = self._schema.field(own)
        if widened is not None and not pt.is_int64(field.type):
            return None
        return field if _is_plain(self._schema, field) else None


def _is_plain(schema: pa.Schema, field: pa.Field) -> bool:
    """Return whether Spark compares a column's values as Arrow does.

    It does not for padded or collated strings, nor for user-defined types.
    """
    from pyspark.sql import types as st

    try:
        seen = spark_schema(schema, [field.name])[0]
    except UnsupportedTypeError:
        return False
    if pt.is_string(field.type):
        return seen.dataType == st.StringType() and CHAR_TYPE not in seen.metadata
    plain = (
        *(st.ByteType, st.ShortType, st.IntegerType, st.LongType, st.DecimalType, st.DoubleType),
        *(st.BooleanType, st.DateType, st.TimestampType, st.TimestampNTZType),
    )
    return type(seen.dataType) in plain


def _joined(sides: Sequence[pc.Expression | None], all_hold: bool) -> pc.Expression | None:
    """Join expressions by *and* if ``all_hold``, else by *or*; ``None`` if the result is unknown.

    An unknown side can be left out of *and*, but not of *or*.
    """
    known = [side for side in sides if side is not None]
    if not known or (len(known) < len(sides) and not all_hold):
        return None
    return reduce(and_ if all_hold else or_, known)


def _text(node: Any) -> str | None:
    """Return the text of a literal in quotes; ``None`` for other nodes."""
    from sqlglot import exp

    return node.this if isinstance(node, exp.Literal) and node.is_string else None


def _bounds(node: Any, kind: pa.DataType) -> tuple[pa.Scalar, pa.Scalar] | None:
    """Return a lower and an upper bound of a literal's value, as Spark compares it with a column.

    Both are equal if the value is certain. ``None`` if the comparison is not certain.
    """
    from sqlglot import exp

    if pt.is_timestamp(kind):
        return _moments(node, kind)
    value: Any = None
    if pt.is_boolean(kind):
        value = node.this if isinstance(node, exp.Boolean) else None
    elif pt.is_string(kind):
        value = _text(node)
    elif pt.is_date32(kind):
        value = _date(_text(_cast(node, exp.DataType.Type.DATE) or node))
    else:
        value = _number(node, kind)
    if value is None:
        return None
    try:
        scalar = pa.scalar(value, kind)
    except (pa.ArrowException, OverflowError, ValueError):
        return None
    return scalar, scalar


def _number(node: Any, kind: pa.DataType) -> int | float | Decimal | None:
    from sqlglot import exp

    sign = "-" if isinstance(node, exp.Neg) else ""
    node = node.this if sign else node
    own = {pa.int64(): exp.DataType.Type.BIGINT, pa.float64(): exp.DataType.Type.DOUBLE}.get(kind)
    typed = None if own is None else _cast(node, own)
    node = node if typed is None else typed  # `1000L`, `CAST(1000 AS BIGINT)`, `1.5D`
    if not isinstance(node, exp.Literal) or node.is_string:
        return None
    if pt.is_integer(kind):
        return int(sign + node.this) if _WHOLE.fullmatch(node.this) else None
    if not _NUMBER.fullmatch(node.this):
        return None
    if pt.is_float64(kind):
        return float(sign + node.this)
    whole, _, fraction = node.this.partition(".")
    fits = pt.is_decimal(kind) and len(fraction) <= kind.scale
    if not fits or len(whole.lstrip("0")) > kind.precision - kind.scale:
        return None
    return Decimal(sign + node.this)


def _cast(node: Any, *kinds: Any) -> Any:
    """Return the operand of a cast to one of some types; ``None`` for other nodes.

    A typed literal such as ``date '2013-01-01'`` is a cast, too.
    """
    from sqlglot import exp

    return node.this if isinstance(node, exp.Cast) and node.to.this in kinds else None


def _date(text: str | None) -> dt.date | None:
    if text is None or not _DATE.fullmatch(text):
        return None
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        return None


def _moments(node: Any, kind: pa.DataType) -> tuple[pa.Scalar, pa.Scalar] | None:
    """Return the earliest and the latest time that a literal may mean; ``None``: not certain."""
    from sqlglot import exp

    types = exp.DataType.Type
    zones = (types.TIMESTAMPTZ, types.TIMESTAMPLTZ, types.TIMESTAMPNTZ)
    typed = _cast(node, types.DATE, types.TIMESTAMP, *zones)
    found = _MOMENT.fullmatch(_text(node if typed is None else typed) or "")
    if found is None:
        return None
    zoned, has_zone = pt.is_timestamp(kind) and kind.tz is not None, bool(found["zone"])
    if has_zone and (typed is not None or not zoned):
        return None
    # A plain text is cast to the column's own type, with the session's zone if that has one.
    around = _ANY_ZONE if typed is not None or (zoned and not has_zone) else dt.timedelta(0)
    try:
        moment = dt.datetime.fromisoformat(found[0])
        if zoned:
            moment = moment.replace(tzinfo=dt.UTC) if not has_zone else moment.astimezone(dt.UTC)
        return pa.scalar(moment - around, kind), pa.scalar(moment + around, kind)
    except (pa.ArrowException, OverflowError, ValueError):
        return None
