"""Program of the environment ``lake-readers``: reads and changes Delta tables, in folders or by
delta-rs on S3, as it is asked, a line of JSON each. It imports nothing of this project."""

from __future__ import annotations

import json
import sys
from typing import Any

import deltalake
import duckdb
import duckdb_extension_delta  # pyrefly: ignore[missing-import]
import polars
import pyarrow as pa


def _duckdb() -> Any:
    folder = duckdb_extension_delta.__path__[0]
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    version = duckdb.__version__
    connection.execute(f"load '{folder}/extensions/v{version}/delta.duckdb_extension'")
    connection.execute("set timezone = 'UTC'")
    return connection


def read(
    engine: str,
    folder: str,
    columns: list[str],
    where: str | None,
    options: dict[str, str] | None = None,
) -> list[Any]:
    """Rows as texts, which every engine spells alike.

    :param options: where the table is on S3, how delta-rs reaches it.
    """
    condition = f" where {where}" if where else ""
    if engine == "duckdb":
        wanted = ", ".join(f'"{name}"' for name in columns)
        query = f"select {wanted} from delta_scan('{folder}'){condition}"
        found = _duckdb().execute(query).to_arrow_table()
    elif engine == "polars":
        lazy = polars.scan_delta(folder)
        lazy = lazy.filter(polars.sql_expr(where)) if where else lazy
        found = lazy.select(columns).collect().to_arrow()
    else:
        table = deltalake.DeltaTable(folder, storage_options=options)
        wanted = ", ".join(f'"{name}"' for name in columns)
        builder = deltalake.QueryBuilder().register("t", table)
        found = pa.table(builder.execute(f"select {wanted} from t{condition}").read_all())
    return [[repr(value) for value in row.values()] for row in found.to_pylist()]


def change(
    folder: str,
    verb: str,
    rows: dict[str, Any] | None,
    where: str | None,
    options: dict[str, str] | None = None,
) -> int:
    """What delta-rs does to a table; returns its version."""
    table = deltalake.DeltaTable(folder, storage_options=options)
    data = None if rows is None else pa.table(rows)
    if verb in ("append", "overwrite"):
        given = {"predicate": where} if where else {}
        deltalake.write_deltalake(table, data, mode=verb, **given)
    elif verb == "delete":
        table.delete(where)
    elif verb == "update":
        table.update(new_values={"delay": 100}, predicate=where)
    elif verb == "merge":
        merging = table.merge(data, where, source_alias="s", target_alias="t")
        merging.when_matched_update_all().when_not_matched_insert_all().execute()
    elif verb == "compact":
        table.optimize.compact()
    elif verb == "vacuum":
        table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    elif verb == "checkpoint":
        table.create_checkpoint()
    else:
        table.restore(int(where or 0))
    return int(deltalake.DeltaTable(folder, storage_options=options).version())


def insert(folder: str, values: str) -> None:
    """Insert rows by DuckDB, whose extension commits by Delta's kernel.

    :param values: as in SQL.
    """
    connection = _duckdb()
    connection.execute(f"attach '{folder}' as t (type delta)")
    connection.execute(f"insert into t values {values}")
    connection.execute("detach t")


def appends(folder: str, numbers: list[int], options: dict[str, str]) -> list[int]:
    """Append a row at a time to a table on S3; return those that delta-rs says are there."""
    done = []
    for number in numbers:
        rows = pa.table({"day": ["delta-rs"], "delay": pa.array([number], pa.int64())})
        try:
            deltalake.write_deltalake(folder, rows, mode="append", storage_options=options)
        except deltalake.exceptions.CommitFailedError:
            continue  # Too many others were faster.
        done.append(number)
    return done


_CAN = {"read": read, "change": change, "insert": insert, "appends": appends}


def main() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = {"answer": _CAN[asked.pop("do")](**asked)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
