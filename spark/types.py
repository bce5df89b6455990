"""Spark's types and Arrow's: what a table stores of a data frame, and how Spark gets it back.

A table's schema is Arrow's, normalised (:mod:`zero_rename.committer.format.schema.types`). What
Arrow does not tell apart (variant from struct, char and varchar from string, user-defined types,
day from hour intervals) is kept where Spark itself keeps it, as JSON in the metadata of schema and
files: a table is read back with the types it was written with, by this package and by
``spark.read.parquet`` alike."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..committer.errors import InvalidInputError, UnsupportedTypeError
from ..committer.format.schema.array_cast import cast_array
from ..committer.format.schema.compatibility import cast_column, normalise
from ..committer.format.schema.row_metadata import ROW_METADATA
from ..committer.format.schema.spark_types import seen_by_spark
from ..committer.format.schema.types import SPARK_VERSION

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

logger = logging.getLogger("zero_rename.spark.types")

#: Types that Spark cannot send or Parquet cannot hold, and what to write instead.
_UNSUPPORTED = {
    "YearMonthIntervalType": "Store the months as a number, such as extract(MONTH from c) and "
    "extract(YEAR from c).",
    "CalendarIntervalType": "Store its parts as numbers, or use a day-time interval.",
    "GeometryType": "Store it as binary, by st_asbinary(c).",
    "GeographyType": "Store it as binary, by st_asbinary(c).",
}


def table_schema(schema: StructType, partition_by: Sequence[str]) -> pa.Schema:
    """The Arrow schema under which a data frame is stored.

    Year-month intervals would fail in the running tasks only (``KeyError: 21``), columns of one
    name only when they are read: refused here instead.

    :param partition_by: partition columns as the user named them; they need not exist.
    :raises UnsupportedTypeError: names the column, with its path where it is nested.
    :raises InvalidInputError: no column at all, or two of one name.
    """
    import pyspark
    from pyspark.sql import types as st

    for field in schema.fields:
        _check(field.name, field.dataType)
    nullable = _nullable(schema)
    stored = normalise(arrow_schema(nullable))
    data = st.StructType([f for f in nullable.fields if f.name not in partition_by])
    metadata = {ROW_METADATA: data.json().encode(), SPARK_VERSION: pyspark.__version__.encode()}
    return stored.with_metadata(metadata)


def _check(path: str, kind: DataType) -> None:
    from pyspark.sql import types as st

    if isinstance(kind, st.UserDefinedType):
        _check(path, kind.sqlType())
    elif isinstance(kind, st.ArrayType):
        _check(f"{path}[]", kind.elementType)
    elif isinstance(kind, st.MapType):
        if isinstance(kind.keyType, st.NullType):
            raise UnsupportedTypeError(
                f"The column {path!r} has the type {kind.simpleString()}, whose keys have no type; "
                "nothing was written.",
                remedy="Cast it, such as cast(c as map<string,string>).",
            )
        _check(f"{path}.key", kind.keyType)
        _check(f"{path}.value", kind.valueType)
    elif isinstance(kind, st.StructType):
        for field in kind.fields:
            _check(f"{path}.{field.name}", field.dataType)
    elif (remedy := _UNSUPPORTED.get(type(kind).__name__)) is not None:
        raise UnsupportedTypeError(
            f"The column {path!r} has the type {kind.simpleString()}, which Spark cannot hand "
            "to a Python data source in a form that Parquet holds; nothing was written.",
            remedy=remedy,
        )


def _nullable(kind: Any) -> Any:
    """A Spark type with everything nullable, as files have it (Scala's ``asNullable``)."""
    from pyspark.sql import types as st

    if isinstance(kind, st.ArrayType):
        return st.ArrayType(_nullable(kind.elementType), True)
    if isinstance(kind, st.MapType):
        return st.MapType(_nullable(kind.keyType), _nullable(kind.valueType), True)
    if isinstance(kind, st.StructType):
        fields = kind.fields
        return st.StructType(
            [st.StructField(f.name, _nullable(f.dataType), True, f.metadata) for f in fields]
        )
    return kind


def spark_schema(schema: pa.Schema, columns: Sequence[str] | None = None) -> StructType:
    """The Spark schema under which a table is read.

    :param schema: the table's; written by Spark or by anything else.
    :param columns: these alone, in this order; ``None`` for all.
    :raises InvalidInputError: a column that the table does not have.
    :raises UnsupportedTypeError: a column that Spark has no type for; leave it out by the
        option ``columns``.
    """
    from pyspark.sql import types as st

    kept = (schema.metadata or {}).get(ROW_METADATA)
    written = json.loads(kept)["fields"] if kept is not None else []
    wanted = schema.names if columns is None else columns
    known = {f["name"]: _stored_field(f) for f in written if f["name"] in wanted}
    fields = []
    for name in wanted:
        index = schema.get_field_index(name)
        if index < 0:
            raise InvalidInputError(
                f"The table has no column {name!r}.",
                remedy=f"Its columns are {', '.join(schema.names)}.",
            )
        fields.append(known.get(name) or _spark_field(name, schema.field(index).type))
    return st.StructType(fields)


def _stored_field(stored: dict[str, Any]) -> Any:
    """A column as Spark has written it down; user-defined types that this Python cannot import
    are the types that they are stored as.

    :raises UnsupportedTypeError: a newer Spark wrote it, in a type that this one lacks.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructField

    form = _importable(stored, stored["name"])
    try:
        return StructField.fromJson(form)
    except PySparkException as error:
        raise _no_type(stored["name"], json.dumps(form["type"])) from error


def _importable(form: Any, column: str) -> Any:
    """The JSON form of a type, without the user-defined types in it that cannot be imported."""
    from pyspark.sql.types import UserDefinedType

    if isinstance(form, list):
        return [_importable(item, column) for item in form]
    if not isinstance(form, dict):
        return form
    if form.get("type") == "udt":
        try:
            UserDefinedType.fromJson(form)
        except Exception as error:  # The user's module may raise anything.
            logger.warning(
                "the column %r is read as what its type %s is stored as: that cannot be imported "
                "here (%s: %s)",
                column,
                form.get("pyClass") or form.get("class"),
                type(error).__name__,
                error,
            )
            return _importable(form["sqlType"], column)
        return form
    return {name: _importable(value, column) for name, value in form.items()}


def _spark_field(name: str, kind: pa.DataType) -> Any:
    """A nullable Spark column that holds every value of an Arrow type."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructField

    try:
        return StructField(name, from_arrow_type(seen_by_spark(kind)), True)
    except PySparkException as error:
        raise _no_type(name, str(kind)) from error


def _no_type(name: str, kind: str) -> UnsupportedTypeError:
    return UnsupportedTypeError(
        f"This Spark has no type for the column {name!r}, whose type is {kind}; nothing was read.",
        remedy="Read the other columns, by columns=; or all of them, by a newer Spark or "
        "Table.to_arrow().",
    )


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema, nullability included, that Spark demands of a reader's batches."""
    from pyspark.sql.pandas.types import to_arrow_schema

    # PySpark 4.1 has no parameter for the zone: timestamps are in UTC.
    if "timezone" not in inspect.signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema)
    return to_arrow_schema(schema, timezone="UTC")


def for_spark(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch of a table as Spark wants it.

    :param schema: :func:`arrow_schema` of columns that the batch has.
    """
    columns = [cast_array(batch.column(field.name), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def in_job_types(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Name a batch of Spark as a job's columns, and cast those whose types Spark lacks.

    :param schema: the job's columns, in the batch's order.
    :raises InvalidInputError: a value does not fit its column; names the column.
    """
    columns = [
        column if seen_by_spark(field.type) == field.type else cast_column(column, field)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=schema.names)
