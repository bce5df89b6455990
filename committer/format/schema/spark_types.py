"""Types that Spark lacks: a table's types as Spark reads them, and back again.

Spark has no unsigned integers and no binary of a fixed width. It reads such a column in the
smallest of its types that holds the column's values, and returns the rows in that type.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.types as pt

#: Normalised types that Spark lacks, each with the smallest of its types that holds their values.
_WIDENED: tuple[tuple[Callable[[pa.DataType], bool], pa.DataType], ...] = (
    (pt.is_uint8, pa.int16()),
    (pt.is_uint16, pa.int32()),
    (pt.is_uint32, pa.int64()),
    (pt.is_uint64, pa.decimal128(20, 0)),
    (pt.is_fixed_size_binary, pa.binary()),
)


def seen_by_spark(kind: pa.DataType) -> pa.DataType:
    """Return the Arrow type in which Spark reads a normalised type."""
    for holds, widened in _WIDENED:
        if holds(kind):
            return widened
    if pt.is_list(kind):
        return pa.list_(seen_by_spark(kind.value_type))
    if pt.is_map(kind):
        return pa.map_(seen_by_spark(kind.key_type), seen_by_spark(kind.item_type))
    if pt.is_struct(kind) and not is_variant(kind):
        return pa.struct([f.with_type(seen_by_spark(f.type)) for f in kind])
    return kind


def is_variant(kind: pa.DataType) -> bool:
    """Return whether an Arrow struct is Spark's form of a variant."""
    index = kind.get_field_index("metadata") if pt.is_struct(kind) else -1
    if index < 0 or kind.get_field_index("value") < 0:
        return False
    return (kind.field(index).metadata or {}).get(b"variant") == b"true"


def in_own_types(schema: pa.Schema, table: pa.Schema) -> pa.Schema:
    """Give columns that come from Spark the types of the table's columns.

    A type is changed only if it is the one in which Spark reads the table's column.

    :param schema: Spark's columns, normalised and named like the table's.
    :param table: the table's schema.
    """
    for index, field in enumerate(schema):
        if field.name in table.names:
            kind = _own_type(field.type, table.field(field.name).type)
            if kind != field.type:
                schema = schema.set(index, field.with_type(kind))
    return schema


def _own_type(given: pa.DataType, own: pa.DataType) -> pa.DataType:
    if pt.is_struct(given) and pt.is_struct(own):
        kinds = {part.name: part.type for part in own}
        parts = [
            part.with_type(_own_type(part.type, kinds.get(part.name, part.type))) for part in given
        ]
        return pa.struct(parts)
    if pt.is_list(given) and pt.is_list(own):
        return pa.list_(given.value_field.with_type(_own_type(given.value_type, own.value_type)))
    if pt.is_map(given) and pt.is_map(own):
        key = given.key_field.with_type(_own_type(given.key_type, own.key_type))
        return pa.map_(key, given.item_field.with_type(_own_type(given.item_type, own.item_type)))
    return own if any(holds(own) and given == wider for holds, wider in _WIDENED) else given
