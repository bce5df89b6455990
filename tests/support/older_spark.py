"""Fixtures for a run of tests on another PySpark than the checkout's, in its own environment.

A plugin for pytest, which finds nothing else there: ``-p support.older_spark``. The S3 server is
the environment's.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.plain_bucket import PlainBucket

_numbers = itertools.count(1)


@pytest.fixture
def s3_bucket() -> PlainBucket:
    import boto3

    client = boto3.client("s3")
    name = f"older-{os.getpid()}-{next(_numbers)}"
    client.create_bucket(Bucket=name)
    return PlainBucket(name, client)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session as that of ``support.spark``; one of Spark Connect, with a server of its own, where
    ``SPARK_TESTS_REMOTE`` names its master."""
    from pyspark.sql import SparkSession

    folder: Path = tmp_path_factory.mktemp("spark")
    remote = os.environ.get("SPARK_TESTS_REMOTE")
    builder = SparkSession.builder.appName("tests")
    builder = builder.remote(remote) if remote else builder.master("local[2,3]")
    given: dict[str, Any] = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "America/New_York",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmn600m",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder),
        "spark.python.daemon.module": "support.preloaded_daemon",
    }
    session = builder.config(map=given).getOrCreate()
    if not remote:
        session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
