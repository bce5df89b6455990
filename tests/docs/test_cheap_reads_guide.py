"""The guide *Make reads cheap*: its commands and its code do what it says, as they stand."""

from __future__ import annotations

import random
import re
import shlex
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from conftest import Bucket
from typer.testing import CliRunner

from support.doc_examples import examples
from zero_rename import Table
from zero_rename.cli import app

pytestmark = pytest.mark.memory_s3

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "cheap-reads.md"
URL = "s3://bucket/flights"
ROWS = 4_000


@pytest.fixture
def table(s3_bucket: Bucket) -> Table:
    """Four files, in each of which stands any flight."""
    table = Table(f"s3://{s3_bucket.name}/flights")
    numbers = list(range(ROWS))
    random.Random(1).shuffle(numbers)
    for place in range(4):
        rows = pa.table({"flight_id": numbers[place::4]})
        with table.job(rows.schema) as job:
            job.write(rows)
    return table


def opened(table: Table) -> int:
    """Files that a reader of the page's condition opens."""
    return len(table.scan(filter=pc.field("flight_id") < 1000).files)


def run(name: str, table: Table) -> None:
    exec(examples(PAGE)[name].replace(URL, table.root.url), {})


def command(line: str, table: Table) -> str:
    words = shlex.split(line.replace(URL, table.root.url), comments=True)
    assert words[:2] == ["$", "zero-rename"]
    done = CliRunner().invoke(app, words[2:])
    assert done.exit_code == 0, done.output
    return done.output


def test_its_commands_sort_what_is_there(table: Table) -> None:
    asks, does = re.findall(r"^\$ .*$", PAGE.read_text("utf-8"), re.M)
    run("read", table)
    assert opened(table) == 4
    command(asks, table)
    assert opened(table) == 4
    command(does, table)
    assert opened(table) == 1
    assert table.to_arrow()["flight_id"].to_pylist() == list(range(ROWS))


def test_its_code_sorts_as_well(table: Table) -> None:
    run("sort", table)
    assert table.to_arrow()["flight_id"].to_pylist() == list(range(ROWS))
