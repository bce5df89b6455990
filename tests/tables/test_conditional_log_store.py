"""Delta on Spark with the conditional log store, beside this package. Of ``make delta-spark``."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from conftest import Behind, Bucket

from support.delta_spark import delta_spark as session_of_spark
from support.delta_values import days
from support.engine_process import EngineProcess
from support.faulty_server import Received, Reply, s3_error
from support.log_store import jar_of, settings_with
from support.moto_server import S3Server
from zero_rename.tables import DeltaTable

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not os.environ.get("DELTA_SPARK"), reason="of make delta-spark"),
]
_ENTRY = re.compile(r"/_delta_log/\d{20}\.json$")
Answer = Callable[[Received, Callable[[], Reply]], Reply]


@pytest.fixture(scope="module")
def spark(
    moto_server: S3Server, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EngineProcess]:
    folder = tmp_path_factory.mktemp("log-store")
    settings = {
        **settings_with(jar_of(wheel, folder)),
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
    }
    with session_of_spark(folder, moto_server, settings) as process:
        yield process


def write(url: str, delay: int) -> None:
    with DeltaTable(url).job(days(("1", delay)).schema) as job:
        job.write(days(("1", delay)))


def delays(url: str) -> list[int]:
    return sorted(DeltaTable(url).scan().to_arrow()["delay"].to_pylist())


@pytest.fixture
def url(s3_bucket: Bucket) -> str:
    url = f"s3://{s3_bucket.name}/flights"
    write(url, 5)
    return url


@pytest.fixture(params=["s3a", "s3"])
def append(
    url: str, s3_bucket: Bucket, behind: Behind, spark: EngineProcess, request: Any
) -> Callable[[Answer], list[str]]:
    """Lets Spark append a row, its first entry's PUT answered by a function; returns the
    If-None-Match of each."""

    def append(first: Answer) -> list[str]:
        conditions: list[str] = []

        def answer(got: Received, pass_on: Callable[[], Reply]) -> Reply:
            if got.method != "PUT" or not _ENTRY.search(urlsplit(got.path).path):
                return pass_on()
            conditions.append(got.headers.get("if-none-match", ""))
            return first(got, pass_on) if len(conditions) == 1 else pass_on()

        name = f"fs.s3a.bucket.{s3_bucket.name}.endpoint"
        spark.ask(do="setting", name=name, value=behind(answer).endpoint)
        spark.ask(
            do="write",
            folder=url.replace("s3:", f"{request.param}:"),
            rows=[["1", 7]],
            columns="day string, delay bigint",
            mode="append",
            options={},
        )
        return conditions

    return append


def test_entry_that_came_before_sparks_stays_and_spark_commits_after_it(
    url: str, append: Callable[[Answer], list[str]]
) -> None:
    def meanwhile(_: Received, pass_on: Callable[[], Reply]) -> Reply:
        write(url, 6)
        return pass_on()

    conditions = append(meanwhile)
    assert set(conditions) == {"*"}
    assert len(conditions) >= 2  # S3A may ask for the first number again.
    assert delays(url) == [5, 6, 7]
    assert DeltaTable(url).verify() == []
    assert [it.version for it in DeltaTable(url).history()] == [2, 1, 0]


def test_entry_whose_answer_was_lost_is_committed_once(
    url: str, append: Callable[[Answer], list[str]]
) -> None:
    def lost(_: Received, pass_on: Callable[[], Reply]) -> Reply:
        pass_on()
        return s3_error(500, "InternalError")

    assert len(append(lost)) >= 2  # S3A asks again, and is told that the entry is there.
    assert delays(url) == [5, 7]
    assert [it.version for it in DeltaTable(url).history()] == [1, 0]
