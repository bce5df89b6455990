"""Compatibility of columns: partition columns with a table, and a job's columns with a table's.

The types are those of :mod:`.types`. ``table.json`` has them as JSON.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from ...errors import InvalidInputError, TableMismatchError
from .array_cast import cast_array
from .hive_paths import check_column, check_partition_type
from .row_metadata import file_metadata
from .types import LATER, NAMES, UNTYPED, find_column, has_part, kept_metadata, normalise


def check_types(schema: pa.Schema, partition_by: Sequence[str]) -> None:
    """Check that ``partition_by`` can partition a table of this normalised schema.

    :raises InvalidInputError: a partition column is missing, named twice, hidden from readers or of
        an unfit type, or no column would be left for the files.
    """
    for column in partition_by:
        check_column(column)
        if column not in schema.names:
            raise InvalidInputError(
                f"The partition column {column!r} is not among the columns "
                f"{', '.join(schema.names)}{_case_hint(column, schema.names)}.",
                remedy="Add the column to the data or correct its name.",
            )
        check_partition_type(column, schema.field(column).type)
    if len(set(partition_by)) < len(partition_by):
        raise InvalidInputError(f"A partition column is named twice: {', '.join(partition_by)}.")
    if len(partition_by) == len(schema):
        raise InvalidInputError(
            "Every column is a partition column; the files would hold none.",
            remedy="Leave at least one column out of partition_by.",
        )


def check_partitioning(schema: pa.Schema, partition_by: Sequence[str]) -> None:
    """Check that columns can partition a table that may be there already.

    As :func:`check_types`, but a column that has only nulls counts as a string, since the table may
    have a type for it.

    :raises InvalidInputError: a column cannot partition a table.
    """
    typed = (it.with_type(pa.string()) if pt.is_null(it.type) else it for it in schema)
    check_types(pa.schema(typed), partition_by)


def data_schema(schema: pa.Schema, partition_by: Sequence[str]) -> pa.Schema:
    """Return the schema of the files: all columns but the partition's, with the metadata."""
    fields = [field for field in schema if field.name not in partition_by]
    return pa.schema(fields, metadata=file_metadata(schema, partition_by))


def is_later(field: pa.Field) -> bool:
    """Return whether a table's column came by evolution, so files and jobs may lack it."""
    return LATER in (field.metadata or {})


def is_untyped(field: pa.Field) -> bool:
    """Return whether files may hold nulls without a type in a table's column."""
    return UNTYPED in (field.metadata or {})


def with_untyped(field: pa.Field, *stored: pa.DataType) -> pa.Field:
    """Mark a table's column if files hold nulls without a type in it, and it has one.

    :param stored: the column's types in files.
    """
    if not any(kind != field.type and has_part(kind, pt.is_null) for kind in stored):
        return field
    return field.with_metadata({**(field.metadata or {}), UNTYPED: b"true"})


def without_untyped(schema: pa.Schema) -> pa.Schema:
    """Return a table's columns without the mark that files may hold nulls without a type."""
    fields = []
    for field in schema:
        kept = {name: it for name, it in (field.metadata or {}).items() if name != UNTYPED}
        fields.append(field.with_metadata(kept or None))
    return pa.schema(fields, metadata=schema.metadata)


def check_same(table_schema: pa.Schema, job_schema: pa.Schema, *, table: str | None = None) -> None:
    """Check that a job's columns can be written into a table, by :func:`how_unlike`.

    :raises TableMismatchError: columns are missing, extra or different; the message names them all.
    """
    why = how_unlike(table_schema, job_schema)
    if why is not None:
        raise TableMismatchError(
            f"{why} Nothing was written.",
            table=table,
            remedy="Select and cast the columns to the table's, or write to another table. New "
            "columns and wider types become the table's by schema_mode=merge (option mergeSchema); "
            "a replace of the whole table drops and retypes columns by schema_mode=overwrite "
            "(option overwriteSchema).",
        )


