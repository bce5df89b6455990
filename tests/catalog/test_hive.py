"""A Hive metastore behind Spark's SQL: which statements it is sent, and what they come to.

The metastore is a stand-in that understands the statements' beginnings. That Spark and a real one
take them was tried with PySpark 4.3, Hadoop's S3A and Derby (docs/catalogs.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from conftest import Bucket

from support.day_rows import load_rows
from zero_rename import Table
from zero_rename.catalog import CatalogUnsyncedError, ReadBy, sync_after_commit, sync_catalog
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

    def __init__(self, name: str = "flights") -> None:
        self.name = name
        self.columns: dict[str, str] = {}
        self.keys: list[str] = []
        self.facts: dict[str, str] = {}
        self.partitions: list[str] = []
        self.views: list[str] = []
        self.fails = ""
        self.zone = "Europe/Berlin"

    def described(self) -> Rows:
        """As Spark 4.3 shows a table: columns, partition columns, and what else it is."""
        keys = [("# Partition Information", ""), ("# col_name", "data_type")]
        keys += [(key, self.columns[key]) for key in self.keys]
        facts = [("", ""), ("# Detailed Table Information", ""), *self.facts.items()]
        rows = [*self.columns.items(), *(keys if self.keys else ()), *facts]
        return [{"col_name": name, "data_type": _shortened(text)} for name, text in rows]

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
                shown = [{"tableName": self.name, "isTemporary": ""}] if self.facts else []
                return Answer([*shown, *({"tableName": v, "isTemporary": "x"} for v in self.views)])
            case ["SET", "spark.sql.session.timeZone"]:
                return Answer([{"key": "spark.sql.session.timeZone", "value": self.zone}])
            case ["SHOW", "PARTITIONS"]:
                return Answer([{"partition": name} for name in self.partitions])
            case ["DESCRIBE", "TABLE"] if "EXTENDED" in statement:
                return Answer(self.described() if self.facts else self.no_table())
            case ["DESCRIBE", "TABLE"]:
                kind = self.columns[statement.split()[-1]]
                return Answer([{"info_name": "data_type", "info_value": kind}])
            case ["CREATE", "EXTERNAL"]:
                assert location
                columns, _, keys = statement.partition("PARTITIONED BY")
                self.columns = _columns(columns.partition("(")[2]) | _columns(keys)
                self.keys = list(_columns(keys))
                self.facts = {"Table": "flights", "Owner": "root", "Type": "EXTERNAL"}
                self.facts |= {"Location": location[1]}
        if "ADD COLUMNS" in statement:
            self.columns |= _columns(statement)
        elif " ADD " in statement:
            self.partitions += named
        elif " DROP " in statement:
            self.partitions = [name for name in self.partitions if name not in named]
        return Answer([])

    @staticmethod
    def no_table() -> Rows:
        raise RuntimeError("\n[TABLE_OR_VIEW_NOT_FOUND] The table or view cannot be found.")


def _columns(statement: str) -> dict[str, str]:
    return dict(re.findall(r"`([^`]+)` ([^\s]+?),?\n", statement))


def _shortened(kind: str) -> str:
    members = kind.split(",")
    more = len(members) - 25
    return kind if more <= 0 else f"{','.join(members[:25])},... {more} more fields>"


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
    assert metastore.columns["delay"] == "double"


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
    assert metastore.columns["n"] == "bigint"


def test_column_that_the_table_has_dropped_is_named_with_the_way_out(table: Table) -> None:
    """Spark's SQL cannot drop it, and readers would find nulls in it, and no error."""
    metastore = Metastore()
    sync_catalog(table, CATALOG, spark=metastore)
    renamed = pa.table({"late": [1.0], "day": ["a"]})
    words = {"mode": "overwrite", "replace_table": True, "schema_mode": "overwrite"}
    load_rows(table, renamed, **words)
    with pytest.raises(InvalidInputError, match="columns that the table does not have: delay") as e:
        sync_catalog(table, CATALOG, spark=metastore)
    assert "DROP TABLE lake.flights" in str(e.value.remedy)
    assert "late" not in metastore.columns
    metastore.facts, metastore.partitions = {}, []
    assert sync_catalog(table, CATALOG, spark=metastore).table == "created"
    assert list(metastore.columns) == ["late", "day"]


def test_column_that_a_call_leaves_out_may_be_there(table: Table) -> None:
    metastore = Metastore()
    rows = pa.table({"delay": [1.0], "N": [1], "day": ["a"]})
    load_rows(table, rows, schema_mode="merge")
    sync_catalog(table, CATALOG, spark=metastore)
    metastore.columns = {name.lower(): kind for name, kind in metastore.columns.items()}
    assert sync_catalog(table, CATALOG, spark=metastore, exclude=["N"]).table == "unchanged"


