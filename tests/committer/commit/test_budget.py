"""Requests at the wire, against the budget of the protocol: 3N + 6P + 8 for N files in P
partitions, 15 for one file appended to an unpartitioned table."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from zero_rename import FileOptions, Table


def load(table: Table, partitions: int, files: int, **policy: Any) -> None:
    """One job with ``files`` files in each of ``partitions`` partitions."""
    days = [day for day in range(partitions) for _ in range(files)]
    data = pa.table({"value": range(len(days)), "day": days})
    columns = ("day",) if partitions else ()
    options: dict[str, Any] = {"files": FileOptions(rows_per_file=1), **policy}
    with table.job(data.schema, partition_by=columns, **options) as job:
        job.write(data)


def allowed(files: int, partitions: int) -> int:
    return 3 * files + 6 * partitions + 8


@pytest.fixture
def table(s3_bucket: Any) -> Table:
    return Table(f"s3://{s3_bucket.name}/flights")


def test_one_file_appended_to_an_unpartitioned_table(table: Table, s3_bucket: Any) -> None:
    data = pa.table({"value": [1]})
    for _ in range(2):
        s3_bucket.counter.reset()
        with table.job(data.schema) as job:
            job.write(data)
    assert s3_bucket.counter.total() <= 15, s3_bucket.counter.log()


@pytest.mark.parametrize(("partitions", "files"), [(1, 1), (3, 2), (10, 1)])
def test_an_append(table: Table, s3_bucket: Any, partitions: int, files: int) -> None:
    load(table, partitions, files)
    s3_bucket.counter.reset()
    load(table, partitions, files)
    assert s3_bucket.counter.total() <= allowed(files * partitions, partitions)


def test_a_replace_adds_a_listing_a_partition_and_a_delete_per_thousand_files(
    table: Table, s3_bucket: Any
) -> None:
    load(table, 3, 2)
    s3_bucket.counter.reset()
    load(table, 3, 2, mode="replace")
    counts = s3_bucket.counter.counts()
    assert s3_bucket.counter.total() <= allowed(6, 3) + 3 + 3
    assert counts["DeleteObjects"] == 3


def test_a_once_key_adds_four(table: Table, s3_bucket: Any) -> None:
    load(table, 2, 1, idempotency_key="run 1")
    s3_bucket.counter.reset()
    load(table, 2, 1, idempotency_key="run 2")
    assert s3_bucket.counter.total() <= allowed(2, 2) + 4


def test_adopting_adds_a_listing_a_new_partition(table: Table, s3_bucket: Any) -> None:
    load(table, 1, 1)
    s3_bucket.counter.reset()
    load(table, 3, 1)
    assert s3_bucket.counter.total() <= allowed(3, 3) + 2


def test_reading_takes_the_heads_twice_and_each_head_decision_and_file_once(
    table: Table, s3_bucket: Any
) -> None:
    load(table, 3, 1)
    s3_bucket.counter.reset()
    assert table.to_arrow().num_rows == 3
    # The third listing is of the directories, for heads that are lost: a table with an index needs
    # none.
    assert s3_bucket.counter.counts() == {"ListObjects": 3, "GetObject": 1 + 3 + 1 + 3}
    table.write_index()
    s3_bucket.counter.reset()
    assert table.to_arrow().num_rows == 3
    assert s3_bucket.counter.counts() == {"ListObjects": 2, "GetObject": 1 + 2 + 3}
