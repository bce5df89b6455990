"""SQL statements that register a table with an engine."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ..committer.errors import InvalidInputError
from ..committer.format.schema.hive_paths import is_zoned
from .described_table import DescribedTable, ReadBy, partition_texts
from .engine_types import Engine

#: The most partitions that one statement adds in Athena (its service quotas).
_AT_ONCE = 100
#: A part of a name that every engine reads without quotes.
_BARE = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def ddl(described: DescribedTable, engine: Engine | str, name: str) -> list[str]:
    """Return the statements that register a table with an engine, in order, without semicolons.

    :param name: the table's name there: ``database.table``; ``catalog.schema.table`` for Trino.
    :raises InvalidInputError: the engine cannot read a table of this layout, or the name is
        invalid.
    :raises UnsupportedTypeError: the engine has no type for a column.
    """
    engine = Engine(engine)
    if not all(part.replace("_", "").isalnum() for part in name.split(".")):
        raise InvalidInputError(
            f"{name!r} cannot be a table's name.", remedy="Use letters, digits and underscores."
        )
    if described.read_by is ReadBy.LOG:
        return [_of_delta(described, engine, name)]
    if engine is Engine.TRINO:
        return _trino(described, name)
    name = quoted_name(engine, name)
    if engine is Engine.DUCKDB:
        return [_duckdb(described, name)]
    if engine is Engine.SPARK:
        return _spark(described, name)
    return _hive(described, engine, name)


def quoted_name(engine: Engine, name: str) -> str:
    """Quote the parts of a table's name that some engine cannot read without quotes, for example
    those that begin with a digit."""
    words = name.split(".")
    return ".".join(it if _BARE.fullmatch(it) else _quoted(engine, it) for it in words)


def _quoted(engine: Engine, name: str) -> str:
    mark = '"' if engine in (Engine.REDSHIFT, Engine.TRINO, Engine.DUCKDB) else "`"
    return f"{mark}{name.replace(mark, mark * 2)}{mark}"


def _text(engine: Engine, value: str) -> str:
    """Return a string literal: HiveQL and Spark escape by backslashes, other engines double
    quotes."""
    if engine in (Engine.ATHENA, Engine.HIVE, Engine.SPARK):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    return "'" + value.replace("'", "''") + "'"


def _columns(engine: Engine, types: Iterable[tuple[str, str]]) -> str:
    return ",\n".join(f"  {_quoted(engine, name)} {kind}" for name, kind in types)


def _hive(described: DescribedTable, engine: Engine, name: str) -> list[str]:
    lines = [f"CREATE EXTERNAL TABLE {name} (", _columns(engine, described.types(engine)), ")"]
    if described.partition_by:
        types = described.partition_types(engine)
        lines += ["PARTITIONED BY (", _columns(engine, types), ")"]
    lines += ["STORED AS PARQUET", f"LOCATION {_text(engine, described.location)}"]
    return ["\n".join(lines), *add_partitions(described, engine, name, described.partitions)]


def add_partitions(
    described: DescribedTable, engine: Engine, name: str, partitions: Sequence[str]
) -> list[str]:
    """Return ``ALTER TABLE … ADD PARTITION`` statements, each for up to a hundred partitions."""
    statements = []
    for start in range(0, len(partitions), _AT_ONCE):
        lines = [f"ALTER TABLE {name} ADD IF NOT EXISTS"]
        for partition in partitions[start : start + _AT_ONCE]:
            place = _text(engine, described.partition_location(partition))
            spec = _partition_spec(described, engine, partition)
            lines.append(f"  PARTITION ({spec}) LOCATION {place}")
        statements.append("\n".join(lines))
    return statements


def drop_partitions(
    described: DescribedTable, engine: Engine, name: str, partitions: Sequence[str]
) -> list[str]:
    """Return ``ALTER TABLE … DROP PARTITION`` statements, each for up to a hundred partitions. The
    files stay."""
    return [
        f"ALTER TABLE {name} DROP IF EXISTS "
        + ", ".join(
            f"PARTITION ({_partition_spec(described, engine, partition)})"
            for partition in partitions[start : start + _AT_ONCE]
        )
        for start in range(0, len(partitions), _AT_ONCE)
    ]


def add_columns(engine: Engine, name: str, types: Sequence[tuple[str, str]]) -> str:
    """Return an ``ALTER TABLE … ADD COLUMNS`` statement."""
    return f"ALTER TABLE {name} ADD COLUMNS (\n{_columns(engine, types)}\n)"


def _partition_spec(described: DescribedTable, engine: Engine, partition: str) -> str:
    names = [field.name for field in described.partition_by]
    values = zip(names, partition_texts(partition), strict=True)
    return ", ".join(f"{_quoted(engine, n)}={_text(engine, value)}" for n, value in values)


def _trino(described: DescribedTable, name: str) -> list[str]:
    catalog, schema, table = _trino_name(name)
    types = [*described.types(Engine.TRINO), *described.partition_types(Engine.TRINO)]
    place = _text(Engine.TRINO, described.location)
    options = [f"  external_location = {place}", "  format = 'PARQUET'"]
    if described.partition_by:
        named = ", ".join(_text(Engine.TRINO, f.name) for f in described.partition_by)
        options.append(f"  partitioned_by = ARRAY[{named}]")
    quoted = quoted_name(Engine.TRINO, name)
    lines = [f"CREATE TABLE {quoted} (", _columns(Engine.TRINO, types), ") WITH ("]
    statements = ["\n".join([*lines, ",\n".join(options), ")"])]
    if described.partition_by:
        statements.append(
            f"CALL {catalog}.system.sync_partition_metadata('{schema}', '{table}', 'FULL')"
        )
    return statements


def _trino_name(name: str) -> tuple[str, str, str]:
    parts = name.split(".")
    if len(parts) != 3:
        raise InvalidInputError(
            f"{name!r} is not the name of a table in Trino.",
            remedy="Name it as catalog.schema.table.",
        )
    return parts[0], parts[1], parts[2]


def _of_delta(described: DescribedTable, engine: Engine, name: str) -> str:
    """Return the statement that registers a Delta table. Each engine reads columns and partitions
    from the log."""
    place, quoted = _text(engine, described.location), quoted_name(engine, name)
    if engine is Engine.ATHENA:
        # Athena refuses columns, and any property but this one.
        head = f"CREATE EXTERNAL TABLE {quoted}\nLOCATION {place}"
        return f"{head}\nTBLPROPERTIES ('table_type' = 'DELTA')"
    if engine is Engine.SPARK:
        return f"CREATE TABLE {quoted} USING DELTA LOCATION {place}"
    if engine is Engine.DUCKDB:
        return f"CREATE OR REPLACE VIEW {quoted} AS\nSELECT * FROM delta_scan({place})"
    if engine is Engine.TRINO:
        catalog, schema, table = _trino_name(name)
        return (
            f"CALL {catalog}.system.register_table(schema_name => '{schema}', "
            f"table_name => '{table}', table_location => {place})"
        )
    raise InvalidInputError(
        f"{engine} has no reader of a Delta table's log, by which alone its files count. No "
        "statement was made.",
        table=described.root.url,
        remedy="Query it by Athena, Trino, Spark or DuckDB; or copy it: "
        f'save(load(spark, "{described.root.url}"), NEW) makes a table of directories.',
    )


def _spark(described: DescribedTable, name: str) -> list[str]:
    types = [*described.types(Engine.SPARK), *described.partition_types(Engine.SPARK)]
    lines = [f"CREATE TABLE {name} (", _columns(Engine.SPARK, types), ") USING parquet"]
    if any(is_zoned(it.type) for it in described.partition_by):
        # Otherwise Spark takes the directories' names for times in the zone of its session.
        lines.append("OPTIONS (timeZone 'UTC')")
    if described.partition_by:
        by = ", ".join(_quoted(Engine.SPARK, field.name) for field in described.partition_by)
        lines.append(f"PARTITIONED BY ({by})")
    lines.append(f"LOCATION {_text(Engine.SPARK, described.location)}")
    return ["\n".join(lines), *add_partitions(described, Engine.SPARK, name, described.partitions)]


def _duckdb(described: DescribedTable, name: str) -> str:
    """Return a view that lists the directories. It may show a job in part; ``Table.scan`` reads one
    state.

    Points in time are named in UTC. DuckDB would read them in the zone of its session, by default
    the machine's. So it reads them as local times, and the view says that these are in UTC."""
    depth = "/*" * len(described.partition_by)
    instants = [
        _quoted(Engine.DUCKDB, it.name) for it in described.partition_by if is_zoned(it.type)
    ]
    made = ", ".join(f"{it} AT TIME ZONE 'UTC' AS {it}" for it in instants)
    columns = f"* REPLACE ({made})" if made else "*"
    kinds = dict(described.partition_types(Engine.DUCKDB))
    kinds |= {it.name: "timestamp" for it in described.partition_by if is_zoned(it.type)}
    # As texts: DuckDB's parser takes no type with parentheses there, such as decimal(9,2).
    types = ", ".join(
        f"{_text(Engine.DUCKDB, name)}: {_text(Engine.DUCKDB, kind)}"
        for name, kind in kinds.items()
    )
    hive = f", hive_partitioning = true, hive_types = {{{types}}}" if types else ""
    files = _text(Engine.DUCKDB, f"{described.root.url}{depth}/*.parquet")
    return (
        f"CREATE OR REPLACE VIEW {name} AS\n"
        f"SELECT {columns} FROM read_parquet({files}{hive}, "
        "union_by_name = true)"
    )
