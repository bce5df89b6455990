"""The table at a root, found by its record, its log or its files, in exactly so many requests."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import Bucket

from support.another_process import begin_process
from support.log_tables import COLUMNS
from zero_rename import Table
from zero_rename.committer.errors import InvalidInputError, TableNotFoundError
from zero_rename.log.actions import CommitInfo, LogProtocol, write_actions
from zero_rename.tables import DeltaTable
from zero_rename.tables.table_at_root import TableAtRoot, find_at_root, open_at_root

pytestmark = [pytest.mark.memory_s3]
ROWS = pa.table({"day": ["1", "2"], "delay": [5, 6]})


@pytest.fixture
def url(s3_bucket: Bucket) -> str:
    return f"s3://{s3_bucket.name}/lake/flights"


def write(table: Table | DeltaTable, **options: Any) -> None:
    with table.job(ROWS.schema, partition_by=["day"], **options) as job:
        job.write(ROWS)


def requests_of(bucket: Bucket, read: Callable[[], object]) -> dict[str, int]:
    bucket.counter.reset()
    read()
    return bucket.counter.counts()


def test_delta_table_is_found_and_its_state_read_in_four_requests(
    s3_bucket: Bucket, url: str
) -> None:
    write(DeltaTable(url))
    begin_process()
    found: list[TableAtRoot] = []
    # Where a table of directories has its record, the hint, and the checksum file; the log's list.
    asked = requests_of(s3_bucket, lambda: found.append(open_at_root(url)))
    assert asked == {"GetObject": 3, "ListObjects": 1}
    assert requests_of(s3_bucket, lambda: found[0].snapshot(["day=1"])) == {}
    assert isinstance(found[0].table, DeltaTable)
    assert (found[0].schema.names, found[0].partition_by) == (["day", "delay"], ("day",))
    assert [file.partition for file in found[0].snapshot().files] == ["day=1", "day=2"]


def test_delta_table_that_was_found_before_is_found_by_a_listing(
    s3_bucket: Bucket, url: str
) -> None:
    write(DeltaTable(url))
    assert requests_of(s3_bucket, lambda: open_at_root(url)) == {"ListObjects": 1}


def test_table_of_directories_in_the_place_of_a_delta_table_is_found(
    s3_bucket: Bucket, url: str
) -> None:
    write(DeltaTable(url))
    keys = s3_bucket.keys()
    gone = [{"Key": key} for key in keys]
    s3_bucket.client.delete_objects(Bucket=s3_bucket.name, Delete={"Objects": gone})
    write(Table(url))
    assert isinstance(open_at_root(url).table, Table)


def test_delta_table_that_has_grown_still_shows_the_state_that_was_found(url: str) -> None:
    write(DeltaTable(url))
    found = open_at_root(url)
    write(DeltaTable(url))
    assert len(found.snapshot().files) == 2
    assert len(open_at_root(url).snapshot().files) == 4


def test_delta_table_found_without_its_files_reads_its_state_anew(url: str) -> None:
    write(DeltaTable(url))
    found = find_at_root(url)
    write(DeltaTable(url))
    assert len(found.snapshot().files) == 4


def test_table_of_directories_is_found_by_one_request(s3_bucket: Bucket, url: str) -> None:
    write(Table(url))
    found: list[TableAtRoot] = []
    asked = requests_of(s3_bucket, lambda: found.append(open_at_root(url)))
    assert asked == {"GetObject": 1}
    assert isinstance(found[0].table, Table)
    assert (found[0].schema.names, found[0].partition_by) == (["day", "delay"], ("day",))


def test_files_of_another_program_are_found_as_a_table(s3_bucket: Bucket, url: str) -> None:
    body = BytesIO()
    pq.write_table(ROWS.select(["delay"]), body)
    key = "lake/flights/day=1/a.parquet"
    s3_bucket.client.put_object(Bucket=s3_bucket.name, Key=key, Body=body.getvalue())
    found = open_at_root(url)
    assert isinstance(found.table, Table)
    assert [file.key for file in found.snapshot().files] == [key]


def test_table_of_directories_is_found_though_another_engines_log_was_seen_beside_it(
    s3_bucket: Bucket, url: str
) -> None:
    write(Table(url))
    key = "lake/flights/_delta_log/00000000000000000000.json"
    body = write_actions([CommitInfo({"operation": "CONVERT"}), LogProtocol(), COLUMNS])
    s3_bucket.client.put_object(Bucket=s3_bucket.name, Key=key, Body=body)
    assert isinstance(open_at_root(url).table, Table)
    assert DeltaTable(url).exists()
    assert isinstance(open_at_root(url).table, Table)


def test_empty_root_is_no_table(url: str) -> None:
    with pytest.raises(TableNotFoundError):
        open_at_root(url)


def test_delta_log_in_a_partition_of_another_table_is_refused(s3_bucket: Bucket, url: str) -> None:
    write(Table(url))
    write(DeltaTable(f"s3://{s3_bucket.name}/lake/other"))
    for key in s3_bucket.keys("lake/other/"):
        there = key.replace("lake/other/", "lake/flights/day=3/")
        source = {"Bucket": s3_bucket.name, "Key": key}
        s3_bucket.client.copy_object(Bucket=s3_bucket.name, Key=there, CopySource=source)
    with pytest.raises(InvalidInputError, match="is a partition of the table"):
        open_at_root(f"{url}/day=3")
