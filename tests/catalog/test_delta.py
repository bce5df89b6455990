"""A Delta table in catalogs: its place and columns; files and partitions stand in its log."""

from __future__ import annotations

from typing import Any

import boto3
import pyarrow as pa
import pytest
from conftest import Bucket

from support.command_line import as_json, invoke
from zero_rename import Table
from zero_rename.catalog import ReadBy, ddl, describe, sync_after_commit, sync_catalog
from zero_rename.committer import InvalidInputError
from zero_rename.tables import DeltaTable

pytestmark = pytest.mark.memory_s3
ROWS = pa.table({"delay": [1.0, 2.0], "day": ["a", "b"]})


@pytest.fixture
def table(s3_bucket: Bucket) -> DeltaTable:
    table = DeltaTable(f"s3://{s3_bucket.name}/flights")
    load(table, ROWS)
    return table


def load(table: DeltaTable, rows: pa.Table, **more: Any) -> None:
    by = [name for name in ("day",) if name in rows.column_names]
    with table.job(rows.schema, partition_by=by, **more) as job:
        job.write(rows)


@pytest.fixture
def url(s3_bucket: Bucket) -> str:
    return f"glue://{s3_bucket.name}/flights"


class InGlue:
    """The table as Glue has it."""

    def __init__(self, glue: Any, bucket: Bucket) -> None:
        self._glue, self._database = glue, bucket.name

    @property
    def entry(self) -> Any:
        return self._glue.get_table(DatabaseName=self._database, Name="flights")["Table"]

    @property
    def columns(self) -> dict[str, str]:
        return {it["Name"]: it["Type"] for it in self.entry["StorageDescriptor"]["Columns"]}

    @property
    def partitions(self) -> list[Any]:
        names = {"DatabaseName": self._database, "TableName": "flights"}
        return self._glue.get_partitions(**names)["Partitions"]

    def register(self, parameters: dict[str, str], storage: dict[str, Any], *keys: str) -> None:
        """Register the table as another program does."""
        told = {"Name": "flights", "TableType": "EXTERNAL_TABLE", "Parameters": parameters}
        columns = [{"Name": name, "Type": "string"} for name in keys]
        told |= {"StorageDescriptor": storage, "PartitionKeys": columns}
        self._glue.create_table(DatabaseName=self._database, TableInput=told)


@pytest.fixture
def there(glue: Any, s3_bucket: Bucket) -> InGlue:
    return InGlue(glue, s3_bucket)


def test_delta_table_in_glue_has_what_athena_spark_and_trino_look_for(
    table: DeltaTable, there: InGlue, url: str
) -> None:
    report = sync_catalog(table, url)
    assert (report.table, report.read_by, report.added) == ("created", ReadBy.LOG, 0)
    told = {"EXTERNAL": "TRUE", "table_type": "DELTA", "spark.sql.sources.provider": "delta"}
    assert there.entry["Parameters"] == told
    assert there.entry["TableType"] == "EXTERNAL_TABLE"
    assert there.columns == {"delay": "double", "day": "string"}
    assert there.partitions == []
    storage = there.entry["StorageDescriptor"]
    assert storage["Location"] == f"{table.root.url}/"
    assert storage["SerdeInfo"]["Parameters"]["path"] == f"{table.root.url}/"
    # An engine that knows no Delta finds no way to read the files, not those that count no more.
    assert not storage.get("InputFormat")
    assert not storage["SerdeInfo"].get("SerializationLibrary")
    assert sync_catalog(table.root.url, url).table == "unchanged"


def test_new_column_of_a_delta_table_is_told_and_new_partitions_need_no_call(
    table: DeltaTable, there: InGlue, url: str
) -> None:
    sync_catalog(table, url)
    load(table, pa.table({"delay": [3.0], "day": ["c"]}))
    assert sync_catalog(table, url).table == "unchanged"
    load(table, ROWS.append_column("n", pa.array([1, 2])), schema_mode="merge")
    assert sync_catalog(table, url).table == "updated"
    assert there.columns == {"delay": "double", "day": "string", "n": "bigint"}
    assert there.partitions == []


def test_excluded_column_of_a_delta_table_is_not_told(
    table: DeltaTable, there: InGlue, url: str
) -> None:
    sync_catalog(table, url, exclude=["delay"])
    assert there.columns == {"day": "string"}


