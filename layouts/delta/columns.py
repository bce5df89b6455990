"""Columns of a Delta table: conversion between Arrow schemas and Delta's JSON.

=============================  ==========================  ==========================
Arrow, normalised              Delta                       read back
=============================  ==========================  ==========================
string, binary, bool           string, binary, boolean     the same
int8, int16, int32, int64      byte, short, integer, long  the same
float32, float64               float, double               the same
decimal128(p, s)               decimal(p,s)                the same
date32                         date                        the same
timestamp[us, UTC]             timestamp                   the same
timestamp[us]                  timestamp_ntz, a feature    the same
list, map, struct              array, map, struct          the same
uint8, uint16, uint32          short, integer, long        the wider type
fixed_size_binary              binary                      binary
uint64, time, duration, null,  refused
Spark's variants
=============================  ==========================  ==========================
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from ...committer.errors import RecordDamagedError, TableMismatchError, UnsupportedTypeError
from ...committer.format.schema.spark_types import is_variant
from ...log.actions import LogMetadata, LogProtocol
from . import features

_PLAIN: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_NAMES = {kind: name for name, kind in _PLAIN.items()}
_WIDER = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}
#: The feature for columns of local times.
_LOCAL_TIMES = frozenset({"timestampNtz"})
#: Features that writer version 2 implies.
_OF_WRITER_2 = frozenset({"appendOnly", "invariants"})
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
#: The most digits of a decimal.
_MOST_DIGITS = 38
#: The prefix of this package's column metadata. Keys of others stay in the log only, not in Arrow.
_OWN = "zero_rename."


def storable(schema: pa.Schema, nulls: bool = False) -> pa.Schema:
    """Return the schema that files of a Delta table have for rows of a normalised schema.

    :param nulls: keep columns that have only nulls as they are: an existing table may have a type
        for them.
    :raises UnsupportedTypeError: Delta has no type for a column; the error names its path.
    """
    fields = [it.with_type(_storable(it.type, it.name, nulls)) for it in schema]
    return pa.schema(fields, metadata=schema.metadata)


def _storable(kind: pa.DataType, path: str, nulls: bool) -> pa.DataType:
    if is_variant(kind):
        # Stored as a struct, its values would look like any struct with the same fields.
        raise UnsupportedTypeError(
            f"The column {path!r} is a variant, which needs a feature of Delta's that is not "
            "supported here. Nothing was written.",
            remedy="Store it as a string, by to_json(…), or write it to a table of directories.",
        )
    if pt.is_struct(kind):
        parts = [it.with_type(_storable(it.type, f"{path}.{it.name}", nulls)) for it in kind]
        return pa.struct(parts)
    if pt.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.map_(
            key.with_type(_storable(kind.key_type, f"{path}.key", nulls)),
            item.with_type(_storable(kind.item_type, f"{path}.value", nulls)),
        )
    if pt.is_list(kind):
        part = _storable(kind.value_type, f"{path}[]", nulls)
        return pa.list_(kind.value_field.with_type(part))
    if pt.is_fixed_size_binary(kind):
        return pa.binary()
    if kind in _WIDER:
        return _WIDER[kind]
    if kind in _NAMES or pt.is_decimal128(kind) or (nulls and pt.is_null(kind)):
        return kind
    raise UnsupportedTypeError(
        f"The column {path!r} is {kind}, for which Delta has no type. Nothing was written.",
        remedy="Cast the column, or write it to a table of directories.",
    )


def delta_schema(schema: pa.Schema, former: str = "") -> str:
    """Return Delta's JSON for storable columns.

    :param former: the JSON of the table's columns before; empty: there is no table yet. These
        columns keep their JSON, with the metadata of other engines.
    """
    kept = {it["name"]: it for it in json.loads(former)["fields"]} if former else {}
    if schema.names == list(kept):
        return former
    fields = [kept.get(it.name) or _field(it) for it in schema]
    members = {"type": "struct", "fields": fields}
    return json.dumps(members, separators=(",", ":"), ensure_ascii=False)


def _struct(fields: Iterable[pa.Field]) -> dict[str, Any]:
    return {"type": "struct", "fields": [_field(it) for it in fields]}


def _field(field: pa.Field) -> dict[str, Any]:
    own = {
        name.decode(): value.decode()
        for name, value in (field.metadata or {}).items()
        if name.decode().startswith(_OWN)
    }
    return {
        "name": field.name,
        "type": _type(field.type),
        "nullable": field.nullable,
        "metadata": own,
    }


def _type(kind: pa.DataType) -> Any:
    if pt.is_struct(kind):
        return _struct(kind)
    if pt.is_map(kind):
        return {
            "type": "map",
            "keyType": _type(kind.key_type),
            "valueType": _type(kind.item_type),
            "valueContainsNull": kind.item_field.nullable,
        }
    if pt.is_list(kind):
        return {
            "type": "array",
            "elementType": _type(kind.value_type),
            "containsNull": kind.value_field.nullable,
        }
    if pt.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _NAMES[kind]


def arrow_schema(metadata: LogMetadata) -> pa.Schema:
    """Return the columns of a table, including the partition columns.

    :raises UnsupportedTypeError: a column has a type that this package does not read.
    :raises RecordDamagedError: the columns cannot be read, or lack a partition column.
    """
    schema = pa.schema(_fields(features.schema_of(metadata), ""))
    for name in metadata.partition_columns:
        if schema.get_field_index(name) < 0:
            raise RecordDamagedError(
                f"The table is partitioned by {name!r}, which is not one of its columns. Nothing "
                "was changed.",
                field="metaData.partitionColumns",
                remedy="Restore the table by the engine that wrote this.",
            )
    return schema


def _fields(struct: Mapping[str, Any], path: str) -> list[pa.Field]:
    found = []
    for field in struct["fields"]:
        name = field["name"]
        kind = _arrow(field["type"], f"{path}.{name}" if path else name)
        own = {k: v for k, v in (field.get("metadata") or {}).items() if k.startswith(_OWN)}
        found.append(pa.field(name, kind, bool(field.get("nullable", True)), own or None))
    return found


def _arrow(kind: Any, path: str) -> pa.DataType:
    if isinstance(kind, str):
        if kind in _PLAIN:
            return _PLAIN[kind]
        found = _DECIMAL.fullmatch(kind)
        if found and 1 <= int(found[1]) <= _MOST_DIGITS:
            return pa.decimal128(int(found[1]), int(found[2]))
    elif isinstance(kind, dict):
        try:
            return _nested(kind, path)
        except (KeyError, TypeError) as error:
            raise RecordDamagedError(
                f"The column {path!r} of the log's schema lacks {error}. Nothing was changed.",
                field="metaData.schemaString",
            ) from error
    raise UnsupportedTypeError(
        f"The column {path!r} is of Delta's type {str(kind)[:100]}, which is not read here. "
        "Nothing was changed.",
        remedy="Read the table by the engine that made it.",
    )


def _nested(kind: Mapping[str, Any], path: str) -> pa.DataType:
    match kind["type"]:
        case "struct":
            return pa.struct(_fields(kind, path))
        case "array":
            element = _arrow(kind["elementType"], f"{path}[]")
            return pa.list_(pa.field("element", element, kind.get("containsNull", True)))
        case "map":
            value = pa.field(
                "value", _arrow(kind["valueType"], f"{path}.value"), kind["valueContainsNull"]
            )
            return pa.map_(_arrow(kind["keyType"], f"{path}.key"), value)
    raise KeyError(f"a known type instead of {kind['type']!r}")


def needed_protocol(schema: pa.Schema) -> LogProtocol:
    """Return the lowest protocol that a table with these columns needs."""
    if _needs_local_times(schema):
        return LogProtocol(3, 7, _LOCAL_TIMES, _LOCAL_TIMES)
    return LogProtocol()


def raised_protocol(schema: pa.Schema, now: LogProtocol) -> LogProtocol | None:
    """Return the protocol that a table needs for these columns; ``None``: its own is enough.

    :param now: the table's present protocol. The features that its versions imply are listed in
        the new one.
    :raises TableMismatchError: these versions imply a feature that this package does not write.
    """
    readers = now.reader_features or frozenset()
    if not _needs_local_times(schema) or readers >= _LOCAL_TIMES:
        return None
    if now.writer not in (1, 2, 7) or now.reader == 2:
        raise TableMismatchError(
            "Columns of local times need a feature of Delta's that the table has not switched on "
            f"(delta.feature.timestampNtz), and its protocol, reader {now.reader} and writer "
            f"{now.writer}, implies others that are not supported here. Nothing was written.",
            remedy="Set the table's property delta.feature.timestampNtz to 'supported' by the "
            "engine that made it, or write times with a zone.",
        )
    implied = now.writer_features or (_OF_WRITER_2 if now.writer == 2 else frozenset())
    return LogProtocol(3, 7, readers | _LOCAL_TIMES, implied | _LOCAL_TIMES)


def _needs_local_times(schema: pa.Schema) -> bool:
    return any(_has_local_times(it.type) for it in schema)


def _has_local_times(kind: pa.DataType) -> bool:
    if pt.is_nested(kind):
        return any(_has_local_times(kind.field(i).type) for i in range(kind.num_fields))
    return pt.is_timestamp(kind) and kind.tz is None
