"""Encoding of data files: nothing is larger than it need be, and every reader sees the same."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.memory_streams import MemoryStreams
from zero_rename.committer.format.job_spec import FileOptions
from zero_rename.committer.format.layout import TableRoot, new_job_id
from zero_rename.committer.format.parquet.file_writer import dictionary_columns
from zero_rename.committer.format.parquet.task_writer import TaskWriter
from zero_rename.committer.format.schema.types import normalise

ROWS = 5_000
ENTRIES = pa.map_(pa.string(), pa.int64())
ROW = pa.struct([("seldom", pa.int64()), ("often", pa.int64())])


def prices(digits: int, count: int = ROWS) -> pa.Array:
    return pa.array([Decimal(n) / 100 for n in range(count)], pa.decimal128(digits, 2))


def write(table: pa.Table, by: tuple[str, ...] = (), **options: Any) -> list[bytes]:
    """The files of one task."""
    store = MemoryStreams()
    files = FileOptions(**options)
    root = TableRoot("bucket", "t")
    task = TaskWriter(root, new_job_id(), 0, 0, table.schema, by, files, store.open)
    for batch in table.to_batches(max_chunksize=1000):
        task.write(batch)
    return [store.body(file) for file in task.close().files]


def columns(body: bytes) -> dict[str, pq.ColumnChunkMetaData]:
    group = pq.read_metadata(pa.BufferReader(body)).row_group(0)
    chunks = [group.column(index) for index in range(group.num_columns)]
    return {chunk.path_in_schema: chunk for chunk in chunks}


def test_a_column_has_a_dictionary_where_that_is_smaller() -> None:
    few, many = [n % 7 for n in range(ROWS)], list(range(ROWS))
    table = pa.table(
        {
            "few": few,
            "many": many,
            "words": [f"word {n}" for n in few],
            "texts": [f"text {n}" for n in many],
            "row": pa.array(
                [{"seldom": n, "often": n % 3} if n % 5 else None for n in many], type=ROW
            ),
            "list": [[n % 3, n % 3] for n in many],
            "map": pa.array([[("k", n)] for n in many], ENTRIES),
            "flag": [n % 2 == 0 for n in many],
            "nothing": pa.nulls(ROWS, pa.int64()),
        }
    )
    (body,) = write(table)
    with_one = {path for path, chunk in columns(body).items() if chunk.has_dictionary_page}
    assert with_one == {"few", "words", "row.often", "list.list.element", "map.key_value.key"}
    assert pq.read_table(pa.BufferReader(body)).to_pylist() == table.to_pylist()


def test_many_rows_are_judged_by_some_of_all() -> None:
    """A column that begins with one value, and one that is sorted."""
    count = 200_000
    late = [0 if n < 20_000 else n for n in range(count)]
    (body,) = write(pa.table({"late": late, "sorted": [n // 1000 for n in range(count)]}))
    with_one = {path for path, chunk in columns(body).items() if chunk.has_dictionary_page}
    assert with_one == {"sorted"}


@pytest.mark.parametrize("times", [1.0, 1.1, 1.5, 2, 3, 10])
@pytest.mark.parametrize("order", ["shuffled", "sorted", "again and again"])
def test_columns_judged_by_a_first_sample_are_judged_as_by_all_values(
    times: float, order: str
) -> None:
    """Keys that come a number of times each: short ones, and of the length of a UUID."""
    count = 20_000
    keys = [n % round(count / times) for n in range(count)]
    if order == "sorted":
        keys.sort()
    elif order == "shuffled":
        random.Random(times).shuffle(keys)
    kinds = {"i": pa.array(keys), "s": pa.array([f"{n:036d}" for n in keys])}
    smaller = {
        name
        for name, values in kinds.items()
        if size_of(values, use_dictionary=True) < size_of(values, use_dictionary=False)
    }
    assert set(dictionary_columns(pa.table(kinds))) == smaller


def size_of(values: pa.Array, use_dictionary: bool) -> int:
    """The bytes of a file of one column, as Parquet encodes it, without compression."""
    body = pa.BufferOutputStream()
    pq.write_table(
        pa.table({"x": values}),
        body,
        use_dictionary=use_dictionary,
        compression="none",
        dictionary_pagesize_limit=2**30,
    )
    return body.getvalue().size


def test_a_file_of_distinct_values_is_no_larger_than_they_are() -> None:
    table = pa.table({"id": list(range(10**9, 10**9 + ROWS)), "price": prices(9)})
    (body,) = write(table, compression="none")
    assert len(body) < ROWS * (8 + 4) + 4096


@pytest.mark.parametrize(
    ("digits", "physical"), [(9, "INT32"), (18, "INT64"), (19, "FIXED_LEN_BYTE_ARRAY")]
)
def test_decimals_are_stored_as_spark_stores_them(
    digits: int, physical: str, tmp_path: Path
) -> None:
    table = pa.table({"price": prices(digits)})
    (body,) = write(table)
    assert columns(body)["price"].physical_type == physical
    path = tmp_path / "file.parquet"
    path.write_bytes(body)
    relation = duckdb.from_parquet(str(path))
    assert [str(kind) for kind in relation.types] == [f"DECIMAL({digits},2)"]
    assert relation.fetchall() == [(row["price"],) for row in table.to_pylist()]
    assert pq.read_table(path).equals(table)


def test_files_have_a_page_index() -> None:
    (body,) = write(pa.table({"n": list(range(ROWS))}))
    chunk = columns(body)["n"]
    assert (chunk.has_column_index, chunk.has_offset_index) == (True, True)


def test_zstd_is_as_strong_as_sparks() -> None:
    texts = pa.table({"t": [f"{n * 7919 % 1009} of {n * 31 % 97}" for n in range(ROWS)]})
    (body,) = write(texts)
    sink = pa.BufferOutputStream()
    dictionary = ["t"] if columns(body)["t"].has_dictionary_page else []
    options = {"compression_level": 3, "use_dictionary": dictionary, "write_page_index": True}
    pq.write_table(texts, sink, compression="zstd", **options)
    expected = columns(sink.getvalue().to_pybytes())["t"].total_compressed_size
    assert columns(body)["t"].total_compressed_size == expected


def test_partitions_that_share_a_tasks_memory_have_few_row_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Thirty partitions, and memory for ten of their row groups."""
    monkeypatch.setattr("zero_rename.committer.format.parquet.task_writer._BUFFER_BYTES", 80_000)
    monkeypatch.setattr("zero_rename.committer.format.parquet.task_writer._STAGE_BYTES", 4_000)
    count, partitions = 90_000, 30
    table = pa.table(
        {"p": [n * 7919 % partitions for n in range(count)], "v": list(range(count))},
        normalise(pa.schema([("p", pa.int64()), ("v", pa.int64())])),
    )
    bodies = write(table, ("p",))
    groups = [pq.read_metadata(pa.BufferReader(body)).num_row_groups for body in bodies]
    assert len(bodies) == partitions
    raw = count * 8
    assert sum(groups) <= raw / (80_000 / 8) + 2 * partitions
