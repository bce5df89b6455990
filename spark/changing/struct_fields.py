"""Casts that match the fields of structs by name. Spark's own cast matches them by position."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...committer.errors import InvalidInputError
from ...committer.format.schema.compatibility import find_column
from ..session_settings import is_ansi
from .checked_cast import checked_cast, holds_all, refuse_loss_in_parts

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField, StructType


def cast_by_name(value: Column, given: DataType, wanted: DataType) -> Column:
    """Cast a value to a column's type, with the fields of its structs matched by name.

    :param given: the value's type, whose structs have the same fields as those wanted, in any
        order.
    """
    return (value if _in_place(given, wanted) else _arranged(value, given, wanted)).cast(wanted)


def by_column(
    argument: str, given: Mapping[str, str], known: Callable[[str], str], url: str
) -> dict[str, str]:
    """Return expressions by the table's names of their columns.

    :param argument: the call's argument for them, for the error.
    :param known: returns the table's name of a column.
    :raises InvalidInputError: two names are of one column.
    """
    found: dict[str, str] = {}
    for name, text in given.items():
        own = known(name)
        if own in found:
            raise InvalidInputError(
                f"{argument} has two expressions for the column {own!r}; nothing was changed.",
                table=url,
                remedy="Give one of them.",
            )
        found[own] = text
    return found


@dataclass(frozen=True)
class ColumnExpressions:
    """Expressions of a call that become columns of a table.

    :param argument: the call's argument for them: ``set``, ``when_matched``.
    :param any_case: names are compared without regard to case.
    :param url: the table, for errors.
    """

    argument: str
    any_case: bool
    url: str

    def cast(self, rows: DataFrame, name: str, text: str, wanted: DataType) -> Column:
        """Cast an expression over rows to a column's type, with fields of structs matched by name.

        :raises InvalidInputError: a struct in it has other fields than the column's; or parts of it
            may not fit, and this session would raise no error.
        """
        from pyspark.sql import functions as F
        from pyspark.sql.types import ArrayType, MapType, StructType

        value, is_silent = F.expr(text), not is_ansi(rows.sparkSession)
        if not (is_silent or _has_fields(wanted)):
            return value.cast(wanted)
        given = rows.select(value.alias(name)).schema.fields[0].dataType
        loses = is_silent and not holds_all(given, wanted)
        if loses and not isinstance(wanted, ArrayType | MapType | StructType):
            return checked_cast(text, name, self.argument, wanted)
        problems = self._differences(given, wanted, name)
        if problems:
            raise InvalidInputError(
                f"{self.argument}[{name!r}]={text[:200]!r} does not have the fields of the column: "
                f"{'; '.join(problems)}. Nothing was changed.",
                table=self.url,
                remedy="Name each field of a struct as the table does, such as "
                "named_struct('a', …, 'b', …); their order is free.",
            )
        if loses:
            refuse_loss_in_parts(text, name, self.argument, given, self.url)
        if _in_place(given, wanted):
            return value.cast(wanted)
        # An array of one element: so an expression that is used several times is computed once,
        # even if it is rand() or a UDF.
        once = F.transform(F.array(value), lambda item: _arranged(item, given, wanted))
        return once.getItem(0).cast(wanted)

    def _differences(self, given: DataType, wanted: DataType, path: str) -> list[str]:
        """Describe the fields that only one of two types has."""
        from pyspark.sql import types as st

        if isinstance(given, st.ArrayType) and isinstance(wanted, st.ArrayType):
            return self._differences(given.elementType, wanted.elementType, f"{path}[]")
        if isinstance(given, st.MapType) and isinstance(wanted, st.MapType):
            return [
                *self._differences(given.keyType, wanted.keyType, f"{path}.key"),
                *self._differences(given.valueType, wanted.valueType, f"{path}.value"),
            ]
        if not (isinstance(given, st.StructType) and isinstance(wanted, st.StructType)):
            return []
        names = [self._own_name(name, wanted.names) for name in given.names]
        often = Counter(names)
        found = [f"{path}.{name} is there {often[name]} times" for name in often if often[name] > 1]
        found += [f"{path}.{it} is not in the table" for it in often if it not in wanted.names]
        found += [f"{path}.{name} is missing" for name in wanted.names if name not in often]
        if not found:
            for own, field in _pairs(given, wanted):
                found += self._differences(own.dataType, field.dataType, f"{path}.{field.name}")
        return found

    def _own_name(self, name: str, names: list[str]) -> str:
        """Return the table's name of a field; the field's own if the table does not have it."""
        return (find_column(name, names) if self.any_case else None) or name


def _has_fields(kind: DataType) -> bool:
    from pyspark.sql import types as st

    if isinstance(kind, st.ArrayType):
        return _has_fields(kind.elementType)
    if isinstance(kind, st.MapType):
        return _has_fields(kind.keyType) or _has_fields(kind.valueType)
    return isinstance(kind, st.StructType)


def _in_place(given: DataType, wanted: DataType) -> bool:
    """Return whether all fields are in the wanted order already, so that Spark's cast is right."""
    from pyspark.sql import types as st

    if isinstance(given, st.ArrayType) and isinstance(wanted, st.ArrayType):
        return _in_place(given.elementType, wanted.elementType)
    if isinstance(given, st.MapType) and isinstance(wanted, st.MapType):
        keys = _in_place(given.keyType, wanted.keyType)
        return keys and _in_place(given.valueType, wanted.valueType)
    if not (isinstance(given, st.StructType) and isinstance(wanted, st.StructType)):
        return True
    if len(given) != len(wanted):
        return False
    pairs = list(zip(given.fields, wanted.fields, strict=True))
    same = all(own.name.lower() == field.name.lower() for own, field in pairs)
    return same and all(_in_place(own.dataType, field.dataType) for own, field in pairs)


def _arranged(value: Column, given: DataType, wanted: DataType) -> Column:
    """Return a value with the fields of its structs in the wanted order."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as st

    if _in_place(given, wanted):
        return value
    if isinstance(given, st.ArrayType) and isinstance(wanted, st.ArrayType):
        own, part = given.elementType, wanted.elementType
        return F.transform(value, lambda item: _arranged(item, own, part))
    if isinstance(given, st.MapType) and isinstance(wanted, st.MapType):
        keys, items = (given.keyType, wanted.keyType), (given.valueType, wanted.valueType)
        if not _in_place(*items):
            value = F.transform_values(value, lambda _, item: _arranged(item, *items))
        if not _in_place(*keys):
            value = F.transform_keys(value, lambda key, _: _arranged(key, *keys))
        return value
    assert isinstance(given, st.StructType)
    assert isinstance(wanted, st.StructType)
    parts = [
        _arranged(value.getField(own.name), own.dataType, field.dataType).alias(field.name)
        for own, field in _pairs(given, wanted)
    ]
    return F.when(value.isNotNull(), F.struct(*parts))


def _pairs(given: StructType, wanted: StructType) -> list[tuple[StructField, StructField]]:
    """Pair each wanted field with the given field of that name, in the wanted order."""
    own = {field.name.lower(): field for field in given.fields}
    return [(own[field.name.lower()], field) for field in wanted.fields]
