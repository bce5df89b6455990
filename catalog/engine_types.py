"""Column types of other engines: each engine's names for the types that a table can have.

Sources: Athena's and Redshift Spectrum's documentation of data types, Trino's of its Hive
connector, Hive's language manual, Spark's of its SQL types. A type that an engine does not have is
refused: a column that reads as something else is worse than none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum

import pyarrow as pa
import pyarrow.types as pt

from ..committer.errors import UnsupportedTypeError


class Engine(StrEnum):
    """An engine, besides this package, that reads tables."""

    ATHENA = "athena"
    TRINO = "trino"
    SPARK = "spark"
    HIVE = "hive"
    REDSHIFT = "redshift"
    DUCKDB = "duckdb"


#: The names of the Hive metastore and of Glue. Athena and Spark accept them, too.
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
#: Names of types by engine. Decimals and nested types are built by :func:`engine_type`.
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
    Engine.DUCKDB: {
        "bool": "boolean",
        "int8": "tinyint",
        "int16": "smallint",
        "int32": "integer",
        "int64": "bigint",
        "uint8": "utinyint",
        "uint16": "usmallint",
        "uint32": "uinteger",
        "uint64": "ubigint",
        "float": "float",
        "double": "double",
        "string": "varchar",
        "binary": "blob",
        "date32[day]": "date",
        "time64[us]": "time",
        "timestamp[us,tz=UTC]": "timestamptz",
        "timestamp[us]": "timestamp",
        "duration[us]": "bigint",
    },
}
_SQL = {
    Engine.TRINO: ("array({})", "map({}, {})", "row({})", '"{}" {}'),
    Engine.DUCKDB: ("{}[]", "map({}, {})", "struct({})", '"{}" {}'),
}
_HIVE_FORMS = ("array<{}>", "map<{},{}>", "struct<{}>", "{}:{}")


def engine_type(kind: pa.DataType, engine: Engine, column: str) -> str:
    """Return an engine's name for the type of a column.

    :param column: the column's name, for the error.
    :raises UnsupportedTypeError: the engine has no type that reads the column's values from
        Parquet.
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
        is_quoted = engine in _SQL
        return struct.format(
            (", " if is_quoted else ",").join(
                member.format(it.name.replace('"', '""') if is_quoted else it.name, inner(it.type))
                for it in fields
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


#: A token of a Hive type: a name in backticks, a word or a sign.
_TOKEN = re.compile(r"`[^`]*`|\w+|\S")


def same_hive_type(one: str, other: str) -> bool:
    """Return whether two texts of Hive types, such as ``struct<a:int,b:array<decimal(9,2)>>``, name
    one type. Case and blanks count only in the names of members."""
    return _hive_words(one) == _hive_words(other)


def _hive_words(text: str) -> list[str]:
    tokens: list[str] = _TOKEN.findall(text)
    words = []
    for token, after in zip(tokens, [*tokens[1:], ""], strict=True):
        word = token.lower().replace("integer", "int")
        words.append(token.strip("`") if after == ":" else word)
    return words
