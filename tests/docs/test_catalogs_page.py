"""docs/catalogs.md: its examples run as they stand."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from conftest import Bucket
from typer.testing import CliRunner

from zero_rename import Table
from zero_rename.cli import app

pytestmark = pytest.mark.memory_s3

PAGE = Path(__file__).resolve().parents[2] / "docs/catalogs.md"
FLIGHTS = pa.table(
    {
        "day": ["2013-01-01", "2013-01-01", "2013-01-02"],
        "carrier": ["UA", "AA", "B6"],
        "delay": [20.0, None, 70.0],
    }
)


def examples(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)


@pytest.fixture
def table(s3_bucket: Bucket) -> Table:
    table = Table(f"s3://{s3_bucket.name}/flights")
    with table.job(FLIGHTS.schema, partition_by=["day"]) as job:
        job.write(FLIGHTS)
    return table


@pytest.fixture
def glue(glue_client: Any) -> Iterator[Any]:
    glue_client.create_database(DatabaseInput={"Name": "database"})
    yield glue_client
    glue_client.delete_database(Name="database")


def test_python_examples_run(table: Table, glue: Any, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    found = examples("python")
    assert found
    for example in found:
        exec(example.replace("s3://bucket/flights", table.root.url), names)
    assert names["late"].count() == 2
    assert capsys.readouterr().out.split() == ["1", "1"]


def test_commands_run(table: Table, glue: Any, s3_bucket: Bucket) -> None:
    """In their order, on one table: from here on it keeps symlink manifests, and Glue knows it."""
    lines = [line for block in examples("console") for line in block.splitlines()]
    commands = [line.removeprefix("$ zero-rename ") for line in lines if line.startswith("$ ")]
    assert len(commands) >= 8
    for command in commands:
        words = shlex.split(command.replace("s3://bucket/flights", table.root.url), comments=True)
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, f"{command}: {done.output}"
    there = glue.get_table(DatabaseName="database", Name="flights")["Table"]
    location = there["StorageDescriptor"]["Location"].removeprefix(f"s3://{s3_bucket.name}/")
    (list_of_files,) = s3_bucket.keys(f"{location}day=2013-01-01/")
    (file,) = (file for file in table.files() if file.partition == "day=2013-01-01")
    assert s3_bucket.read(list_of_files).decode() == f"s3://{s3_bucket.name}/{file.key}\n"