def how_unlike(table_schema: pa.Schema, job_schema: pa.Schema) -> str | None:
    """Say how a job's columns differ from those of a table of a normalised schema; ``None``: they
    can be written into it.

    The order of columns is free. A job's column may be narrower if nothing is lost: null into any
    type, smaller into larger integers, float32 into float64, decimals with fewer digits, fixed-size
    binary into binary; the same inside structs, lists and maps. A column that came by evolution may
    be missing: it is null in the job's files.
    """
    job_schema = normalise(job_schema)
    needed = [f for f in table_schema if f.name in job_schema.names or not is_later(f)]
    found = _differences(needed, job_schema, "")
    return f"The job's columns are not the table's: {'; '.join(found)}." if found else None


def cast(
    batch: pa.RecordBatch, schema: pa.Schema, absent: frozenset[str] = frozenset()
) -> pa.RecordBatch:
    """Cast a batch to the columns of ``schema``, by name, in its order and types.

    :param schema: a table's normalised schema.
    :param absent: columns that the batch may lack; they become null.
    :raises InvalidInputError: the batch has other columns, or a value would change in the cast.
    """
    if batch.schema.equals(schema):
        return pa.RecordBatch.from_arrays(batch.columns, schema=schema)
    # The check is cached, and pyarrow before 19 cannot hash a schema with metadata.
    _check_castable(batch.schema.remove_metadata(), schema.remove_metadata(), absent)
    columns = [
        cast_column(batch.column(field.name), field)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def cast_column(column: pa.Array, field: pa.Field) -> pa.Array:
    """Cast one column to the type of ``field``; fields of structs by their names.

    :raises InvalidInputError: a value would change; the message names the column.
    """
    try:
        return cast_array(column, field.type)
    except (pa.ArrowException, OverflowError) as error:
        raise InvalidInputError(
            f"The column {field.name!r} does not fit the table's {field.type} unchanged: {error}.",
            remedy="Round or cast the column before writing it; timestamps and times are kept "
            "in microseconds.",
        ) from error


@lru_cache(maxsize=64)
def _check_castable(source: pa.Schema, target: pa.Schema, absent: frozenset[str]) -> None:
    needed = [f for f in target if f.name in source.names or f.name not in absent]
    found = _differences(needed, normalise(source), "")
    if found:
        raise InvalidInputError(
            f"A batch's columns are not those announced: {'; '.join(found)}.",
            remedy="Send batches of the schema the job was opened with.",
        )


# -- comparing ---------------------------------------------------------------------------------


def _case_hint(name: str, names: Iterable[str]) -> str:
    twin = find_column(name, names)
    return f" (is {twin!r} meant?)" if twin else ""


def _differences(table: Iterable[pa.Field], job: Iterable[pa.Field], path: str) -> list[str]:
    """Describe each difference for which a job's fields cannot be written as a table's."""
    wanted = {field.name: field.type for field in table}
    given = {field.name: field.type for field in job}
    prefix = f"{path}." if path else ""
    found = [f"{prefix}{name} is missing" for name in wanted if name not in given]
    for name in (name for name in given if name not in wanted):
        found.append(f"{prefix}{name} is not in the table{_case_hint(name, wanted)}")
    for name in wanted:
        if name in given:
            found += type_differences(wanted[name], given[name], f"{prefix}{name}")
    return found


def type_differences(table: pa.DataType, job: pa.DataType, path: str) -> list[str]:
    """Describe each difference for which a table's column cannot hold values of a type.

    :param table: the column's type.
    :param job: the values' type, normalised.
    :param path: the column's path, for the descriptions.
    """
    if table == job or _widens(job, table):
        return []
    if pt.is_struct(table) and pt.is_struct(job):
        return _differences(table, job, path)
    if pt.is_list(table) and pt.is_list(job):
        return type_differences(table.value_type, job.value_type, f"{path}[]")
    if pt.is_map(table) and pt.is_map(job):
        return [
            *type_differences(table.key_type, job.key_type, f"{path}.key"),
            *type_differences(table.item_type, job.item_type, f"{path}.value"),
        ]
    return [f"{path} is {job}, in the table {table}"]


def respelled(kind: pa.DataType, own: pa.DataType) -> pa.DataType:
    """Rename the fields of a type's structs that differ from a table's by case alone.

    :param kind: the type of a file's column, normalised.
    :param own: the type of the table's column.
    :returns: the type with the table's names of these fields.
    """
    if pt.is_struct(kind) and pt.is_struct(own):
        fields = []
        for field in kind:
            name = find_column(field.name, (part.name for part in own))
            if name is not None:
                field = field.with_name(name).with_type(respelled(field.type, own.field(name).type))
            fields.append(field)
        return pa.struct(fields)
    return _with_parts(kind, own, respelled)


def with_lacking(kind: pa.DataType, own: pa.DataType) -> pa.DataType:
    """Add the nullable fields of a table's structs that a type's structs lack.

    :param kind: the type of a file's column, normalised.
    :param own: the type of the table's column.
    """
    if pt.is_struct(kind) and pt.is_struct(own):
        there = {part.name: part for part in kind}
        fields = [
            there[part.name].with_type(with_lacking(there[part.name].type, part.type))
            if part.name in there
            else part
            for part in own
            if part.name in there or part.nullable
        ]
        return pa.struct([*fields, *(it for name, it in there.items() if not _has(own, name))])
    return _with_parts(kind, own, with_lacking)


def _with_parts(
    kind: pa.DataType, own: pa.DataType, changed: Callable[[pa.DataType, pa.DataType], pa.DataType]
) -> pa.DataType:
    """Apply ``changed`` to the types of a list's values, or of a map's keys and values.

    Other types are returned as they are.
    """
    if pt.is_list(kind) and pt.is_list(own):
        return pa.list_(kind.value_field.with_type(changed(kind.value_type, own.value_type)))
    if pt.is_map(kind) and pt.is_map(own):
        return pa.map_(
            kind.key_field.with_type(changed(kind.key_type, own.key_type)),
            kind.item_field.with_type(changed(kind.item_type, own.item_type)),
        )
    return kind


def _has(kind: pa.StructType, name: str) -> bool:
    return kind.get_field_index(name) >= 0


def _widens(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether every value of ``source`` is also a value of ``target``."""
    if pt.is_null(source):
        return True
    if pt.is_integer(source) and pt.is_integer(target):
        signed, wider = pt.is_signed_integer, target.bit_width > source.bit_width
        return wider and (signed(target) or not signed(source))
    if pt.is_decimal(source) and pt.is_decimal(target):
        whole = target.precision - target.scale >= source.precision - source.scale
        return whole and target.scale >= source.scale
    if pt.is_float32(source):
        return pt.is_float64(target)
    return pt.is_fixed_size_binary(source) and pt.is_binary(target)


def to_json(schema: pa.Schema) -> dict[str, Any]:
    """Return a normalised schema as JSON: ``columns``, ``arrow_ipc`` (base64), its ``sha256``."""
    message = schema.serialize().to_pybytes()
    return {
        "columns": _describe_fields(schema),
        "arrow_ipc": base64.b64encode(message).decode(),
        "sha256": hashlib.sha256(message).hexdigest(),
    }


def from_json(record: Mapping[str, Any]) -> pa.Schema:
    """Read a schema from JSON: the inverse of :func:`to_json`.

    :raises ValueError: a member is missing, damaged or contradicts another one; the message says
        which.
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
    return schema.with_metadata(kept_metadata(schema.metadata))  # Former versions kept all of it.


def _describe_fields(fields: Iterable[pa.Field]) -> list[dict[str, Any]]:
    return [{"name": field.name, "type": _describe(field.type)} for field in fields]


def _describe(kind: pa.DataType) -> Any:
    """Return a normalised type by this package's own names.

    pyarrow's names may change with its version, and a record must stay readable.
    """
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
    return NAMES[kind.id][0]
