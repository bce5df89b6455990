"""Types that a table's columns can have, and the conversion of other types to them.

A table's schema is *normalised*: one Arrow type for each kind of value, chosen so that pyarrow,
Spark and DuckDB all read back what was written. :func:`normalise` converts types as follows:

===========================================  ================================================
bool, int8…64, uint8…64, float32, float64    unchanged (Spark reads uint64 as decimal(20,0))
float16                                      float32: Spark cannot read Parquet's FLOAT16
decimal32…256 up to 38 digits                decimal128
string, large_string, string_view            string
binary, large_binary, binary_view            binary; fixed_size_binary is unchanged
date32, date64                               date32
time32, time64                               time64[us]: Spark cannot read TIME(MILLIS)
timestamp with a zone, without one           timestamp[us, UTC]; timestamp[us]. Spark cannot
                                             read nanoseconds
duration                                     duration[us]. Parquet has no such type: a 64-bit
                                             integer, which pyarrow restores from the Arrow
                                             schema in the file and Spark from its own schema
                                             in the file's metadata; DuckDB sees microseconds
null                                         unchanged; Spark reads an int column of nulls
dictionary                                   the type of its values
arrow.uuid, arrow.json                       fixed_size_binary(16), string. The column is marked
                                             (:data:`ANNOTATION`), so that files have Parquet's
                                             annotation UUID or JSON again
list, large_list, fixed_size_list            list, its field named ``element``
struct, map                                  of normalised fields
===========================================  ================================================

A cast that would lose something (nanoseconds below a microsecond) is refused at the first such
value. Always refused are unions, run-end encoded arrays, list views (pyarrow 26 casts them to
broken arrays), calendar intervals, other extension types, decimals beyond 38 digits, structs
without fields, and names that differ only in case.

Every column is nullable, even if a batch says ``not null``: Spark also sends that for columns that
merely happen to hold no null."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa
import pyarrow.types as pt

from ...errors import InvalidInputError, UnsupportedTypeError

_UTC = "UTC"
_MAX_DIGITS = 38
#: The version of Spark that wrote a file. In files without it, Spark takes dates before 1582 for
#: possibly Julian.
SPARK_VERSION = b"org.apache.spark.version"
#: Marks of a file whose dates and instants before 1582 are Julian: see :mod:`.parquet.calendars`.
SPARK_LEGACY_DATETIME = b"org.apache.spark.legacyDateTime"
SPARK_LEGACY_INT96 = b"org.apache.spark.legacyINT96"
SPARK_TIME_ZONE = b"org.apache.spark.timeZone"
HIVE_PROLEPTIC = b"writer.date.proleptic"
#: The first version of Spark that writes by the Gregorian calendar by default.
_GREGORIAN_SPARK = b"3.1.0"
#: Metadata that is not true of the table: pandas' index, another writer's Arrow schema, and the
#: calendar of the file that rows were read from (rows in Arrow are by the Gregorian one).
_DROPPED_METADATA = frozenset(
    {
        *(b"pandas", b"ARROW:schema", HIVE_PROLEPTIC),
        *(SPARK_LEGACY_DATETIME, SPARK_LEGACY_INT96, SPARK_TIME_ZONE),
    }
)
#: Metadata of columns that is not true of the table: field ids name columns of the file that rows
#: were read from, and :data:`LATER` is set by the table alone.
_DROPPED_FIELD_METADATA = frozenset({b"PARQUET:field_id", b"zero_rename.later"})
#: Marks a column in a table's schema that came by evolution: older files do not have it, and jobs
#: may leave it out.
LATER = b"zero_rename.later"
#: Marks a column in a table's schema of which files may hold nulls without a type, in the column or
#: in a part of it: it has got its type later. Not every reader takes them for nulls of that type.
UNTYPED = b"zero_rename.untyped"
#: Marks a column, or a field in one, whose values have an annotation in Parquet files for which
#: Arrow has no plain type. Its value is the annotation's name.
ANNOTATION = b"zero_rename.annotation"
#: Types of the values of annotated columns, by annotation.
ANNOTATED = {b"UUID": pa.binary(16), b"JSON": pa.string()}
#: Annotations by the name of Arrow's extension type.
_EXTENSIONS = {"arrow.uuid": b"UUID", "arrow.json": b"JSON"}


def find_column(name: str, names: Iterable[str]) -> str | None:
    """Return the column of a table that a name means, in any case.

    No two columns of a table differ by case alone.
    """
    return next((own for own in names if own.lower() == name.lower()), None)


def has_part(kind: pa.DataType, is_meant: Callable[[pa.DataType], bool]) -> bool:
    """Return whether a type, or a part of a nested one, is a meant one."""
    inner = (kind.field(number).type for number in range(kind.num_fields))
    return is_meant(kind) or any(has_part(it, is_meant) for it in inner)


def normalise(schema: pa.Schema) -> pa.Schema:
    """Convert a schema to the types that a table can have; see the table above.

    Metadata of the schema is kept and written to the footers of the Parquet files, so a Spark job
    can pass its own schema (as far as it fits: :mod:`.row_metadata`). Dropped are pandas' metadata,
    and marks of another calendar in the file that the rows were read from.

    :raises UnsupportedTypeError: a type that a table cannot hold; the message names the column's
        path.
    :raises InvalidInputError: there are no columns, or names that differ only in case.
    """
    if not len(schema):
        raise InvalidInputError(
            "A table needs at least one column.", remedy="Select the columns to write."
        )
    return pa.schema(_normal_fields(schema, ""), metadata=kept_metadata(schema.metadata))


def kept_metadata(metadata: dict[bytes, bytes] | None) -> dict[bytes, bytes] | None:
    """Return the metadata of a schema that is also true of the table's files."""
    kept = _keep(metadata, _DROPPED_METADATA) or {}
    if kept.get(SPARK_VERSION, _GREGORIAN_SPARK) < _GREGORIAN_SPARK:
        del kept[SPARK_VERSION]
    return kept or None


