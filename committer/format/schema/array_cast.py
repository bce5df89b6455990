"""Cast of Arrow arrays, also nested ones, that matches fields of structs by name.

Arrow's own cast has no kernels for dictionaries of views, which Polars uses for its categories.
Before version 19 it matches the fields of structs in a map by their positions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from .types import annotation_of, find_column

#: Types that many of Arrow's functions have no kernels for, each with a type of the same values
#: that has kernels.
_PLAIN: tuple[tuple[Callable[[pa.DataType], bool], pa.DataType], ...] = (
    (pt.is_string_view, pa.large_string()),
    (pt.is_binary_view, pa.large_binary()),
)


def cast_array(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast an array to a type, without copying if the layout is the same.

    Structs, lists and maps are built again from their cast parts. So a part may be ``not null`` in
    ``kind`` although a null value has null parts, as Spark requires for variants.

    :param kind: fields of its structs are found in the array by name, in any case; those that are
        not there become null.
    :raises pyarrow.ArrowException: a value would change.
    """
    own = array.type
    if own.equals(kind):
        return array
    if isinstance(own, pa.BaseExtensionType):
        return cast_array(array.storage, kind)
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, cast_array(array, kind.storage_type))
    if pt.is_dictionary(own):
        return cast_array(array.dictionary, kind).take(array.indices)
    if pt.is_struct(own) and pt.is_struct(kind):
        names = [part.name for part in own]
        children = [_cast_part(array, names, field) for field in kind]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())
    if pt.is_map(own) and pt.is_map(kind):
        offsets, mask, used = list_layout(array)
        keys = cast_array(array.keys[used], kind.key_type)
        items = cast_array(array.items[used], kind.item_type)
        return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=mask)
    if pt.is_fixed_size_list(own) and pt.is_list(kind):
        return cast_array(array.cast(pa.list_(own.value_field)), kind)
    if (pt.is_list(own) or pt.is_large_list(own)) and pt.is_list(kind):
        offsets, mask, used = list_layout(array)
        values = cast_array(array.values[used], kind.value_type)
        return pa.ListArray.from_arrays(offsets, values, type=kind, mask=mask)
    return array.cast(kind)


def _cast_part(array: Any, names: Sequence[str], field: pa.Field) -> pa.Array:
    """Return a field of an array of structs, in the type of ``field``; if it is missing, nulls."""
    name = _own_name(field.name, names)
    if name not in names:
        return pa.nulls(len(array), field.type)
    return cast_array(array.field(names.index(name)), field.type)


def _own_name(name: str, names: Sequence[str]) -> str:
    """Return the name under which a struct has a field, in any case."""
    return name if name in names else find_column(name, names) or name


def list_layout(array: Any) -> tuple[pa.Array, pa.Array, slice]:
    """Split an array of lists or maps into offsets, null mask, and the used slice of the values.

    The offsets count from the start of that slice.
    """
    offsets = array.offsets
    first, last = offsets[0], offsets[-1]
    used = slice(first.as_py(), last.as_py())
    # pyarrow takes a mask only with offsets that are not a slice. The subtraction makes a copy.
    return pc.subtract(offsets, first).cast(pa.int32()), array.is_null(), used


def plain_columns(table: pa.Table) -> pa.Table:
    """Return the rows of a table in types without dictionaries and views."""
    kinds = [_plain(field.type) for field in table.schema]
    columns = [
        pa.chunked_array([cast_array(chunk, kind) for chunk in column.chunks], kind)
        for column, kind in zip(table.columns, kinds, strict=True)
    ]
    fields = [field.with_type(kind) for field, kind in zip(table.schema, kinds, strict=True)]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields, table.schema.metadata))


def _plain(kind: pa.DataType) -> pa.DataType:
    if annotation_of(kind) is not None:
        return _plain(kind.storage_type)
    if pt.is_dictionary(kind):
        return _plain(kind.value_type)
    if pt.is_struct(kind):
        return pa.struct([field.with_type(_plain(field.type)) for field in kind])
    if pt.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.map_(key.with_type(_plain(key.type)), item.with_type(_plain(item.type)))
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        part = _plain(kind.value_type)
        return kind if part == kind.value_type else pa.list_(kind.value_field.with_type(part))
    return next((plain for holds, plain in _PLAIN if holds(kind)), kind)
