"""Requests of jobs in a Delta table, exactly."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from conftest import Bucket

from support.another_process import begin_process
from zero_rename.committer import Owner
from zero_rename.tables import DeltaTable

pytestmark = [pytest.mark.memory_s3]


def days(count: int) -> pa.Table:
    return pa.table({"day": [f"{it:03}" for it in range(count)], "delay": pa.array(range(count))})


def requests_of(bucket: Bucket, count: int, **options: Any) -> dict[str, int]:
    """The requests of a job that writes so many partitions of a table, in a process of its own."""
    url = f"s3://{bucket.name}/flights"
    first: dict[str, Any] = {"partition_by": ["day"]}
    for data, words in ((days(1), first), (days(count), options)):
        begin_process()
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
    task = Owner(dag_id="d", run_id="r", task_id="t")
    found = requests_of(s3_bucket, 1, idempotency_key="run", owner=task)
    assert found == {**OPENED, "PutObject": 5, "DeleteObject": 1}


def test_a_run_without_a_scheduler_lists_the_open_jobs_besides(s3_bucket: Bucket) -> None:
    found = requests_of(s3_bucket, 1, idempotency_key="run")
    assert found == {"GetObject": 2, "ListObjects": 2, "PutObject": 5, "DeleteObject": 1}


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_further_job_of_a_process_opens_the_log_by_a_listing(s3_bucket: Bucket, mode: str) -> None:
    requests_of(s3_bucket, 3)
    s3_bucket.counter.reset()
    with DeltaTable(f"s3://{s3_bucket.name}/flights").job(days(1).schema, mode=mode) as job:
        job.write(days(1))
    assert s3_bucket.counter.counts() == {"ListObjects": 1, "PutObject": 4, "DeleteObject": 1}


class TestPublishing:
    def test_leaving_a_job_takes_a_request_fewer_than_committing_it(
        self, s3_bucket: Bucket
    ) -> None:
        # Open record, file, the job's record; the open record stays.
        assert requests_of(s3_bucket, 1, publish=False) == {**OPENED, "PutObject": 3}

    @pytest.mark.parametrize("count", [1, 365])
    def test_publishing_takes_the_same_whatever_the_files(
        self, s3_bucket: Bucket, count: int
    ) -> None:
        # Its two records, hint, checksum file, an entry as young as the job; its entry and checksum
        # file; its two records go.
        found = publishing(s3_bucket, count)
        assert found == {"GetObject": 5, "ListObjects": 2, "PutObject": 2, "DeleteObject": 2}

    def test_second_publication_writes_nothing(self, s3_bucket: Bucket) -> None:
        assert publishing(s3_bucket, 1, times=2) == {"GetObject": 6, "ListObjects": 2}


def publishing(bucket: Bucket, count: int, times: int = 1) -> dict[str, int]:
    """The requests of the last of some publications of a job, in a process of its own."""
    requests_of(bucket, count, publish=False)
    table = DeltaTable(f"s3://{bucket.name}/flights")
    (job,) = [it.job for it in table.unpublished()]
    for _ in range(times):
        begin_process()
        bucket.counter.reset()
        DeltaTable(table.root.url).publish(job)
    return bucket.counter.counts()
