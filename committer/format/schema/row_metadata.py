"""Spark's schema in the metadata of Parquet files, updated when a table's columns evolve.

If a file has this JSON, Spark takes the file's columns from it (``ParquetFileFormat.readSchema``),
so a column that the JSON lacks is hidden. If Spark has described a column and its type has not
changed, its description is kept (variants, char, user-defined types). Other columns are described
as Spark would read them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from .types import NAMES

#: Metadata key of Spark's schema of a Parquet file (``ParquetReadSupport.SPARK_METADATA_KEY``).
#: Partition columns are not in that schema: they are not in the file either.
ROW_METADATA = b"org.apache.spark.sql.parquet.row.metadata"


def merged_metadata(
    schema: pa.Schema, table: pa.Schema, job: pa.Schema, partition_by: Sequence[str]
) -> dict[bytes, bytes] | None:
    """Merge the metadata of a table's and a job's schema, with Spark's description updated.

    :param schema: the evolved columns; they come from those of ``table`` and ``job``.
    """
    metadata = {**(job.metadata or {}), **(table.metadata or {})}
    if ROW_METADATA not in metadata:
        return metadata or None
    described = [(source, _described(source)) for source in (table, job)]
    fields = []
    for field in schema:
        if field.name in partition_by:
            continue
        stand = (
            known[field.name]
            for source, known in described
            if field.name in known and source.field(field.name).type == field.type
        )
        fields.append(next(stand, None) or _member(field.name, field.type))
    text = json.dumps({"type": "struct", "fields": fields}, separators=(",", ":"))
    return metadata | {ROW_METADATA: text.encode()}


def renamed(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """Rename the columns of a schema, also in Spark's description of them.

    :param names: the new name of each column, in order.
    """
    own = dict(zip(schema.names, names, strict=True))
    fields = [field.with_name(own[field.name]) for field in schema]
    metadata = dict(schema.metadata or {})
    if ROW_METADATA in metadata:
        described = json.loads(metadata[ROW_METADATA])
        for member in described["fields"]:
            member["name"] = own.get(member["name"], member["name"])
        metadata[ROW_METADATA] = json.dumps(described, separators=(",", ":")).encode()
    return pa.schema(fields, metadata=metadata or None)


def _described(schema: pa.Schema) -> dict[str, Any]:
    kept = (schema.metadata or {}).get(ROW_METADATA)
    members = json.loads(kept)["fields"] if kept is not None else []
    return {member["name"]: member for member in members if member["name"] in schema.names}


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
