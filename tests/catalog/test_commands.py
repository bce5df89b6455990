"""The commands of `zero-rename catalog` and `zero-rename compact`, on moto."""

from __future__ import annotations

import json
from typing import Any

import boto3
import pyarrow as pa
import pytest
from conftest import Bucket
from typer.testing import CliRunner, Result

from support.day_rows import load_rows
from zero_rename import Table
from zero_rename.catalog.glue import GlueCatalog
from zero_rename.cli import app
from zero_rename.cli.output import Exit

pytestmark = pytest.mark.memory_s3

ROWS = pa.table({"value": [1, 2], "day": ["a", "b"]})


@pytest.fixture
def table(s3_bucket: Bucket) -> Table:
    table = Table(f"s3://{s3_bucket.name}/sales")
    load_rows(table, ROWS)
    return table


def invoke(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == code, result.output
    return result


@pytest.mark.parametrize("engine", ["athena", "hive", "spark", "redshift", "duckdb", "trino"])
def test_ddl(table: Table, engine: str) -> None:
    output = invoke("catalog", "ddl", table.root.url, "--engine", engine).output
    assert "CREATE" in output
    assert table.root.url in output


@pytest.mark.parametrize(
    ("engine", "named"),
    [
        ("athena", "flights_2013 ("),
        ("duckdb", "flights_2013 AS"),
        ("trino", "hive.default.flights_2013 ("),
    ],
)
def test_statement_calls_a_table_as_a_registration_does(
    s3_bucket: Bucket, engine: str, named: str
) -> None:
    table = Table(f"s3://{s3_bucket.name}/flights-2013")
    load_rows(table, ROWS)
    assert named in invoke("catalog", "ddl", table.root.url, "--engine", engine).output


@pytest.mark.parametrize("value", ["red\x1b[31m", "title\x1b]0;t\x07", "turned\u202e"])
def test_control_characters_of_a_partition_do_not_reach_the_terminal(
    table: Table, value: str
) -> None:
    load_rows(table, pa.table({"value": [3], "day": [value]}))
    said = invoke("catalog", "ddl", table.root.url, "--engine", "hive", code=2)
    assert value not in said.output
    assert "Nothing was printed" in said.output
    told = invoke("catalog", "ddl", table.root.url, "--engine", "hive", "--json").stdout
    assert any(f"='{value}'" in it for it in json.loads(told)["statements"])
    assert value not in told


def test_letters_beyond_ascii_are_printed_as_they_are(table: Table) -> None:
    load_rows(table, pa.table({"value": [3], "day": ["Zürich\u200d👍"]}))
    said = invoke("catalog", "ddl", table.root.url, "--engine", "hive")
    assert "`day`='Zürich\u200d👍'" in said.stdout


@pytest.mark.usefixtures("s3_server")
def test_sync(table: Table, s3_bucket: Bucket) -> None:
    boto3.client("glue").create_database(DatabaseInput={"Name": s3_bucket.name})
    url = f"glue://{s3_bucket.name}/sales"
    output = invoke("catalog", "sync", table.root.url, "--catalog", url, "--json").output
    assert json.loads(output)["added"] == 2
    refused = invoke("catalog", "sync", table.root.url, "--catalog", "hive://a/b", code=2)
    assert "spark=spark" in refused.output


@pytest.mark.usefixtures("s3_server")
def test_registration_that_was_done_in_part_is_not_called_refused(
    table: Table, s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    glue = boto3.client("glue")
    glue.create_database(DatabaseInput={"Name": s3_bucket.name})

    def fails(self: GlueCatalog, *_: Any) -> None:
        raise self.unsynced("ThrottlingException")

    monkeypatch.setattr(GlueCatalog, "_tell_partitions", fails)
    url = f"glue://{s3_bucket.name}/sales"
    said = invoke("catalog", "sync", table.root.url, "--catalog", url, code=Exit.UNKNOWN)
    assert "Repeat it" in said.output
    assert len(glue.get_tables(DatabaseName=s3_bucket.name)["TableList"]) == 1


def test_compact(table: Table) -> None:
    load_rows(table, ROWS)
    dry = invoke("compact", table.root.url)
    assert "--apply" in dry.output
    assert len(table.files()) == 4
    arguments = ("compact", table.root.url, "--partition", "day=a", "--apply", "--json")
    found: list[Any] = json.loads(invoke(*arguments).output)
    assert [(one["action"], one["files"], one["files_after"]) for one in found] == [
        ("compacted", 2, 1)
    ]
    assert len(table.files("day=b")) == 2
    assert (
        "there is nothing to compact"
        in invoke("compact", table.root.url, "--partition", "day=a").output
    )


@pytest.mark.parametrize("size", ["0", "x", "1X", "-5M"])
def test_what_is_no_size(table: Table, size: str) -> None:
    invoke("compact", table.root.url, "--target-size", size, code=2)


@pytest.mark.usefixtures("s3_server")
@pytest.mark.parametrize("command", ["recover", "purge"])
def test_who_settles_jobs_registers_the_table(
    table: Table, s3_bucket: Bucket, command: str
) -> None:
    """What a load could not register, or did not live to."""
    glue = boto3.client("glue")
    catalog = f"glue://{s3_bucket.name}/sales"
    url = table.root.url
    failed = invoke(command, url, "--catalog", catalog, "--apply", code=1)
    assert "Jobs are recovered" in failed.output
    assert "no database" in failed.output
    glue.create_database(DatabaseInput={"Name": s3_bucket.name})
    invoke(command, url, "--catalog", catalog)
    assert glue.get_tables(DatabaseName=s3_bucket.name)["TableList"] == []
    done = invoke(command, url, "--catalog", catalog, "--apply")
    assert f"{catalog}: created; partitions: 2 added" in done.output
    found = glue.get_partitions(DatabaseName=s3_bucket.name, TableName="sales")["Partitions"]
    assert len(found) == 2


@pytest.mark.usefixtures("s3_server")
def test_purge_of_a_folder_registers_no_table_under_the_name_of_another(
    table: Table, s3_bucket: Bucket
) -> None:
    load_rows(Table(f"s3://{s3_bucket.name}/airports"), ROWS)
    glue = boto3.client("glue")
    glue.create_database(DatabaseInput={"Name": s3_bucket.name})
    folder, catalog = f"s3://{s3_bucket.name}", f"glue://{s3_bucket.name}"
    said = invoke("purge", folder, "--catalog", f"{catalog}/sales", "--apply", code=2)
    assert "is one table's, and 2 tables would be registered there" in said.output
    assert glue.get_tables(DatabaseName=s3_bucket.name)["TableList"] == []
    invoke("purge", folder, "--catalog", f"{catalog}/", "--apply")
    names = [it["Name"] for it in glue.get_tables(DatabaseName=s3_bucket.name)["TableList"]]
    assert sorted(names) == ["airports", "sales"]
