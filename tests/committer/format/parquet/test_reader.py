"""Reading data files: own ones exactly, foreign ones by name, and never something else."""

from __future__ import annotations

import datetime as dt
import hashlib
import io
import os
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import Bucket

from support.arrow_data import COLUMNS, rows_of, table_of
from zero_rename.committer.errors import (
    DamagedError,
    InvalidInputError,
    SnapshotGoneError,
    TableMismatchError,
)
from zero_rename.committer.format.layout import UNPARTITIONED
from zero_rename.committer.format.parquet import reader as parquet_reader
from zero_rename.committer.format.parquet.reader import read_batches
from zero_rename.committer.format.records.data_file import DataFile
from zero_rename.committer.store import range_reader
from zero_rename.committer.store.clients import S3Clients
from zero_rename.committer.store.driver import BotoDriver, connect

pytestmark = pytest.mark.memory_s3

KEY = "t/part.parquet"


@pytest.fixture
def ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small numbers, so that small files are read by ranges."""
    monkeypatch.setattr(parquet_reader, "_SMALL", 0)
    monkeypatch.setattr(parquet_reader, "_WHOLE", 0)
    monkeypatch.setattr(range_reader, "_TAIL", 1000)
    monkeypatch.setattr(range_reader, "_GAP", 100)
    monkeypatch.setattr(range_reader, "_LARGEST", 3000)


@pytest.fixture(params=["whole", "by ranges"])
def either_way(request: pytest.FixtureRequest) -> None:
    """Small files as they are read, and as large ones are."""
    if request.param == "by ranges":
        request.getfixturevalue("ranges")


def put(bucket: Bucket, table: pa.Table, foreign: bool = False, **more: Any) -> DataFile:
    buffer = io.BytesIO()
    partition = more.pop("partition", UNPARTITIONED)
    pq.write_table(table, buffer, **more)
    body = buffer.getvalue()
    bucket.put(KEY, body)
    if foreign:
        return DataFile(KEY, partition, len(body), -1, "", "")
    digest = hashlib.sha256(body).hexdigest()
    return DataFile(KEY, partition, len(body), table.num_rows, f"sha256:{digest}", "zr1-x")


def read(
    bucket: Bucket, schema: pa.Schema, file: DataFile, *partition_by: str, **more: Any
) -> pa.Table:
    batches = list(read_batches(connect(bucket.name), schema, partition_by, file, **more))
    return pa.Table.from_batches(batches, batches[0].schema if batches else None)


def several(rows: int = 5000) -> pa.Table:
    texts = [os.urandom(20).hex() for _ in range(rows)]
    numbers = list(range(rows))
    return pa.table(
        {"a": numbers, "b": texts, "s": [{"x": n, "y": str(n)} for n in numbers], "c": numbers}
    )


@pytest.mark.usefixtures("either_way")
def test_every_type_reads_back(s3_bucket: Bucket) -> None:
    table = table_of(COLUMNS)
    found = read(s3_bucket, table.schema, put(s3_bucket, table))
    assert found.schema.equals(table.schema)
    assert rows_of(found) == rows_of(table)


def test_a_small_file_is_one_request(s3_bucket: Bucket) -> None:
    file = put(s3_bucket, several())
    s3_bucket.counter.reset()
    read(s3_bucket, several(1).schema, file, columns=["b"])
    assert sum(s3_bucket.counter.counts().values()) == 1


@pytest.mark.usefixtures("ranges")
@pytest.mark.parametrize("columns", [None, ["s"], ["c", "a"], ["b"]])
def test_ranges_read_the_same(s3_bucket: Bucket, columns: list[str] | None) -> None:
    table = several()
    file = put(s3_bucket, table, row_group_size=1000)
    found = read(s3_bucket, table.schema, file, columns=columns, batch_rows=300)
    assert found.equals(table if columns is None else table.select(columns))


@pytest.mark.usefixtures("ranges")
def test_ranges_fetch_only_what_is_wanted(s3_bucket: Bucket) -> None:
    table = several()
    file = put(s3_bucket, table, row_group_size=1000, compression="none")
    asked: list[Any] = []
    driver = BotoDriver(s3_bucket.name, S3Clients.from_environment(), observe=asked.append)
    list(read_batches(driver, table.schema, (), file, ["a"]))
    fetched = [request.part.last + 1 - request.part.first for request in asked]
    footer = 1000 + 65_536  # the tail, and what pyarrow reads of the end of a file
    assert sum(fetched) - footer < file.size / 4


def test_partition_columns_come_from_the_path(s3_bucket: Bucket) -> None:
    schema = pa.schema([("day", pa.date32()), ("v", pa.int64()), ("n", pa.string())])
    file = put(
        s3_bucket, pa.table({"v": [1, 2]}), partition="day=2013-01-02/n=__HIVE_DEFAULT_PARTITION__"
    )
    found = read(s3_bucket, schema, file, "day", "n")
    assert found.schema.equals(schema)
    assert found.to_pylist() == [{"day": dt.date(2013, 1, 2), "v": v, "n": None} for v in (1, 2)]
    only = read(s3_bucket, schema, file, "day", "n", columns=["day"], batch_rows=1)
    assert only.column("day").to_pylist() == [dt.date(2013, 1, 2)] * 2


def test_no_columns_still_count_rows(s3_bucket: Bucket, driver: BotoDriver) -> None:
    file = put(s3_bucket, pa.table({"v": [1, 2, 3]}))
    driver = connect(s3_bucket.name)
    batches = list(read_batches(driver, pa.schema([("v", pa.int64())]), (), file, columns=[]))
    assert sum(batch.num_rows for batch in batches) == 3


@pytest.mark.parametrize("columns", [["x"], ["v", "v"]])
def test_unknown_columns_are_refused(s3_bucket: Bucket, columns: list[str]) -> None:
    file = put(s3_bucket, pa.table({"v": [1]}))
    with pytest.raises(InvalidInputError):
        read(s3_bucket, pa.schema([("v", pa.int64())]), file, columns=columns)


@pytest.mark.usefixtures("either_way")
def test_a_removed_file_is_a_gone_snapshot(s3_bucket: Bucket) -> None:
    file = put(s3_bucket, several())
    s3_bucket.client.delete_object(Bucket=s3_bucket.name, Key=KEY)
    with pytest.raises(SnapshotGoneError, match=KEY):
        read(s3_bucket, several(1).schema, file)


@pytest.mark.usefixtures("ranges")
def test_a_file_replaced_while_it_is_read_is_a_gone_snapshot(s3_bucket: Bucket) -> None:
    table = several()
    file = put(s3_bucket, table, row_group_size=1000)
    batches = read_batches(connect(s3_bucket.name), table.schema, (), file)
    next(batches)
    s3_bucket.put(KEY, os.urandom(file.size))
    with pytest.raises(SnapshotGoneError, match=KEY):
        list(batches)


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("change", [-1, 1, -100_000])
def test_another_size_is_damage(s3_bucket: Bucket, change: int) -> None:
    file = put(s3_bucket, several())
    body = s3_bucket.read(KEY)
    s3_bucket.put(KEY, body + b"x" if change > 0 else body[:change])
    with pytest.raises(DamagedError, match="should have"):
        read(s3_bucket, several(1).schema, file)


def test_other_bytes_are_damage(s3_bucket: Bucket) -> None:
    file = put(s3_bucket, several(), compression="none")
    body = bytearray(s3_bucket.read(KEY))
    body[len(body) // 2] ^= 1
    s3_bucket.put(KEY, bytes(body))
    with pytest.raises(DamagedError, match="SHA-256"):
        read(s3_bucket, several(1).schema, file)


def test_what_is_not_parquet_is_damage(s3_bucket: Bucket) -> None:
    s3_bucket.put(KEY, b"not Parquet at all")
    with pytest.raises(DamagedError, match=KEY):
        read(s3_bucket, several(1).schema, DataFile(KEY, UNPARTITIONED, 18, -1, "", ""))


def test_another_number_of_rows_is_damage(s3_bucket: Bucket) -> None:
    file = put(s3_bucket, pa.table({"v": [1]}))
    wrong = DataFile(file.key, file.partition, file.size, 2, file.checksum, file.job)
    with pytest.raises(DamagedError, match="2 were committed"):
        read(s3_bucket, pa.schema([("v", pa.int64())]), wrong)


def test_an_own_file_must_have_the_columns(s3_bucket: Bucket) -> None:
    file = put(s3_bucket, pa.table({"v": [1]}))
    with pytest.raises(DamagedError, match="w is missing"):
        read(s3_bucket, pa.schema([("v", pa.int64()), ("w", pa.int64())]), file)


def test_a_path_outside_the_tables_partitions_is_damage(s3_bucket: Bucket) -> None:
    file = put(s3_bucket, pa.table({"v": [1]}), partition="day=x")
    with pytest.raises(DamagedError, match=KEY):
        read(s3_bucket, pa.schema([("v", pa.int64()), ("day", pa.date32())]), file, "day")


# -- foreign files -------------------------------------------------------------------------------


def test_foreign_files_are_cast_by_name(s3_bucket: Bucket) -> None:
    schema = pa.schema(
        [
            ("n", pa.int64()),
            ("s", pa.string()),
            ("t", pa.timestamp("us", "UTC")),
            ("new", pa.int8()),
        ]
    )
    table = pa.table(
        {
            "extra": [1],
            "t": pa.array([1000], pa.timestamp("ns", "Europe/Berlin")),
            "s": pa.array(["x"]).dictionary_encode(),
            "n": pa.array([5], pa.int16()),
        }
    )
    found = read(s3_bucket, schema, put(s3_bucket, table, foreign=True))
    assert found.schema.equals(schema)
    moment = dt.datetime(1970, 1, 1, 0, 0, 0, 1, dt.UTC)
    assert found.to_pylist() == [{"n": 5, "s": "x", "t": moment, "new": None}]


def test_foreign_values_that_fit_are_narrowed(s3_bucket: Bucket) -> None:
    schema = pa.schema([("n", pa.int32()), ("s", pa.string())])
    table = pa.table({"n": pa.array([5], pa.int64()), "s": pa.array([b"x"])})
    assert read(s3_bucket, schema, put(s3_bucket, table, foreign=True)).to_pylist() == [
        {"n": 5, "s": "x"}
    ]
    large = pa.table({"n": pa.array([2**40], pa.int64()), "s": pa.array([b"x"])})
    file = put(s3_bucket, large, foreign=True)
    with pytest.raises(TableMismatchError, match=KEY):
        read(s3_bucket, schema, file)


def test_sparks_old_timestamps_are_instants(s3_bucket: Bucket) -> None:
    schema = pa.schema([("t", pa.timestamp("us", "UTC"))])
    far = dt.datetime(9999, 12, 31)
    table = pa.table({"t": pa.array([far], pa.timestamp("us"))})
    file = put(s3_bucket, table, foreign=True, use_deprecated_int96_timestamps=True)
    assert read(s3_bucket, schema, file).to_pylist() == [{"t": far.replace(tzinfo=dt.UTC)}]
    local = put(s3_bucket, table, foreign=True)  # annotated as without a zone
    with pytest.raises(TableMismatchError, match=r"\bt is timestamp"):
        read(s3_bucket, schema, local)


@pytest.mark.parametrize(
    "column", [pa.array(["x"]), pa.array([1.5]), pa.array([{"x": 1}]), pa.array([[1]])], ids=str
)
def test_foreign_columns_that_do_not_fit_are_named(s3_bucket: Bucket, column: pa.Array) -> None:
    file = put(s3_bucket, pa.table({"n": column}), foreign=True)
    with pytest.raises(TableMismatchError, match=r"\bn is\b") as caught:
        read(s3_bucket, pa.schema([("n", pa.int64())]), file)
    assert caught.value.key == KEY


def test_a_foreign_file_without_any_column_is_null_rows(s3_bucket: Bucket) -> None:
    file = put(s3_bucket, pa.table({"other": [1, 2, 3]}), foreign=True)
    found = read(s3_bucket, pa.schema([("n", pa.int64())]), file, batch_rows=2)
    assert found.to_pylist() == [{"n": None}] * 3