@pytest.mark.parametrize("keys", [(), ("day",)])
def test_delta_table_that_another_program_has_registered_is_completed(
    table: DeltaTable, there: InGlue, url: str, keys: tuple[str, ...]
) -> None:
    """Spark registers one column ``col`` of no meaning, a crawler partition columns."""
    storage = {
        "Location": table.root.url,
        "Columns": [{"Name": "col", "Type": "array<string>"}],
        "SerdeInfo": {"Parameters": {"path": table.root.url}},
    }
    there.register({"spark.sql.sources.provider": "DELTA", "owner": "me"}, storage, *keys)
    assert sync_catalog(table, url).table == "updated"
    assert there.columns == {"delay": "double"} | ({} if keys else {"day": "string"})
    assert there.entry["Parameters"]["table_type"] == "DELTA"
    assert there.entry["Parameters"]["owner"] == "me"
    assert sync_catalog(table, url).table == "unchanged"


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_delta_table_that_spark_has_registered_is_completed(
    table: DeltaTable, there: InGlue, url: str, scheme: str
) -> None:
    """Spark registers a location of no meaning, and keeps the table's in the SerDe's parameters. It
    may know the scheme s3a alone."""
    path = table.root.url.replace("s3", scheme, 1)
    storage = {
        "Location": "s3://warehouse/db.db/flights-__PLACEHOLDER__",
        "Columns": [{"Name": "col", "Type": "array<string>"}],
        "SerdeInfo": {"Parameters": {"path": path}},
    }
    there.register({"spark.sql.sources.provider": "delta"}, storage)
    assert sync_catalog(table, url).table == "updated"
    assert there.entry["StorageDescriptor"]["Location"] == f"{table.root.url}/"
    assert there.entry["StorageDescriptor"]["SerdeInfo"]["Parameters"]["path"] == path
    assert there.columns == {"delay": "double", "day": "string"}
    assert sync_catalog(table, url).table == "unchanged"


def test_delta_table_is_refused_where_spark_has_registered_another_place(
    table: DeltaTable, there: InGlue, url: str
) -> None:
    placeholder = "s3://warehouse/db.db/flights-__PLACEHOLDER__"
    serde = {"Parameters": {"path": "s3://elsewhere/flights"}}
    there.register({"table_type": "DELTA"}, {"Location": placeholder, "SerdeInfo": serde})
    with pytest.raises(InvalidInputError, match="is a table at s3://elsewhere/flights"):
        sync_catalog(table, url)


def test_delta_table_with_other_partition_columns_in_glue_is_refused(
    table: DeltaTable, there: InGlue, url: str
) -> None:
    there.register({"table_type": "DELTA"}, {"Location": table.root.url}, "month")
    with pytest.raises(InvalidInputError, match="other partition columns"):
        sync_catalog(table, url)


def test_delta_table_is_refused_where_its_place_is_registered_as_directories(
    table: DeltaTable, there: InGlue, url: str
) -> None:
    there.register({"classification": "parquet"}, {"Location": table.root.url}, "day")
    with pytest.raises(InvalidInputError, match="registered as a table of directories") as caught:
        sync_catalog(table, url)
    assert "drop that one in Glue" in str(caught.value.remedy)
    assert there.entry["Parameters"] == {"classification": "parquet"}


def test_directories_are_refused_where_their_place_is_registered_as_a_delta_table(
    there: InGlue, s3_bucket: Bucket, url: str
) -> None:
    table = Table(f"s3://{s3_bucket.name}/flights")
    with table.job(ROWS.schema, partition_by=["day"]) as job:
        job.write(ROWS)
    there.register({"table_type": "DELTA"}, {"Location": table.root.url}, "day")
    with pytest.raises(InvalidInputError, match="registered as a Delta table"):
        sync_catalog(table, url)


def test_delta_table_is_refused_where_another_place_is_registered(
    table: DeltaTable, there: InGlue, url: str
) -> None:
    there.register({"table_type": "DELTA"}, {"Location": "s3://elsewhere/flights"})
    with pytest.raises(InvalidInputError, match="is a table at s3://elsewhere/flights"):
        sync_catalog(table, url)