@pytest.mark.parametrize(("there", "is_refused"), [("int", True), ("string", False)])
def test_partition_column_of_another_type_is_refused_unless_it_holds_any_text(
    s3_bucket: Bucket, there: str, is_refused: bool
) -> None:
    """As of a table that was deleted, and made anew at the same address."""
    table, metastore = Table(f"s3://{s3_bucket.name}/flights"), Metastore()
    load_rows(table, pa.table({"n": [1], "day": pa.array([15706], pa.date32())}))
    sync_catalog(table, CATALOG, spark=metastore)
    metastore.columns["day"] = there
    if is_refused:
        with pytest.raises(InvalidInputError, match=r"day int \(now date\)"):
            sync_catalog(table, CATALOG, spark=metastore)
    else:
        assert sync_catalog(table, CATALOG, spark=metastore).table == "unchanged"


def test_points_in_time_as_partitions_are_refused_unless_the_session_is_in_utc(
    s3_bucket: Bucket,
) -> None:
    """Spark reads them hours off, and a time that its clock leaves out becomes another one."""
    table, metastore = Table(f"s3://{s3_bucket.name}/flights"), Metastore()
    times = pa.array([datetime(2013, 3, 31, 2, 30, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    load_rows(table, pa.table({"n": [1], "day": times}))
    with pytest.raises(InvalidInputError, match="time zone is Europe/Berlin"):
        sync_catalog(table, CATALOG, spark=metastore)
    assert metastore.facts == {}
    metastore.zone = "Etc/UTC"
    assert sync_catalog(table, CATALOG, spark=metastore).added == 1


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


def test_columns_that_are_called_as_facts_of_a_table_are_registered_and_added(table: Table) -> None:
    metastore = Metastore()
    names = {"location": ["LGA"], "type": ["A320"], "# rows": [1]}
    rows = pa.table({"delay": [1.0], **names, "day": ["a"]})
    load_rows(table, rows, schema_mode="merge")
    sync_catalog(table, CATALOG, spark=metastore)
    assert sync_catalog(table, CATALOG, spark=metastore).table == "unchanged"
    rows = rows.append_column("owner", pa.array(["me"])).append_column("table", pa.array(["t"]))
    load_rows(table, rows, schema_mode="merge")
    assert sync_catalog(table, CATALOG, spark=metastore).table == "updated"
    assert {"location", "type", "# rows", "owner", "table"} <= metastore.columns.keys()


def test_type_that_spark_shows_shortened_is_asked_for_in_full(table: Table) -> None:
    metastore = Metastore()
    members = pa.array([{f"x{n}": 1 for n in range(40)}])
    rows = pa.table({"delay": [1.0], "wide": members, "day": ["a"]})
    load_rows(table, rows, schema_mode="merge")
    sync_catalog(table, CATALOG, spark=metastore)
    assert sync_catalog(table, CATALOG, spark=metastore).table == "unchanged"
    metastore.columns["wide"] = metastore.columns["wide"].replace("x39:bigint", "x39:int")
    with pytest.raises(InvalidInputError, match=r"wide struct<x0:bigint.*x39:int>"):
        sync_catalog(table, CATALOG, spark=metastore)


def test_temporary_view_of_the_name_is_not_the_table(table: Table) -> None:
    metastore = Metastore()
    metastore.views = ["flights"]
    assert sync_catalog(table, CATALOG, spark=metastore).table == "created"


def test_managed_table_at_the_place_is_refused(table: Table) -> None:
    """Spark deletes the files of a partition that it drops from one."""
    metastore = Metastore()
    sync_catalog(table, CATALOG, spark=metastore)
    metastore.facts["Type"] = "MANAGED"
    with pytest.raises(InvalidInputError, match="managed table") as caught:
        sync_catalog(table, CATALOG, spark=metastore)
    assert "would delete all its files" in str(caught.value.remedy)


def test_other_partition_columns_are_refused(table: Table) -> None:
    metastore = Metastore()
    sync_catalog(table, CATALOG, spark=metastore)
    metastore.keys, metastore.partitions = [], []
    with pytest.raises(InvalidInputError, match=r"partition columns \[\], .* \['day'\]"):
        sync_catalog(table, CATALOG, spark=metastore)


def test_failure_after_a_commit_names_the_call_that_finishes_it(
    table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    metastore = Metastore()
    metastore.fails = "CREATE"
    assert sync_after_commit(table, CATALOG, spark=metastore) is None
    assert f'sync_catalog("{table.root.url}", "{CATALOG}", spark=spark)' in caplog.text
    assert "zero-rename catalog sync" not in caplog.text


def test_name_that_begins_with_a_digit_is_quoted(table: Table) -> None:
    sent = list[str]()

    class Recorder(Metastore):
        def sql(self, statement: str) -> Answer:
            sent.append(statement)
            return super().sql(statement)

    sync_catalog(table, "hive://lake/2013", spark=Recorder("2013"))
    assert any(it.startswith("CREATE EXTERNAL TABLE lake.`2013` (") for it in sent)
    assert any(it.startswith("ALTER TABLE lake.`2013` ADD") for it in sent)
