"""Commits of this package beside those of Delta on Spark with the conditional log store, at once,
on a store on which writers may race. Of ``make delta-spark``."""

from __future__ import annotations

import os
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from torture.servers import Store

from support.delta_spark import delta_spark
from support.delta_values import days
from support.log_store import jar_of, settings_with
from support.moto_server import S3Server
from zero_rename.tables import DeltaTable

pytestmark = pytest.mark.skipif(not os.environ.get("DELTA_SPARK"), reason="of make delta-spark")
THEIRS, OURS = 15, 60


def test_commits_beside_sparks_are_neither_lost_nor_doubled(
    atomic_store: Store, wheel: Path, tmp_path: Path
) -> None:
    bucket = f"beside-{uuid.uuid4().hex}"
    client = atomic_store.client()
    client.create_bucket(Bucket=bucket)
    url = f"s3://{bucket}/flights"
    table = DeltaTable(url, client)
    with table.job(days(("ours", -1)).schema, partition_by=["day"]) as job:
        job.write(days(("first", -1)))

    def commit() -> None:
        for number in range(OURS):
            with DeltaTable(url, client).job() as job:
                job.write(days(("ours", number)))

    keys = atomic_store.variables
    settings = {
        **settings_with(jar_of(wheel, tmp_path)),
        "spark.hadoop.fs.s3a.access.key": keys["AWS_ACCESS_KEY_ID"],
        "spark.hadoop.fs.s3a.secret.key": keys["AWS_SECRET_ACCESS_KEY"],
    }
    server = S3Server(atomic_store.endpoint)
    with delta_spark(tmp_path, server, settings) as spark, ThreadPoolExecutor(1) as pool:
        folder = url.replace("s3:", "s3a:")
        assert spark.ask(do="appends", folder=folder, numbers=[-2]) == [-2]  # It is warm now.
        ours = pool.submit(commit)
        told = spark.ask(do="appends", folder=folder, numbers=list(range(THEIRS)))
        ours.result()
    assert told == list(range(THEIRS))
    expected = [("first", -1), ("spark", -2), *(("spark", it) for it in told)]
    expected += [("ours", number) for number in range(OURS)]
    found = [
        tuple(row.values()) for row in table.scan(columns=["day", "delay"]).to_arrow().to_pylist()
    ]
    assert sorted(found) == sorted(expected)
    assert table.verify() == []
    versions = [it.version for it in table.history()]
    assert versions == list(range(OURS + THEIRS + 1, -1, -1))
