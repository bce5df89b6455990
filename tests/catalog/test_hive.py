"""A Hive metastore behind Spark's SQL: which statements it is sent, and what they come to.

The metastore is a stand-in that understands the statements' beginnings. That Spark and a real one
take them was tried with PySpark 4.3, Hadoop's S3A and Derby (docs/catalogs.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyarrow as pa
import pytest
from conftest import Bucket

from support.day_rows import load_rows
from zero_rename import Table
from zero_rename.catalog import CatalogUnsyncedError, ReadBy, sync_catalog
from zero_rename.committer import InvalidInputError

pytestmark = pytest.mark.memory_s3

Rows = list[Mapping[str, str]]


class Answer:
    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def collect(self) -> Rows:
        return self._rows


class Metastore:
    """Stands for a Spark session with Hive support."""

    def __init__(self) -> None:
        self.facts: dict[str, str] = {}
        self.partitions: list[str] = []
        self.fails = ""

    def sql(self, statement: str) -> Answer:
        if self.fails and statement.startswith(self.fails):
            raise RuntimeError("MetaException: gone")
        location = re.search(r"LOCATION '([^']*)'", statement)
        named = [
            "/".join(f"{name}={value}" for name, value in re.findall(r"`(\w+)`='([^']*)'", spec))
            for spec in re.findall(r"PARTITION \((.*?)\)", statement)
        ]
        match statement.split()[:2]:
            case ["SHOW", "TABLES"]:
                return Answer([{"tableName": "flights"}] if self.facts else [])
            case ["SHOW", "PARTITIONS"]:
                return Answer([{"partition": name} for name in self.partitions])
            case ["DESCRIBE", "TABLE"]:
                rows = [{"col_name": k, "data_type": v} for k, v in self.facts.items()]
                return Answer([*rows])
            case ["CREATE", "EXTERNAL"]:
                assert location
                columns = dict(re.findall(r"`(\w+)` (\w+)", statement))
                if "PARTITIONED BY" in statement:
                    columns["# Partition Information"] = ""
                self.facts = {**columns, "Location": location[1]}
        if "ADD COLUMNS" in statement:
            self.facts |= dict(re.findall(r"`(\w+)` (\w+)", statement))
        elif " ADD " in statement:
            self.partitions += named
        elif " DROP " in statement:
            self.partitions = [name for name in self.partitions if name not in named]
        return Answer([])


@pytest.fixture
def table(s3_bucket: Bucket) -> Table:
    table = Table(f"s3://{s3_bucket.name}/flights")
    load(table, "a", "b")
    return table


def load(table: Table, *days: str) -> None:
    rows = pa.table({"delay": [1.0] * len(days), "day": list(days)})
    load_rows(table, rows)


CATALOG = "hive://lake/flights"


def test_it_is_created_and_followed(table: Table) -> None:
    metastore = Metastore()
    report = sync_catalog(table, CATALOG, spark=metastore)
    assert (report.table, report.added, report.read_by) == ("created", 2, ReadBy.FOLDERS)
    load(table, "c")
    with table.job(mode="overwrite", replace_partitions=["day=a"]):
        pass
    report = sync_catalog(table, CATALOG, spark=metastore)
    assert (report.table, report.added, report.dropped) == ("unchanged", 1, 1)
    assert sorted(metastore.partitions) == ["day=b", "day=c"]


def test_a_column_that_it_lacks_is_added(table: Table) -> None:
    metastore = Metastore()
    sync_catalog(table, CATALOG, spark=metastore, exclude=["delay"])
    assert sync_catalog(table, CATALOG, spark=metastore).table == "updated"
    assert metastore.facts["delay"] == "double"


def test_a_column_that_widened_is_named_with_the_way_out(table: Table) -> None:
    """Spark's SQL cannot change it, and readers of the former type would fail."""
    metastore = Metastore()
    first = pa.table({"delay": [1.0], "n": pa.array([1], pa.int32()), "day": ["a"]})
    wide = pa.table({"delay": [1.0], "n": [2**40], "day": ["a"]})
    for rows in (first, wide):
        load_rows(table, rows, schema_mode="merge")
        if rows is first:
            sync_catalog(table, CATALOG, spark=metastore)
    with pytest.raises(InvalidInputError, match=r"n int \(now bigint\)") as caught:
        sync_catalog(table, CATALOG, spark=metastore)
    assert "DROP TABLE lake.flights" in str(caught.value.remedy)
    metastore.facts, metastore.partitions = {}, []
    assert sync_catalog(table, CATALOG, spark=metastore).table == "created"
    assert metastore.facts["n"] == "bigint"


@pytest.mark.parametrize("strike", range(8))
def test_a_late_one_takes_no_partition_back(table: Table, strike: int) -> None:
    """Another job brings a day, and tells the metastore, as the statement of a number is sent."""
    metastore, seen = Metastore(), list[str]()
    sync_catalog(table, CATALOG, spark=metastore)
    load(table, "d")
    with table.job(mode="overwrite", replace_partitions=["day=a"]):
        pass

    class Late:
        def sql(self, statement: str) -> Answer:
            if len(seen) == strike:
                load(Table(table.root.url), "c")
                sync_catalog(table.root.url, CATALOG, spark=metastore)
            seen.append(statement)
            answer = metastore.sql(statement)
            assert len(seen) <= strike or "day=c" in metastore.partitions
            return answer

    sync_catalog(table, CATALOG, spark=Late())
    assert len(seen) > strike
    assert sorted(set(metastore.partitions)) == ["day=b", "day=c", "day=d"]


@pytest.mark.parametrize("statement", ["SHOW TABLES", "CREATE", "ALTER"])
def test_a_failure_says_that_the_table_is_safe(table: Table, statement: str) -> None:
    metastore = Metastore()
    metastore.fails = statement
    with pytest.raises(CatalogUnsyncedError, match="as its jobs committed it") as caught:
        sync_catalog(table, CATALOG, spark=metastore)
    assert "MetaException" in str(caught.value)
    metastore.fails = ""
    assert sync_catalog(table, CATALOG, spark=metastore).added == 2