def _keep(metadata: dict[bytes, bytes] | None, dropped: frozenset[bytes]) -> dict | None:
    return {k: v for k, v in (metadata or {}).items() if k not in dropped} or None


def _normal_fields(fields: Iterable[pa.Field], path: str) -> list[pa.Field]:
    normal: list[pa.Field] = []
    seen: dict[str, str] = {}
    for field in fields:
        where = f"{path}.{field.name}" if path else field.name
        if not field.name:
            raise InvalidInputError(
                f"A column {f'in {path!r} ' if path else ''}has no name.",
                remedy="Name every column.",
            )
        twin = seen.setdefault(field.name.lower(), field.name)
        if len(seen) == len(normal):
            raise InvalidInputError(
                f"Two columns are named {twin!r} and {field.name!r}"
                f"{f' in {path!r}' if path else ''}; Spark and Hive do not tell cases apart.",
                remedy="Rename one of them.",
            )
        normal.append(_normal_field(field, field.name, where))
    return normal


def _normal_field(field: pa.Field, name: str, path: str, nullable: bool = True) -> pa.Field:
    metadata = _keep(field.metadata, _DROPPED_FIELD_METADATA) or {}
    kind = _normal(field.type, path)
    said = annotation_of(field.type) or metadata.pop(ANNOTATION, None)
    if said is not None and ANNOTATED.get(said) == kind:
        metadata[ANNOTATION] = said
    return pa.field(name, kind, nullable, metadata or None)


def annotation_of(kind: pa.DataType) -> bytes | None:
    """Return the Parquet annotation of an extension type of Arrow; ``None``: not supported."""
    if not isinstance(kind, pa.BaseExtensionType):
        return None
    return _EXTENSIONS.get(kind.extension_name)


