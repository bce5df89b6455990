"""What tests of Spark's tables do over and over: write, read back, fetch the files."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from zero_rename.committer import Table

#: A column of each of Spark's types that Parquet holds, as SQL.
COLUMNS = {
    "a_boolean": "true",
    "a_byte": "cast(-2 as tinyint)",
    "a_short": "cast(300 as smallint)",
    "an_int": "3",
    "a_long": "4000000000L",
    "a_float": "cast(1.25 as float)",
    "a_double": "2.5D",
    "a_decimal": "cast('12345678901234567890.123456789012345678' as decimal(38,18))",
    "a_price": "cast(1.5 as decimal(5,2))",
    "a_string": "'héé \\u2603'",
    "a_char": "cast('ab' as char(5))",
    "a_collated": "collate('x', 'UNICODE_CI')",
    "a_binary": "X'00ff80'",
    "a_date": "date'2013-01-02'",
    "an_old_date": "date'0999-01-02'",
    "a_timestamp": "timestamp'2013-01-01 05:00:00.123456'",
    "a_local_timestamp": "timestamp_ntz'1500-01-01 05:00:00.123456'",
    "a_time": "time'12:34:56.123456'",
    "a_day_interval": "interval '1 02:03:04.5' day to second",
    "an_hour_interval": "interval '5' hour",
    "a_void": "null",
    "a_variant": """parse_json('{"a": [1, 2, {"b": null}], "c": "x"}')""",
    "an_array": "array(1, 2, null)",
    "a_map": "map('a', 1, 'b', null)",
    "a_struct": "named_struct('a', 1, 'b', array(named_struct('c', 'x', 'd', 1.5D)))",
    "an_array_of_times": "array(time'10:00:00', null)",
    "an_array_of_timestamps": "array(timestamp'2013-01-01 05:00:00')",
    "an_array_of_variants": "array(parse_json('1'), null)",
    "a_map_of_structs": "map(named_struct('k', 1), array(cast(1.5 as decimal(5,2))))",
    "a_map_of_variants": "map('k', parse_json('[true]'))",
    "a_nested_void": "named_struct('v', array(null))",
}
#: Those of them that can be partition columns.
PARTITION_COLUMNS = (
    *("a_boolean", "a_byte", "a_long", "a_double", "a_price", "a_string"),
    *("a_date", "an_old_date", "a_timestamp", "a_local_timestamp", "a_time"),
)


def of_all_types(spark: Any) -> Any:
    """A row of values, a row of nulls, in two tasks."""
    return _with_nulls(spark, {f"`{name}`": text for name, text in COLUMNS.items()})


def partitioned_by_all_types(spark: Any) -> Any:
    """A number, and columns to partition by: a row of values, a row of nulls."""
    return _with_nulls(spark, {name: COLUMNS[name] for name in PARTITION_COLUMNS})


def _with_nulls(spark: Any, columns: dict[str, str]) -> Any:
    values = ", ".join(f"{text} as {name}" for name, text in columns.items())
    typed = spark.sql(f"select 1 as n, {values}")
    nulls = ", ".join(
        f"cast(null as {f.dataType.simpleString()}) as `{f.name}`" for f in typed.schema.fields[1:]
    )
    return typed.unionAll(spark.sql(f"select 2 as n, {nulls}"))


def write(frame: Any, url: str, mode: str = "append", **options: str) -> None:
    frame.write.format("zero_rename").mode(mode).options(**options).save(url)


def put(
    url: str, *rows: tuple[Any, ...], schema: pa.Schema, by: Sequence[str] = ("p",), **policy: Any
) -> None:
    """Another application's job."""
    with Table(url).job(schema, partition_by=by, **policy) as job:
        job.write(pa.table(list(zip(*rows, strict=True)), schema=schema))


def held(url: str) -> list[tuple[Any, ...]]:
    """The rows that a table holds, in an order that does not depend on its files'."""
    found = [tuple(row.values()) for row in Table(url).to_arrow().to_pylist()]
    return sorted(found, key=repr)


def numbers(url: str, column: str = "n") -> list[int]:
    """The values of a table's column, sorted."""
    return sorted(Table(url).to_arrow()[column].to_pylist())


def read(spark: Any, url: str, **options: str) -> Any:
    return spark.read.format("zero_rename").options(**options).load(url)


def rows(frame: Any) -> list[Any]:
    """The rows of a frame, in an order that does not depend on Spark's."""
    return sorted((row.asDict(True) for row in frame.collect()), key=repr)


def data_keys(bucket: Any, prefix: str = "") -> list[str]:
    """Keys of data files."""
    keys = bucket.keys(prefix)
    return [key for key in keys if key.endswith(".parquet") and "/_zero_rename/" not in key]


def open_records(bucket: Any, prefix: str) -> list[str]:
    return bucket.keys(f"{prefix}/_zero_rename/open/")


def download(bucket: Any, prefix: str, folder: Path) -> Path:
    """A table's data files as a local directory tree."""
    for key in data_keys(bucket, prefix):
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bucket.read(key))
    return folder / prefix


@contextmanager
def worker_environment(spark: Any, **variables: str):
    """Let the data source's workers have these variables: registration keeps the environment of
    its moment."""
    from zero_rename.spark import register

    environment = spark.sparkContext.environment
    before = dict(environment)
    environment.update(variables)
    try:
        register(spark)
        yield
    finally:
        environment.clear()
        environment.update(before)
        register(spark)
