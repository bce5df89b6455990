"""Cast of an expression that a user gave to a column's type: a value that does not fit is an error.

In a session without ANSI mode, the default before Spark 4, Spark's own cast makes null of it, or
another number. Its statements ``UPDATE`` and ``MERGE`` refuse that in any mode
(``spark.sql.storeAssignmentPolicy``), and so do changes of rows here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...committer.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

_VALUE = "zero_rename_value"
#: Each holds every value of those before, digits of large numbers aside.
_WIDER = ("tinyint", "smallint", "int", "bigint", "float", "double")


def checked_cast(text: str, name: str, argument: str, wanted: DataType) -> Column:
    """Cast an expression to a column's type; a value that does not fit fails the query.

    The text is evaluated once, be it ``rand()`` or a UDF.

    :param name: of the column; ``argument``: the call's name for its expressions.
    :param wanted: a type without parts.
    """
    from pyspark.sql import functions as F

    kind = wanted.simpleString()
    cast = f"try_cast({_VALUE} as {kind})"
    start = f"{InvalidInputError.__module__}.{InvalidInputError.__name__}: "
    start += f"{argument}[{name!r}]={text[:200]!r} gives "
    end = f", which is no {kind}. Nothing was changed. Give a value that the column holds."
    said = f"concat({_literal(start)}, left(cast({_VALUE} as string), 100), {_literal(end)})"
    failed = f"cast(raise_error({said}) as {kind})"
    fits = f"if({_VALUE} is not null and {cast} is null, {failed}, {cast})"
    return F.expr(f"element_at(transform(array({text}\n), {_VALUE} -> {fits}), 1)")


def refuse_loss_in_parts(text: str, name: str, argument: str, given: DataType, url: str) -> None:
    """Refuse a nested value whose parts Spark would cast in silence.

    :raises InvalidInputError: says so.
    """
    raise InvalidInputError(
        f"{argument}[{name!r}]={text[:200]!r} is {given.simpleString()[:200]}, whose values may "
        "not fit the column, and Spark makes null or another number of them in this session "
        "(spark.sql.ansi.enabled is false). Nothing was changed.",
        table=url,
        remedy="Cast the parts to the column's types in the expression.",
    )


def _literal(text: str) -> str:
    """A text in SQL, whatever the session takes for an escape."""
    return f"cast(X'{text.encode().hex()}' as string)"


def holds_all(given: Any, wanted: Any) -> bool:
    """Tell whether a type, ``wanted``, holds each value of another one."""
    from pyspark.sql import types as st

    if given == wanted or isinstance(given, st.NullType):
        return True
    if isinstance(given, st.ArrayType) and isinstance(wanted, st.ArrayType):
        return holds_all(given.elementType, wanted.elementType)
    if isinstance(given, st.MapType) and isinstance(wanted, st.MapType):
        keys = holds_all(given.keyType, wanted.keyType)
        return keys and holds_all(given.valueType, wanted.valueType)
    if isinstance(given, st.StructType) and isinstance(wanted, st.StructType):
        own = {field.name.lower(): field.dataType for field in given}
        parts = ((own.get(field.name.lower()), field.dataType) for field in wanted)
        return all(part is None or holds_all(part, kind) for part, kind in parts)
    if isinstance(given, st.DecimalType) and isinstance(wanted, st.DecimalType):
        digits = wanted.precision - wanted.scale >= given.precision - given.scale
        return digits and wanted.scale >= given.scale
    names = (given.simpleString(), wanted.simpleString())
    if names[0] in _WIDER and names[1] in _WIDER:
        return _WIDER.index(names[0]) <= _WIDER.index(names[1])
    is_day = isinstance(given, st.DateType)
    return isinstance(wanted, st.StringType) or (is_day and names[1].startswith("timestamp"))
