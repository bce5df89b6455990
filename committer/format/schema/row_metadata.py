"""Spark's schema in the metadata of Parquet files, updated when a table's columns evolve.

If a file has this JSON, Spark takes the file's columns from it (``ParquetFileFormat.readSchema``),
so a column that the JSON lacks is hidden. If Spark has described a column and its type has not
changed, its description is kept (variants, char, user-defined types). Other columns are described
as Spark would read them.

Programs that read Spark's files by Arrow pass the JSON on with their rows, even after they have
added, dropped or cast columns. So it counts only as far as it fits the columns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from .types import NAMES

#: Metadata key of Spark's schema of a Parquet file (``ParquetReadSupport.SPARK_METADATA_KEY``).
#: Partition columns are not in that schema: they are not in the file either.
ROW_METADATA = b"org.apache.spark.sql.parquet.row.metadata"
#: Beginnings of Spark's types with parameters, and the types in which they are stored.
_BEGINNINGS = {
    "string collate": pt.is_string,
    "char(": pt.is_string,
    "varchar(": pt.is_string,
    "interval": pt.is_duration,
    "time(": pt.is_time,
}
#: Spark's types whose JSON is one word, and is that of one type of Arrow.
_WORDS = re.compile(
    r"void|boolean|byte|short|integer|long|float|double|string|binary|date|timestamp|timestamp_ntz"
    r"|decimal\(\d+, ?\d+\)"
)


def described(schema: pa.Schema) -> dict[str, Mapping[str, Any]]:
    """Return Spark's description of each column of a schema, by name, where it fits the column."""
    members = {it["name"]: it for it in _members((schema.metadata or {}).get(ROW_METADATA))}
    return {
        field.name: members[field.name]
        for field in schema
        if field.name in members and _fits(members[field.name]["type"], field.type)
    }


def file_metadata(schema: pa.Schema, partition_by: Sequence[str]) -> dict[bytes, bytes] | None:
    """Return the metadata of a schema for its files: Spark's description is exactly of them."""
    metadata = schema.metadata
    if metadata is None or ROW_METADATA not in metadata:
        return metadata
    names = [name for name in schema.names if name not in partition_by]
    stated = [it["name"] for it in _members(metadata[ROW_METADATA])]
    known = described(schema)
    if sorted(stated) == sorted(names) and known.keys() >= set(names):
        return metadata
    fields = [known.get(name) or _member(name, schema.field(name).type) for name in names]
    return metadata | {ROW_METADATA: _json(fields)}


def merged_metadata(
    schema: pa.Schema, table: pa.Schema, job: pa.Schema, partition_by: Sequence[str]
) -> dict[bytes, bytes] | None:
    """Merge the metadata of a table's and a job's schema, with Spark's description updated.

    :param schema: the evolved columns; they come from those of ``table`` and ``job``.
    """
    metadata = {**(job.metadata or {}), **(table.metadata or {})}
    if ROW_METADATA not in metadata:
        return metadata or None
    sources = [(source, described(source)) for source in (table, job)]
    fields: list[Mapping[str, Any]] = []
    for field in schema:
        if field.name in partition_by:
            continue
        stand = (
            known[field.name]
            for source, known in sources
            if field.name in known and source.field(field.name).type == field.type
        )
        fields.append(next(stand, None) or _member(field.name, field.type))
    return metadata | {ROW_METADATA: _json(fields)}


def renamed(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """Rename the columns of a schema, also in Spark's description of them.

    :param names: the new name of each column, in order.
    """
    own = dict(zip(schema.names, names, strict=True))
    fields = [field.with_name(own[field.name]) for field in schema]
    metadata = dict(schema.metadata or {})
    if ROW_METADATA in metadata:
        members = _members(metadata[ROW_METADATA])
        metadata[ROW_METADATA] = _json(
            [{**it, "name": own.get(it["name"], it["name"])} for it in members]
        )
    return pa.schema(fields, metadata=metadata or None)


def _json(fields: Sequence[Mapping[str, Any]]) -> bytes:
    return json.dumps({"type": "struct", "fields": fields}, separators=(",", ":")).encode()


def _members(text: bytes | None) -> Iterator[Mapping[str, Any]]:
    """Yield the valid descriptions of columns in a text, into which anybody may write anything."""
    try:
        fields = [] if text is None else json.loads(text)["fields"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return
    yield from filter(_is_member, fields if isinstance(fields, list) else ())


def _is_member(said: Any) -> bool:
    if not isinstance(said, Mapping) or not isinstance(said.get("name"), str):
        return False
    return "type" in said and isinstance(said.get("nullable"), bool)


def _fits(said: Any, kind: pa.DataType) -> bool:
    """Return whether a type in Spark's JSON is that of values which are stored in a type.

    Words that this version does not know are taken to fit.
    """
    if isinstance(said, Mapping):
        return _nested_fits(said, kind)
    if not isinstance(said, str):
        return False
    if said == "variant":
        return pt.is_struct(kind) and {part.name for part in kind} == {"value", "metadata"}
    for beginning, holds in _BEGINNINGS.items():
        if said.startswith(beginning):
            return holds(kind)
    return not _WORDS.fullmatch(said) or said.replace(" ", "") == _spark_type(kind)


def _nested_fits(said: Mapping[str, Any], kind: pa.DataType) -> bool:
    match said.get("type"):
        case "udt":
            return _fits(said.get("sqlType"), kind)
        case "array":
            return pt.is_list(kind) and _fits(said.get("elementType"), kind.value_type)
        case "map":
            return (
                pt.is_map(kind)
                and _fits(said.get("keyType"), kind.key_type)
                and _fits(said.get("valueType"), kind.item_type)
            )
        case "struct":
            fields = said.get("fields")
            if not pt.is_struct(kind) or not isinstance(fields, list):
                return False
            if not all(map(_is_member, fields)):
                return False
            types = {it["name"]: it["type"] for it in fields}
            return types.keys() == {part.name for part in kind} and all(
                _fits(types[part.name], part.type) for part in kind
            )
    return False


def _member(name: str, kind: pa.DataType) -> dict[str, Any]:
    return {"name": name, "type": _spark_type(kind), "nullable": True, "metadata": {}}


def _spark_type(kind: pa.DataType) -> Any:
    if pt.is_struct(kind):
        return {"type": "struct", "fields": [_member(field.name, field.type) for field in kind]}
    if pt.is_list(kind):
        part = _spark_type(kind.value_type)
        return {"type": "array", "elementType": part, "containsNull": True}
    if pt.is_map(kind):
        key, value = _spark_type(kind.key_type), _spark_type(kind.item_type)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    if pt.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pt.is_timestamp(kind):
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    return "binary" if pt.is_fixed_size_binary(kind) else NAMES[kind.id][1]
