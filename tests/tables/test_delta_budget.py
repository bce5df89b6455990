"""Requests of jobs in a Delta table, exactly."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from conftest import Bucket

from zero_rename.tables import DeltaTable

pytestmark = [pytest.mark.memory_s3]


def days(count: int) -> pa.Table:
    return pa.table({"day": [f"{it:03}" for it in range(count)], "delay": pa.array(range(count))})


def requests_of(bucket: Bucket, count: int, **options: Any) -> dict[str, int]:
    """The requests of a job that writes so many partitions of a table, in a process of its own."""
    url = f"s3://{bucket.name}/flights"
    first: dict[str, Any] = {"partition_by": ["day"]}
    for data, words in ((days(1), first), (days(count), options)):
        bucket.counter.reset()
        with DeltaTable(url).job(data.schema, **words) as job:
            job.write(data)
    return bucket.counter.counts()


OPENED = {"GetObject": 2, "ListObjects": 1}


def test_an_append_of_a_file_takes_eight_requests(s3_bucket: Bucket) -> None:
    # Open record, file, entry, checksum file; the record goes.
    assert requests_of(s3_bucket, 1) == {**OPENED, "PutObject": 4, "DeleteObject": 1}


def test_each_further_file_takes_one(s3_bucket: Bucket) -> None:
    found = requests_of(s3_bucket, 365, mode="overwrite")
    assert found == {**OPENED, "PutObject": 368, "DeleteObject": 1}


def test_a_run_writes_its_report_besides(s3_bucket: Bucket) -> None:
    found = requests_of(s3_bucket, 1, idempotency_key="run")
    assert found == {**OPENED, "PutObject": 5, "DeleteObject": 1}
