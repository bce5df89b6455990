"""Annotations of Parquet columns without a plain type in Arrow, and their treatment in tables.

UUID and JSON become columns of 16 bytes and of text. They are marked, so that rows are written with
the annotation again. An ENUM becomes a text, as in Spark. Columns whose bytes would lose their
meaning when their rows are written again are refused: INTERVAL, GEOMETRY, GEOGRAPHY, BSON and
VARIANT.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from ..schema.row_metadata import ROW_METADATA
from ..schema.types import ANNOTATED, ANNOTATION, find_column
from .column_bounds import count_leaves

#: pyarrow's names, without parameters, of the annotations of leaves that tables can hold.
_HELD = frozenset(
    {
        *("None", "Null", "String", "Enum", "Decimal", "Date", "Time", "Timestamp", "Int"),
        *("Float16", "JSON", "UUID"),
    }
)
#: A group in pyarrow's print of a file's schema: its indentation, and its name with its annotation.
#: pyarrow shows the annotation of a group nowhere else.
_GROUP = re.compile(r"( *)(?:required|optional|repeated) group \S+ (.*) \{")
_VARIANT = re.compile(r"(.*) \(Variant(?:\(\d+\))?\)")
#: pyarrow's extension types, by annotation; older ones have fewer.
_EXTENSIONS: dict[bytes, pa.DataType] = {
    name: getattr(pa, made)()
    for name, made in ((b"UUID", "uuid"), (b"JSON", "json_"))
    if hasattr(pa, made)
}


def annotated_schema(metadata: pq.FileMetaData) -> tuple[pa.Schema, dict[str, str]]:
    """Return the columns of a file in Arrow's types; those annotated as UUID or JSON are marked.

    :param metadata: the file's footer.
    :return: the second result has the columns that no table can hold, by name, with the reason.
    """
    arrow = metadata.schema.to_arrow_schema()
    if not any(map(_is_other, _leaves(metadata))) and not any(map(_may_be_variant, arrow)):
        return arrow, {}
    leaves, variants = _leaves(metadata), _variants(metadata, arrow)
    fields, refused = [], {}
    for field in arrow:
        found: list[str] = []
        fields.append(_marked(field, leaves, variants, found))
        if found:
            refused[field.name] = "; ".join(dict.fromkeys(found))
    return pa.schema(fields, metadata=arrow.metadata), refused


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """Give marked columns the types for which pyarrow writes their annotations.

    :param schema: columns in a table's normalised types.
    """
    return pa.schema([_stored(field) for field in schema], metadata=schema.metadata)


def agreed(own: pa.Field, given: pa.Field) -> pa.Field:
    """Drop the marks of a column that another column of its type does not have."""
    kind, other = own.type, given.type
    if pt.is_struct(kind) and pt.is_struct(other):
        parts = []
        for part in kind:
            name = find_column(part.name, (it.name for it in other))
            parts.append(part if name is None else agreed(part, other.field(name)))
        own = own.with_type(pa.struct(parts))
    elif pt.is_list(kind) and pt.is_list(other):
        own = own.with_type(pa.list_(agreed(kind.value_field, other.value_field)))
    elif pt.is_map(kind) and pt.is_map(other):
        key = agreed(kind.key_field, other.key_field)
        own = own.with_type(pa.map_(key, agreed(kind.item_field, other.item_field)))
    metadata = dict(own.metadata or {})
    if metadata.get(ANNOTATION) == (given.metadata or {}).get(ANNOTATION):
        return own
    metadata.pop(ANNOTATION, None)
    return own.with_metadata(metadata)


def _stored(field: pa.Field) -> pa.Field:
    kind = field.type
    said = (field.metadata or {}).get(ANNOTATION)
    if said in _EXTENSIONS and ANNOTATED.get(said) == kind:
        return field.with_type(_EXTENSIONS[said])
    if pt.is_struct(kind):
        return field.with_type(pa.struct([_stored(part) for part in kind]))
    if pt.is_list(kind):
        return field.with_type(pa.list_(_stored(kind.value_field)))
    if pt.is_map(kind):
        return field.with_type(pa.map_(_stored(kind.key_field), _stored(kind.item_field)))
    return field


def _leaves(metadata: pq.FileMetaData) -> Iterator[Any]:
    return (metadata.schema.column(number) for number in range(len(metadata.schema)))


def _name(leaf: Any) -> str:
    """Return pyarrow's name of a leaf's annotation."""
    if leaf.converted_type == "BSON":
        return "BSON"
    return str(leaf.logical_type).split("(", 1)[0]


def _is_other(leaf: Any) -> bool:
    """Return whether a leaf has an annotation that its type in Arrow does not show."""
    name = _name(leaf)
    return name not in _HELD or name in ("UUID", "JSON", "Enum")


def _may_be_variant(field: pa.Field) -> bool:
    kind = field.type
    if pt.is_struct(kind) and kind.get_field_index("metadata") >= 0:
        return True
    return any(_may_be_variant(kind.field(number)) for number in range(kind.num_fields))


def _marked(
    field: pa.Field, leaves: Iterator[Any], variants: frozenset[str], found: list[str]
) -> pa.Field:
    """Mark the annotated parts of a column, or of a field in one.

    :param leaves: the file's leaves, from the first one of this field on.
    :param found: gets a description of each part that no table can hold.
    """
    kind = field.type
    if pt.is_struct(kind):
        parts = [_marked(part, leaves, variants, found) for part in kind]
        return field.with_type(pa.struct(parts))
    if pt.is_map(kind):
        key = _marked(kind.key_field, leaves, variants, found)
        return field.with_type(pa.map_(key, _marked(kind.item_field, leaves, variants, found)))
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        part = _marked(kind.value_field, leaves, variants, found)
        return field.with_type(pa.list_(part))
    if isinstance(kind, pa.BaseExtensionType):
        for _ in range(count_leaves(kind.storage_type)):
            next(leaves)
        return field
    leaf = next(leaves)
    name = _name(leaf)
    its = next((it for it in variants if f"{leaf.path}.".startswith(f"{it}.")), None)
    if its is not None:
        found.append(_refused(its, "VARIANT"))
    elif name not in _HELD:
        found.append(_refused(leaf.path, name.upper()))
    if name == "Enum":
        return field.with_type(pa.string())
    said = name.encode()
    if ANNOTATED.get(said) == kind:
        return field.with_metadata({**(field.metadata or {}), ANNOTATION: said})
    return field


def _refused(path: str, annotation: str) -> str:
    return f"the column {path!r} has the type {annotation}, which a table cannot hold"


def _variants(metadata: pq.FileMetaData, arrow: pa.Schema) -> frozenset[str]:
    """Find the paths of columns that are variants.

    They are annotated, or only Spark's description of the file names them, as in files of
    Spark 4.0.
    """
    path: list[str] = []
    found = set()
    for line in str(metadata.schema).splitlines():
        group = _GROUP.fullmatch(line)
        if group is None:
            continue
        variant = _VARIANT.fullmatch(group[2])
        # The first group is the file's own, which is not a part of any path.
        path[len(group[1]) // 2 :] = [variant[1] if variant else re.sub(r" \(\w+\)$", "", group[2])]
        if variant:
            found.add(".".join(path[1:]))
    described = (metadata.metadata or {}).get(ROW_METADATA)
    if described is not None:
        found |= {name for name, kind in _described(described) if _has_variant(kind)}
    return frozenset(found)


def _described(text: bytes) -> Iterator[tuple[str, Any]]:
    try:
        fields = json.loads(text)["fields"]
    except (ValueError, TypeError, KeyError):
        return  # Other programs may write anything there.
    for field in fields:
        if isinstance(field, Mapping) and isinstance(field.get("name"), str):
            yield field["name"], field.get("type")


def _has_variant(kind: Any) -> bool:
    """Return whether a type in Spark's JSON is a variant, or has one inside."""
    if isinstance(kind, Mapping):
        return any(_has_variant(part) for part in kind.values())
    if isinstance(kind, list):
        return any(_has_variant(part) for part in kind)
    return kind == "variant"