def _normal(kind: pa.DataType, path: str) -> pa.DataType:
    if annotation_of(kind) is not None:
        return _normal(kind.storage_type, path)
    if isinstance(kind, pa.BaseExtensionType):
        raise _unsupported(path, kind, f"Write its storage, {kind.storage_type}.")
    if pt.is_dictionary(kind):
        return _normal(kind.value_type, path)
    if pt.is_nested(kind):
        return _normal_nested(kind, path)
    if pt.is_decimal(kind):
        if kind.precision > _MAX_DIGITS or not 0 <= kind.scale <= kind.precision:
            raise _unsupported(path, kind, "Cast it to decimal(p, s) with s <= p <= 38.")
        return pa.decimal128(kind.precision, kind.scale)
    if pt.is_timestamp(kind):
        return pa.timestamp("us", _UTC if kind.tz is not None else None)
    simple = next((target for holds, target in _SIMPLE if holds(kind)), None)
    if simple is None and not _unchanged(kind):
        raise _unsupported(path, kind, "Cast it to a string, a number or a duration.")
    return simple or kind


def _normal_nested(kind: pa.DataType, path: str) -> pa.DataType:
    if pt.is_struct(kind):
        if not kind.num_fields:
            raise _unsupported(path, kind, "Parquet cannot hold a struct without fields: drop it.")
        return pa.struct(_normal_fields(kind, path))
    if pt.is_map(kind):
        key = _normal_field(kind.key_field, "key", f"{path}.key", nullable=False)
        if pt.is_null(key.type):
            raise _unsupported(path, kind, "Give the map's keys a type.")
        return pa.map_(key, _normal_field(kind.item_field, "value", f"{path}.value"))
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        return pa.list_(_normal_field(kind.value_field, "element", f"{path}[]"))
    raise _unsupported(path, kind, "Cast it to a list or a struct.")


def _unsupported(path: str, kind: pa.DataType, remedy: str) -> UnsupportedTypeError:
    return UnsupportedTypeError(
        f"The column {path!r} has the type {kind}, which a table cannot hold.", remedy=remedy
    )


def _unchanged(kind: pa.DataType) -> bool:
    return (
        pt.is_boolean(kind)
        or pt.is_integer(kind)
        or pt.is_float32(kind)
        or pt.is_float64(kind)
        or pt.is_string(kind)
        or pt.is_binary(kind)
        or pt.is_null(kind)
        or (pt.is_fixed_size_binary(kind) and kind.byte_width > 0)
    )


_SIMPLE = (
    (pt.is_float16, pa.float32()),
    (pt.is_large_string, pa.string()),
    (pt.is_string_view, pa.string()),
    (pt.is_large_binary, pa.binary()),
    (pt.is_binary_view, pa.binary()),
    (pt.is_date, pa.date32()),
    (pt.is_time, pa.time64("us")),
    (pt.is_duration, pa.duration("us")),
)
#: Names of types without parameters: in records, and in Spark.
NAMES = {
    kind.id: names
    for kind, *names in (
        (pa.null(), "null", "void"),
        (pa.bool_(), "bool", "boolean"),
        (pa.int8(), "int8", "byte"),
        (pa.int16(), "int16", "short"),
        (pa.int32(), "int32", "integer"),
        (pa.int64(), "int64", "long"),
        (pa.uint8(), "uint8", "short"),
        (pa.uint16(), "uint16", "integer"),
        (pa.uint32(), "uint32", "long"),
        (pa.uint64(), "uint64", "decimal(20,0)"),
        (pa.float32(), "float32", "float"),
        (pa.float64(), "float64", "double"),
        (pa.string(), "string", "string"),
        (pa.binary(), "binary", "binary"),
        (pa.date32(), "date", "date"),
        (pa.time64("us"), "time", "time(6)"),
        (pa.duration("us"), "duration", "interval day to second"),
    )
}
