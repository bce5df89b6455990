"""Cast of a user's expression to a column's type, in which a value that does not fit is an error.

In a session without ANSI mode, the default before Spark 4, Spark's own cast turns such a value into
null or another number. Spark's statements ``UPDATE`` and ``MERGE`` refuse it in any mode
(``spark.sql.storeAssignmentPolicy``), and so do changes of rows here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...committer.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

_VALUE = "zero_rename_value"
#: Each type can hold all values of those before it, except for some digits of large numbers.
_WIDER = ("tinyint", "smallint", "int", "bigint", "float", "double")


def checked_cast(text: str, name: str, argument: str, wanted: DataType) -> Column:
    """Cast an expression to a column's type; a value that does not fit fails the query.

    The text is evaluated once, even if it is ``rand()`` or a UDF.

    :param name: the column, for the error.
    :param argument: the call's argument that holds the expressions, for the error.
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
    """Refuse a nested value if Spark would cast its parts without an error.

    :raises InvalidInputError: always.
    """
    raise InvalidInputError(
        f"{argument}[{name!r}]={text[:200]!r} is {given.simpleString()[:200]}, whose values may "
        "not fit the column, and Spark makes null or another number of them in this session "
        "(spark.sql.ansi.enabled is false). Nothing was changed.",
        table=url,
        remedy="Cast the parts to the column's types in the expression.",
    )


def _literal(text: str) -> str:
    """Write a text as SQL that does not depend on the session's rules for escapes."""
    return f"cast(X'{text.encode().hex()}' as string)"


def holds_all(given: Any, wanted: Any) -> bool:
    """Return whether the type ``wanted`` can hold all values of the type ``given``."""
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
