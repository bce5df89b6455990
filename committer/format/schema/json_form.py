"""A table's schema as ``table.json`` holds it: for people, and exactly.

The list of columns is for whoever opens the record; the Arrow IPC message is what counts. They
must agree, so that neither an edit by hand nor a damaged byte goes unnoticed.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from .types import normalise


def to_json(schema: pa.Schema) -> dict[str, Any]:
    """A normalised schema as JSON: ``columns``, ``arrow_ipc`` (base64) and its ``sha256``."""
    message = schema.serialize().to_pybytes()
    return {
        "columns": _describe_fields(schema),
        "arrow_ipc": base64.b64encode(message).decode(),
        "sha256": hashlib.sha256(message).hexdigest(),
    }


def from_json(record: Mapping[str, Any]) -> pa.Schema:
    """The inverse of :func:`to_json`.

    :raises ValueError: a member is missing, damaged or contradicts another; says which.
    """
    try:
        columns, text, digest = record["columns"], record["arrow_ipc"], record["sha256"]
        message = base64.b64decode(text, validate=True)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the schema's members are missing or damaged: {error!r}") from error
    if hashlib.sha256(message).hexdigest() != digest:
        raise ValueError("arrow_ipc is damaged: it does not have the sha256 that is recorded")
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(message))
        normal = normalise(schema)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ValueError(f"arrow_ipc is not the schema of a table: {error}") from error
    if not normal.equals(schema):
        raise ValueError("arrow_ipc is not the schema of a table: it is not normalised")
    if _describe_fields(schema) != columns:
        raise ValueError("columns and arrow_ipc describe different schemas")
    return schema


def _describe_fields(fields: Iterable[pa.Field]) -> list[dict[str, Any]]:
    return [{"name": field.name, "type": _describe(field.type)} for field in fields]


def _describe(kind: pa.DataType) -> Any:
    """A normalised type in words of our own: pyarrow's spelling may change with its version,
    and a record must stay readable."""
    if pt.is_struct(kind):
        return {"struct": _describe_fields(kind)}
    if pt.is_map(kind):
        return {"map": {"key": _describe(kind.key_type), "value": _describe(kind.item_type)}}
    if pt.is_list(kind):
        return {"list": _describe(kind.value_type)}
    if pt.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if pt.is_timestamp(kind):
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    if pt.is_fixed_size_binary(kind):
        return f"fixed_binary({kind.byte_width})"
    return _NAMES[kind.id]


_NAMES = {
    kind.id: name
    for kind, name in (
        (pa.null(), "null"),
        (pa.bool_(), "bool"),
        (pa.int8(), "int8"),
        (pa.int16(), "int16"),
        (pa.int32(), "int32"),
        (pa.int64(), "int64"),
        (pa.uint8(), "uint8"),
        (pa.uint16(), "uint16"),
        (pa.uint32(), "uint32"),
        (pa.uint64(), "uint64"),
        (pa.float32(), "float32"),
        (pa.float64(), "float64"),
        (pa.string(), "string"),
        (pa.binary(), "binary"),
        (pa.date32(), "date"),
        (pa.time64("us"), "time"),
        (pa.duration("us"), "duration"),
    )
}
