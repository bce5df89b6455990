"""Column types of other engines: what each calls the types that a table can have.

Sources: Athena's and Redshift Spectrum's documentation of data types, Trino's of its Hive
connector, Hive's language manual, Spark's of its SQL types. What an engine has no type for is
refused: a column that reads as something else is worse than none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum

import pyarrow as pa
import pyarrow.types as pt

from ..committer.errors import InvalidInputError, UnsupportedTypeError


class Engine(StrEnum):
    """Who reads a table beside this package."""

    ATHENA = "athena"
    TRINO = "trino"
    SPARK = "spark"
    HIVE = "hive"
    REDSHIFT = "redshift"
    DUCKDB = "duckdb"


#: The Hive metastore's and Glue's names, which Athena and Spark take, too.
_HIVE = {
    "bool": "boolean",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "uint8": "smallint",
    "uint16": "int",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date32[day]": "date",
    "timestamp[us,tz=UTC]": "timestamp",
    "timestamp[us]": "timestamp",
    "duration[us]": "bigint",
}
#: By engine, what each calls the types; the parameters of decimals and nested types follow.
NAMES: Mapping[Engine, Mapping[str, str]] = {
    Engine.ATHENA: _HIVE,
    Engine.HIVE: _HIVE,
    Engine.SPARK: {
        **_HIVE,
        "uint32": "bigint",
        "uint64": "decimal(20,0)",
        "timestamp[us]": "timestamp_ntz",
    },
    Engine.TRINO: {
        **_HIVE,
        "int32": "integer",
        "uint16": "integer",
        "float": "real",
        "string": "varchar",
        "binary": "varbinary",
        "timestamp[us,tz=UTC]": "timestamp(6)",
        "timestamp[us]": "timestamp(6)",
    },
    Engine.REDSHIFT: {
        **_HIVE,
        "int8": "smallint",
        "int32": "integer",
        "uint16": "integer",
        "float": "real",
        "double": "double precision",
        "string": "varchar(65535)",
        "binary": "varbyte(1024000)",
    },
}
_SQL = {Engine.TRINO: ("array({})", "map({}, {})", "row({})", '"{}" {}')}
_HIVE_FORMS = ("array<{}>", "map<{},{}>", "struct<{}>", "{}:{}")


def engine_type(kind: pa.DataType, engine: Engine, column: str) -> str:
    """What an engine calls a column's type.

    :param column: for the error.
    :raises UnsupportedTypeError: it has none in which the values can be read.
    """
    array, mapping, struct, member = _SQL.get(engine, _HIVE_FORMS)

    def inner(kind: pa.DataType) -> str:
        return engine_type(kind, engine, column)

    if pt.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pt.is_list(kind):
        return array.format(inner(kind.value_type))
    if pt.is_map(kind):
        return mapping.format(inner(kind.key_type), inner(kind.item_type))
    if pt.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return struct.format(
            ("," if member == "{}:{}" else ", ").join(
                member.format(field.name, inner(field.type)) for field in fields
            )
        )
    name = "binary" if pt.is_fixed_size_binary(kind) else str(kind).replace(" ", "")
    found = NAMES[engine].get(name)
    if found is None:
        raise UnsupportedTypeError(
            f"The column {column!r} is {kind}, which {engine} cannot read from Parquet.",
            remedy="Cast it when it is written, or leave the column out: --exclude "
            f"{column}; readers of Parquet need not declare all columns.",
        )
    return found


#: Hive's words, and what a table's column of them is.
_ARROW = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
}
_TOKEN = re.compile(r"\s*([A-Za-z_]\w*|\d+|[<>(),:]|`[^`]+`)")


def hive_type(text: str) -> pa.DataType:
    """The type that the metastore's words mean, as ``struct<a:int,b:array<decimal(9,2)>>``.

    :raises InvalidInputError: they mean none that a table can have.
    """
    tokens = _tokens(text)
    found = _read_type(tokens, text)
    if next(tokens, None) is not None:
        raise _unreadable(text)
    return found


def _tokens(text: str) -> Iterator[str]:
    position, end = 0, len(text.rstrip())
    while position < end:
        found = _TOKEN.match(text, position)
        if found is None:
            raise _unreadable(text)
        yield found[1]
        position = found.end()


def _read_type(tokens: Iterator[str], text: str) -> pa.DataType:
    word = next(tokens, "").lower()
    if word in _ARROW:
        return _ARROW[word]
    if word == "decimal":
        _, precision, _, scale, _ = (next(tokens, "") for _ in range(5))
        if not (precision.isdigit() and scale.isdigit()):
            raise _unreadable(text)
        return pa.decimal128(int(precision), int(scale))
    if word not in ("array", "map", "struct") or next(tokens, "") != "<":
        raise _unreadable(text)
    fields = []
    while True:
        name = "element"
        if word == "struct":
            name = next(tokens, "").strip("`")
            if next(tokens, "") != ":":
                raise _unreadable(text)
        fields.append(pa.field(name, _read_type(tokens, text)))
        after = next(tokens, "")
        if after == ">":
            break
        if after != ",":
            raise _unreadable(text)
    if word == "struct":
        return pa.struct(fields)
    if word == "array" and len(fields) == 1:
        return pa.list_(fields[0])
    if word == "map" and len(fields) == 2:
        return pa.map_(fields[0].type, fields[1].type)
    raise _unreadable(text)


def _unreadable(text: str) -> InvalidInputError:
    return InvalidInputError(f"{text!r} is no type of Hive's that a table can have.")
