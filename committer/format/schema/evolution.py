"""Evolution of a table's columns: the changes after which every old file can still be read.

A column may be added (it is null in old files). A type may become one that holds every value of the
former type: an integer with more bits, ``float64`` for ``float32``, a decimal with more digits
before or after the point, any type for a column of nulls; also inside structs, lists and maps. This
is what Delta's ``mergeSchema`` with type widening and Iceberg's "schema evolution" allow, except
changes that lose something or need old files to be rewritten.

A job that replaces the whole table may replace its columns by others, since no old file is read
after it.

A column that was added later is marked in the table's schema, since a job may still leave it out. A
column is also marked if the files of a job that began before there was a table lack it. A column of
nulls that got a type has another mark, since older files have it without a type.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow as pa
import pyarrow.types as pt

from ...errors import TableMismatchError
from .compatibility import is_later, type_differences, with_untyped
from .row_metadata import merged_metadata
from .types import LATER, normalise


def evolved(
    table: pa.Schema, job: pa.Schema, partition_by: Sequence[str], *, url: str | None = None
) -> pa.Schema:
    """Return the schema that holds the rows of a table and of a job; ``table`` itself if it does.

    The table's columns come first, in their order, and then those that only the job has.

    :param table: a normalised schema.
    :param job: the job's columns; columns that it lacks are null in its files.
    :raises TableMismatchError: a column would lose something (the message names every such column,
        both types, and the types that would be accepted), or the job lacks a partition column or
        has it in a wider type.
    """
    job = normalise(job)
    problems: list[str] = []
    fields = [_joined(field, job, partition_by, problems) for field in table]
    known = {name.lower(): name for name in table.names}
    for field in job:
        twin = known.get(field.name.lower())
        if twin is None:
            fields.append(_later(field))
        elif twin != field.name:
            problems.append(f"{field.name} differs from the table's {twin} by case only")
    if problems:
        raise TableMismatchError(
            f"The table's columns cannot become those of the job, too: {'; '.join(problems)}. "
            "Nothing was written.",
            table=url,
            remedy="Cast or rename the columns named, or write to another table. A replace of the "
            "whole table changes them by schema_mode=overwrite (option overwriteSchema).",
        )
    schema = pa.schema(fields, metadata=table.metadata)
    if schema.equals(table):
        return table
    return schema.with_metadata(merged_metadata(schema, table, job, partition_by))


def holding(
    table: pa.Schema, files: pa.Schema, partition_by: Sequence[str], *, url: str | None = None
) -> pa.Schema:
    """Return the schema by which a table's files and further files can be read together.

    It is made as by :func:`evolved`, and columns that the further files lack are marked as later
    ones. It is ``table`` itself if nothing changes.

    :param files: the columns that the further files have.
    :raises TableMismatchError: as :func:`evolved`.
    """
    schema = evolved(table, files, partition_by, url=url)
    for index, field in enumerate(schema):
        if field.name not in files.names and not is_later(field):
            schema = schema.set(index, _later(field))
    return schema


def lacked_of(schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns of a table that its files may lack."""
    return tuple(field.name for field in schema if is_later(field))


def lacking(schema: pa.Schema, names: Collection[str]) -> pa.Schema:
    """Mark these columns of a schema as later ones, which files may lack."""
    fields = [_later(field) if field.name in names else field for field in schema]
    return pa.schema(fields, metadata=schema.metadata)


def _later(field: pa.Field) -> pa.Field:
    return field.with_metadata({**(field.metadata or {}), LATER: b"true"})


def overwritten(
    table: pa.Schema, job: pa.Schema, partition_by: Sequence[str], *, url: str | None = None
) -> pa.Schema:
    """Return a job's columns as the table's new ones; ``table`` itself if they are the same.

    Partition columns keep the table's types.

    :param table: a normalised schema; ``job`` has its partition columns.
    :raises TableMismatchError: a partition column has a type that the table's type does not hold.
    """
    job = normalise(job)
    problems = []
    for name in partition_by:
        own, index = table.field(name), job.get_field_index(name)
        problems += type_differences(own.type, job.field(index).type, name)
        job = job.set(index, own)
    if problems:
        raise TableMismatchError(
            f"Columns that name partitions cannot become others: {'; '.join(problems)}. Nothing "
            "was written.",
            table=url,
            remedy="Cast them to the table's, or write to another root.",
        )
    return table if job.equals(table) else job


def _joined(
    field: pa.Field, job: pa.Schema, partition_by: Sequence[str], problems: list[str]
) -> pa.Field:
    """Return a column of the table in a type that also holds the job's values.

    ``problems`` gets a description of each difference for which there is no such type.
    """
    if field.name not in job.names:
        if field.name in partition_by:
            problems.append(f"{field.name}, a partition column, is missing")
        return field
    own, given = field.type, job.field(field.name).type
    joined = joined_type(own, given)
    if joined is None:
        problems.append(f"{field.name} is {given}, in the table {own} (accepted: {_accepted(own)})")
    elif joined != own and field.name in partition_by:
        problems.append(
            f"{field.name} is {given}, in the table {own}, and names partitions: its type stays"
        )
    return field if joined is None else with_untyped(field.with_type(joined), own)


def joined_type(own: pa.DataType, given: pa.DataType) -> pa.DataType | None:
    """Return the type of the two that holds the values of both; ``None``: neither does.

    In nested types this is decided for each part. Structs keep the order of the table's fields, in
    which Spark has described them.
    """
    if not type_differences(own, given, ""):
        return own
    if pt.is_struct(own) and pt.is_struct(given):
        if {f.name for f in own} != {f.name for f in given}:
            return None
        parts = [(f, joined_type(f.type, given.field(f.name).type)) for f in own]
        if any(part is None for _, part in parts):
            return None
        return pa.struct([f.with_type(part) for f, part in parts if part is not None])
    if pt.is_list(own) and pt.is_list(given):
        part = joined_type(own.value_type, given.value_type)
        return None if part is None else pa.list_(own.value_field.with_type(part))
    if pt.is_map(own) and pt.is_map(given):
        key = joined_type(own.key_type, given.key_type)
        item = joined_type(own.item_type, given.item_type)
        if key is None or item is None:
            return None
        return pa.map_(own.key_field.with_type(key), own.item_field.with_type(item))
    return None if type_differences(given, own, "") else given


def _accepted(own: pa.DataType) -> str:
    """Describe the types that a column of a type can hold or become."""
    if pt.is_integer(own):
        return "any integer of its kind, narrower or wider"
    if pt.is_decimal(own):
        return "a decimal with no fewer, or no more, digits both before and after the point"
    if pt.is_floating(own):
        return "float or double"
    if pt.is_struct(own):
        return "a struct of the same fields, each as it is or wider"
    if pt.is_list(own) or pt.is_map(own):
        return "the same with parts as they are or wider"
    return "the same type"