def test_registration_after_a_commit_is_a_warning_where_it_fails(
    table: DeltaTable, s3_bucket: Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    assert sync_after_commit(table, f"glue://{s3_bucket.name}-none/flights") is None
    assert f"zero-rename catalog sync {table.root.url}" in caplog.text


STATEMENTS = {
    "athena": (
        "CREATE EXTERNAL TABLE lake.f\nLOCATION '{t}/'\nTBLPROPERTIES ('table_type' = 'DELTA')"
    ),
    "duckdb": "CREATE OR REPLACE VIEW lake.f AS\nSELECT * FROM delta_scan('{t}/')",
    "spark": "CREATE TABLE lake.f USING DELTA LOCATION '{t}/'",
}


@pytest.mark.parametrize("engine", STATEMENTS)
def test_statement_for_a_delta_table_names_its_place_alone(table: DeltaTable, engine: str) -> None:
    wanted = STATEMENTS[engine].replace("{t}", table.root.url)
    assert ddl(describe(table), engine, "lake.f") == [wanted]


def test_trino_registers_a_delta_table_by_a_procedure(table: DeltaTable) -> None:
    (found,) = as_json("catalog", "ddl", table.root.url, "--engine", "trino")["statements"]
    assert found == (
        "CALL delta.system.register_table(schema_name => 'default', table_name => 'flights', "
        f"table_location => '{table.root.url}/')"
    )


@pytest.mark.parametrize("engine", ["hive", "redshift"])
def test_engine_without_a_reader_of_delta_logs_is_refused(table: DeltaTable, engine: str) -> None:
    with pytest.raises(InvalidInputError, match=f"{engine} has no reader") as caught:
        ddl(describe(table), engine, "lake.f")
    assert "save(load(spark" in str(caught.value.remedy)


@pytest.mark.usefixtures("s3_server")
@pytest.mark.parametrize(
    "command", ["catalog sync {t}", "recover {t} --apply", "purge {t} --apply"]
)
def test_command_registers_a_delta_table(
    table: DeltaTable, s3_bucket: Bucket, command: str
) -> None:
    glue = boto3.client("glue")
    glue.create_database(DatabaseInput={"Name": s3_bucket.name})
    words = command.replace("{t}", table.root.url).split()
    invoke(*words, "--catalog", f"glue://{s3_bucket.name}")
    assert InGlue(glue, s3_bucket).entry["Parameters"]["table_type"] == "DELTA"


class TestHive:
    """A metastore behind Spark with Delta Lake's extensions, by what its statements come to."""

    class Metastore:
        def __init__(self, facts: dict[str, str]) -> None:
            self.facts, self.sent = facts, list[str]()

        def sql(self, statement: str) -> Any:
            self.sent.append(statement)
            if statement.startswith("CREATE"):
                place = statement.rsplit(" ", 1)[1].strip("'")
                self.facts = {"Provider": "delta", "Location": place}
            shown: list[dict[str, str]] = []
            if statement.startswith("SHOW TABLES"):
                shown = [{"tableName": "flights", "isTemporary": ""}] if self.facts else []
            elif statement.startswith("DESCRIBE"):
                keys = {"# Partition Information": "", "# col_name": "data_type", "day": "string"}
                title = {"": "", "# Detailed Table Information": ""}
                rows = [{"delay": "double", "day": "string"}, keys, title, self.facts]
                shown = [{"col_name": k, "data_type": v} for it in rows for k, v in it.items()]
            return type("Answer", (), {"collect": lambda _: shown})()

    def test_delta_table_is_created_by_its_place_and_changed_no_more(
        self, table: DeltaTable
    ) -> None:
        metastore = self.Metastore({})
        assert sync_catalog(table, "hive://lake/flights", spark=metastore).table == "created"
        made = f"CREATE TABLE lake.flights USING DELTA LOCATION '{table.root.url}/'"
        assert [it for it in metastore.sent if it.startswith("CREATE")] == [made]
        load(table, ROWS.append_column("n", pa.array([1, 2])), schema_mode="merge")
        before = len(metastore.sent)
        assert sync_catalog(table, "hive://lake/flights", spark=metastore).table == "unchanged"
        assert all(it.startswith(("SHOW TABLES", "DESCRIBE")) for it in metastore.sent[before:])

    @pytest.mark.parametrize("provider", ["parquet", ""])
    def test_delta_table_is_refused_where_its_place_is_registered_otherwise(
        self, table: DeltaTable, provider: str
    ) -> None:
        metastore = self.Metastore({"Provider": provider, "Location": table.root.url})
        with pytest.raises(InvalidInputError, match="read by folders"):
            sync_catalog(table, "hive://lake/flights", spark=metastore)
