"""docs/catalogs.md: its examples run as they stand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest
from conftest import Bucket

from zero_rename import Table

PAGE = Path(__file__).resolve().parent.parent / "docs/catalogs.md"
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


def test_python_examples_run(table: Table, capsys: pytest.CaptureFixture[str]) -> None:
    boto3.client("glue").create_database(DatabaseInput={"Name": "database"})
    names: dict[str, Any] = {}
    found = examples("python")
    assert found
    for example in found:
        exec(example.replace("s3://bucket/flights", table.root.url), names)
    assert names["late"].count() == 2
    assert capsys.readouterr().out.split() == ["1", "1"]
