"""A table whose columns have changed, as everything beside Spark meets it: scans, DuckDB, Polars,
Glue, compaction."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from conftest import Bucket

from support.day_rows import load_rows
from zero_rename import Table
from zero_rename.catalog import sync_catalog

pytestmark = pytest.mark.memory_s3

OLD = pa.table(
    {"n": pa.array([1, 2], pa.int32()), "x": pa.array([0.5, None], pa.float32()), "day": ["a", "b"]}
)
NEW = pa.table({"n": [2**40], "x": [0.1], "note": ["late"], "day": ["a"]})
ROWS = [
    {"n": 1, "x": 0.5, "day": "a", "note": None},
    {"n": 2, "x": None, "day": "b", "note": None},
    {"n": 2**40, "x": 0.1, "day": "a", "note": "late"},
]


@pytest.fixture
def table(s3_bucket: Bucket, glue: Any) -> Table:
    """One that engines knew before it changed."""
    table = Table(f"s3://{s3_bucket.name}/sales")
    load_rows(table, OLD)
    assert sync(table).added == 2
    load_rows(table, NEW, schema_mode="merge")
    return table


def sync(table: Table) -> Any:
    return sync_catalog(table, f"glue://{table.root.bucket}/sales")


def by_n(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["n"])


def told(glue: Any, table: Table) -> set[tuple[tuple[str, str], ...]]:
    """Columns that Glue has for the table and each of its partitions, each way once."""
    names = {"DatabaseName": table.root.bucket}
    there = [glue.get_table(**names, Name="sales")["Table"]]
    there += glue.get_partitions(**names, TableName="sales")["Partitions"]
    return {
        tuple((c["Name"], c["Type"]) for c in it["StorageDescriptor"]["Columns"]) for it in there
    }


def check_reads(table: Table) -> None:
    """The same rows by every way, and filters that old files' types and lacks decide."""
    assert by_n(table.scan().to_arrow().to_pylist()) == ROWS
    assert by_n(table.scan().to_polars().to_dicts()) == ROWS
    view = table.scan().to_duckdb("sales")
    assert view.sql("SELECT sum(n), max(x), count(note) FROM sales").fetchall() == [
        (3 + 2**40, 0.5, 1)
    ]
    view.close()
    assert table.scan(filter=pc.field("n") > 2**33).count() == 1
    assert table.scan(filter=[("n", "<", 2**33)]).count() == 2
    assert table.scan(filter=pc.field("note").is_null(), columns=["n"]).count() == 2
    assert table.scan(filter=[("note", "=", "late")], columns=["x"]).to_arrow().to_pylist() == [
        {"x": 0.1}
    ]
    assert table.verify() == []


def test_every_reader_and_registration_follows(table: Table, glue: Any) -> None:
    check_reads(table)
    report = sync(table)
    assert (report.table, report.added, report.updated) == ("updated", 0, 2)
    assert told(glue, table) == {(("n", "bigint"), ("x", "double"), ("note", "string"))}

    (done,) = table.compact(["day=a"], apply=True)
    assert done.job is not None
    check_reads(table)
    assert len(table.files("day=a")) == 1
    assert sync(table).table == "unchanged"


def test_every_reader_and_registration_follows_an_overwrite_of_the_columns(
    table: Table, glue: Any
) -> None:
    sync(table)
    rows = pa.table({"n": ["one", "two"], "day": ["a", "c"]})
    load_rows(table, rows, schema_mode="overwrite", mode="overwrite", replace_table=True)
    assert sorted(table.scan().to_polars()["n"].to_list()) == ["one", "two"]
    assert table.scan(filter=[("n", "=", "one")]).count() == 1
    assert table.verify() == []
    report = sync(table)
    assert (report.table, report.added, report.updated, report.dropped) == ("updated", 1, 1, 1)
    assert told(glue, table) == {(("n", "string"),)}
    load_rows(table, rows)
    assert {done.partition for done in table.compact(apply=True)} == {"day=a", "day=c"}
    assert table.scan().count() == 4
