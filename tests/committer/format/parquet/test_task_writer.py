"""A task's writer: the rows that went in are in the files, whatever the options; and after any
failure nothing of it is left."""

from __future__ import annotations

import hashlib
import math
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from conftest import Bucket
from hypothesis import given, settings
from hypothesis import strategies as st

from support.arrow_data import COLUMNS, PARTITION_VALUES, rows_of, table_of
from support.memory_streams import MemoryStreams
from support.waiting import STUCK
from zero_rename.committer.errors import InvalidInputError, StreamClosedError, StreamError
from zero_rename.committer.format.job_spec import FileOptions
from zero_rename.committer.format.layout import UNPARTITIONED, TableRoot, new_job_id
from zero_rename.committer.format.parquet.file_writer import FileWriter
from zero_rename.committer.format.parquet.reader import read_batches
from zero_rename.committer.format.parquet.task_writer import TaskWriter
from zero_rename.committer.format.records.data_file import DataFile
from zero_rename.committer.format.records.pending_file import PendingFile, TaskResult
from zero_rename.committer.format.schema.hive_paths import partition_values
from zero_rename.committer.format.schema.types import normalise
from zero_rename.committer.store.driver import BotoDriver, connect
from zero_rename.committer.store.encryption import Algorithm, Encryption
from zero_rename.committer.store.requests import CompleteUpload, ObjectSettings, Refused
from zero_rename.committer.store.upload_stream import DelayedOutputStream

ROOT = TableRoot("bucket", "tables/flights")
JOB = new_job_id()


@pytest.fixture
def store() -> MemoryStreams:
    return MemoryStreams()


def writer(
    store: MemoryStreams,
    schema: pa.Schema,
    partition_by: tuple[str, ...] = (),
    options: FileOptions | None = None,
    **more: Any,
) -> TaskWriter:
    return TaskWriter(
        ROOT, JOB, 3, 1, schema, partition_by, options or FileOptions(), store.open, **more
    )


def written(
    store: MemoryStreams, result: TaskResult, schema: pa.Schema, partition_by: tuple[str, ...]
) -> list[pa.Table]:
    """The files' rows with their partition columns, in the table's order of columns."""
    tables = []
    for file in result.files:
        table = store.table(file)
        assert table.num_rows == file.rows > 0
        for column, value in partition_values(file.partition, schema, partition_by).items():
            kind = schema.field(column).type
            table = table.append_column(column, pa.repeat(pa.scalar(value, kind), file.rows))
        tables.append(table.select(schema.names))
    return tables


def write_all(task: TaskWriter, table: pa.Table, batch_rows: int = 1000) -> TaskResult:
    for batch in table.to_batches(max_chunksize=batch_rows):
        task.write(batch)
    return task.close()


def test_each_file_is_added_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where its partition has several, each of which is waited for when the next one ends."""
    finished: list[FileWriter] = []
    finish = FileWriter.finish

    def counting(file: FileWriter) -> PendingFile:
        finished.append(file)
        return finish(file)

    monkeypatch.setattr(FileWriter, "finish", counting)
    table = numbers(60, partitions=2)
    task = writer(MemoryStreams(), table.schema, ("p",), FileOptions(rows_per_file=10))
    assert len(write_all(task, table).files) == 6
    assert len(finished) == len(set(finished)) == 6


def test_columns_with_nan_have_no_statistics_and_begin_a_file_once() -> None:
    """Arrow's ignore NaN, and Spark, for which it is the greatest value, left its rows out."""
    nan, store = float("nan"), MemoryStreams()
    x = [1.0, 2.0, nan, 4.0, None, 6.0, nan, 8.0]
    y = [1.0, 2.0, 3.0, 4.0, 5.0, nan, 7.0, nan]
    inner = pa.array(y, pa.float32())
    lists = pa.ListArray.from_arrays(pa.array(range(len(y) + 1), pa.int32()), inner)
    table = pa.table(
        {
            "n": list(range(len(x))),
            "x": x,
            "s": pa.StructArray.from_arrays([inner, pa.array(y)], ["a.b", "c"]),
            "l": lists,
            "m": pa.array([[(str(v), v)] for v in x], pa.map_(pa.string(), pa.float64())),
            "t": ["a"] * len(x),
        }
    )
    task = writer(store, table.schema, (), FileOptions(row_group_rows=2))
    files = write_all(task, table, 2).files
    assert pa.concat_tables(map(store.table, files)).to_pydict().keys() == table.to_pydict().keys()
    assert repr(pa.concat_tables(map(store.table, files)).to_pylist()) == repr(table.to_pylist())
    bounded = []
    for file in files:
        footer = pq.read_metadata(pa.BufferReader(store.body(file)))
        chunks = [
            (footer.row_group(group).column(column), group)
            for group in range(footer.num_row_groups)
            for column in range(footer.num_columns)
        ]
        bounded.append(sorted({c.path_in_schema for c, _ in chunks if c.is_stats_set}))
    every = [
        "l.list.element",
        "m.key_value.key",
        "m.key_value.value",
        "n",
        "s.a.b",
        "s.c",
        "t",
        "x",
    ]
    assert bounded == [
        every,
        ["l.list.element", "m.key_value.key", "n", "s.a.b", "s.c", "t"],
        ["m.key_value.key", "n", "t"],
    ]


def numbers(count: int, partitions: int = 1) -> pa.Table:
    return pa.table({"p": [n % partitions for n in range(count)], "v": list(range(count))})


@settings(deadline=None)
@given(
    data=st.data(),
    kinds=st.lists(st.sampled_from(list(PARTITION_VALUES)), max_size=2),
    rows_per_file=st.none() | st.integers(1, 20),
    bytes_per_file=st.none() | st.integers(1, 5000),
    row_group_rows=st.integers(1, 20),
    open_partitions=st.integers(1, 4),
)
def test_any_options_write_the_same_rows(
    data: st.DataObject,
    kinds: list[str],
    rows_per_file: int | None,
    bytes_per_file: int | None,
    row_group_rows: int,
    open_partitions: int,
) -> None:
    partition_by = tuple(f"p{index}" for index in range(len(kinds)))
    types = [PARTITION_VALUES[kind][0] for kind in kinds]
    schema = pa.schema(
        [("v", pa.int64()), *zip(partition_by, types, strict=True), ("s", pa.string())]
    )
    pools = [
        data.draw(st.lists(st.none() | PARTITION_VALUES[kind][1], min_size=1, max_size=5))
        for kind in kinds
    ]
    options = FileOptions(
        rows_per_file=rows_per_file,
        bytes_per_file=bytes_per_file,
        row_group_rows=row_group_rows,
        max_open_partitions=open_partitions,
    )
    store = MemoryStreams()
    task = writer(store, schema, partition_by, options)
    batches = []
    for number in range(data.draw(st.integers(0, 4))):
        count = data.draw(st.integers(0, 25))
        columns = [
            data.draw(st.lists(st.sampled_from(p), min_size=count, max_size=count)) for p in pools
        ]
        arrays = [pa.array(v, t) for v, t in zip(columns, types, strict=True)]
        values = pa.array(range(count), pa.int64())
        texts = pa.array([f"{number}-{i}" * (i % 3) for i in range(count)], pa.string())
        batch = pa.RecordBatch.from_arrays([values, *arrays, texts], schema=schema)
        batches.append(batch)
        task.write(batch)
        if data.draw(st.booleans()):
            task._split()  # as if enough had been staged
    result = task.close()
    expected = pa.Table.from_batches(batches, schema)
    # The empty string and null are one partition, which reads back as null.
    for column, kind in zip(partition_by, kinds, strict=True):
        if kind == "string":
            index = schema.get_field_index(column)
            nulled = pc.if_else(pc.equal(expected[column], ""), None, expected[column])
            expected = expected.set_column(index, column, nulled)
    assert rows_of(*written(store, result, schema, partition_by)) == rows_of(expected)
    assert result.rows == expected.num_rows
    assert len({file.key for file in result.files}) == len(result.files) == len(store.opened)
    for file in result.files:
        assert file.partition == ROOT.partition_of_data_key(file.key)
        assert rows_per_file is None or file.rows <= rows_per_file
        groups = pq.read_metadata(pa.BufferReader(store.body(file)))
        for group in range(groups.num_row_groups):
            assert groups.row_group(group).num_rows <= row_group_rows


def test_an_empty_task_has_no_files(store: MemoryStreams) -> None:
    task = writer(store, numbers(1).schema, ("p",))
    task.write(numbers(0))
    assert task.close() == TaskResult(JOB, 3, 1, ())
    assert store.opened == []


def test_rows_per_file_is_exact(store: MemoryStreams) -> None:
    task = writer(store, numbers(1).schema, (), FileOptions(rows_per_file=1000))
    for start in range(0, 4500, 300):
        task.write(numbers(4500).slice(start, 300))
    result = task.close()
    assert [file.rows for file in result.files] == [1000, 1000, 1000, 1000, 500]
    names = [file.key.rsplit("/", 1)[1] for file in result.files]
    assert names == [f"part-00003-{JOB}-{number:04d}.parquet" for number in range(5)]


def test_bytes_per_file_is_about_right(store: MemoryStreams) -> None:
    table = pa.table({"v": [os.urandom(100) for _ in range(20_000)]})
    limit = 300_000
    task = writer(store, table.schema, (), FileOptions(bytes_per_file=limit))
    for batch in table.to_batches(max_chunksize=1000):
        task.write(batch)
    files = task.close().files
    assert len(files) > 4
    assert all(0.8 * limit < file.size < 1.2 * limit for file in files[:-1])
    for file in files:
        groups = pq.read_metadata(pa.BufferReader(store.body(file))).num_row_groups
        assert groups <= 6  # the last bytes are not filled up by ever smaller row groups


def test_row_groups_gather_batches(store: MemoryStreams) -> None:
    task = writer(store, numbers(1).schema, (), FileOptions(row_group_rows=1000))
    for start in range(0, 2500, 10):
        task.write(numbers(2500).slice(start, 10))
    (file,) = task.close().files
    metadata = pq.read_metadata(pa.BufferReader(store.body(file)))
    groups = [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]
    assert groups == [1000, 1000, 500]


def test_objects_say_what_they_are(store: MemoryStreams) -> None:
    options = FileOptions(
        storage_class="STANDARD_IA",
        encryption="DSSE-KMS",
        encryption_key="alias/lake",
        tags={"t": "1"},
        metadata={"owner": "me"},
        compression="snappy",
    )
    described = b'{"type":"struct","fields":[{"name":"p","type":"long","nullable":true},'
    described += b'{"name":"v","type":"long","nullable":true}]}'
    key = b"org.apache.spark.sql.parquet.row.metadata"
    schema = numbers(1).schema.with_metadata({key: described})
    task = writer(store, schema, (), options)
    task.write(numbers(3))
    (file,) = task.close().files
    settings = store.driver.store.uploads[file.upload_id].settings
    assert settings.metadata == {"owner": "me", "zero-rename-job": JOB}
    assert settings.storage_class == "STANDARD_IA"
    assert settings.encryption == Encryption(Algorithm.DSSE_KMS, "alias/lake")
    assert settings.tags == {"t": "1"}
    assert file.partition == UNPARTITIONED
    footer = pq.read_metadata(pa.BufferReader(store.body(file)))
    assert footer.row_group(0).column(0).compression == "SNAPPY"
    assert footer.metadata[key] == described


@pytest.mark.parametrize(
    "options",
    [
        FileOptions(compression="rar"),
        FileOptions(rows_per_file=0),
        FileOptions(bytes_per_file=-1),
        FileOptions(row_group_rows=0),
        FileOptions(max_open_partitions=0),
        FileOptions(metadata={"zero-rename-job": "x"}),
        FileOptions(metadata={"owner": "é"}),
        FileOptions(metadata={"owner": "a\nb"}),
        FileOptions(metadata={"owner": " me"}),
        *(FileOptions(metadata={name: "x"}) for name in ("", "a b", "a:b", "a/b", "é")),
        FileOptions(metadata={"owner": "me", "Owner": "you"}),
        FileOptions(metadata={"owner": "x" * 3000}),
        FileOptions(tags={str(n): "" for n in range(11)}),
        FileOptions(tags={"": "x"}),
        FileOptions(tags={"aws:x": "x"}),
        FileOptions(storage_class="GLACIER"),
        FileOptions(encryption="SSE-C"),
        FileOptions(encryption_key="alias/lake"),
        FileOptions(encryption="SSE-S3", encryption_key="alias/lake"),
        FileOptions(encryption="SSE-KMS", encryption_key="c2VjcmV0IGtleSBvZiBTU0UtQw=="),
    ],
)
def test_impossible_options_are_refused(options: FileOptions) -> None:
    with pytest.raises(InvalidInputError):
        writer(MemoryStreams(), numbers(1).schema, (), options)


@pytest.mark.parametrize(
    "given",
    [
        *({"rows_per_file": it} for it in ("100", 2.5, True, math.nan)),
        *({"bytes_per_file": it} for it in ("128m", math.nan, math.inf)),
        *({name: None} for name in ("row_group_rows", "max_open_partitions", "part_bytes")),
        *({"part_bytes": it} for it in ("5m", 1, 5.5e6, 6 * 1024**3)),
        *({"metadata": it} for it in ({"a": 1}, {1: "a"}, {"a": None}, [("a", "b")], None)),
        *({"tags": it} for it in ({"a": 1}, {None: "a"}, "a=b")),
    ],
    ids=str,
)
def test_option_of_another_type_is_refused_by_its_name(given: dict[str, Any]) -> None:
    (name,) = given
    with pytest.raises(InvalidInputError, match=f"Invalid {name}=.* Nothing was written"):
        writer(MemoryStreams(), numbers(1).schema, (), FileOptions(**given))


def test_whole_numbers_of_numpy_are_options() -> None:
    numpy = pytest.importorskip("numpy")
    options = FileOptions(rows_per_file=numpy.int64(2), part_bytes=numpy.int64(5 * 1024**2))
    task = writer(MemoryStreams(), numbers(5).schema, (), options)
    task.write(numbers(5))
    assert [file.rows for file in task.close().files] == [2, 2, 1]


def test_columns_are_matched_by_name_and_widened(store: MemoryStreams) -> None:
    task = writer(store, pa.schema([("p", pa.int64()), ("v", pa.int64())]), ("p",))
    batch = pa.table({"v": pa.array([7], pa.int8()), "p": pa.nulls(1)})
    task.write(batch)
    (file,) = task.close().files
    assert file.partition == "p=__HIVE_DEFAULT_PARTITION__"
    assert store.table(file).schema == pa.schema([("v", pa.int64())])


@pytest.mark.parametrize(
    "batch",
    [pa.table({"v": [1]}), pa.table({"p": [1], "v": ["x"]}), pa.table({"p": [1], "V": [1]})],
)
def test_other_columns_are_refused(store: MemoryStreams, batch: pa.Table) -> None:
    task = writer(store, numbers(1).schema, ("p",))
    with pytest.raises(InvalidInputError):
        task.write(batch)
    assert store.opened == []


# -- partitions ----------------------------------------------------------------------------------


def test_further_partitions_wait_on_disk(store: MemoryStreams) -> None:
    options = FileOptions(max_open_partitions=2)
    task = writer(store, numbers(1).schema, ("p",), options)
    for batch in numbers(1000, 20).to_batches(max_chunksize=100):
        task.write(batch)
        task._split()
        assert len(store.opened) <= 2
    assert task._spill.rows == 900  # 18 of 20 partitions
    result = task.close()
    assert len(result.files) == 20
    assert rows_of(*written(store, result, numbers(1).schema, ("p",))) == rows_of(numbers(1000, 20))


def test_memory_does_not_grow_with_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zero_rename.committer.format.parquet.task_writer._BUFFER_BYTES", 20_000)
    monkeypatch.setattr("zero_rename.committer.format.parquet.task_writer._STAGE_BYTES", 10_000)
    store = MemoryStreams()
    table = numbers(50_000, 500)
    task = writer(store, table.schema, ("p",), FileOptions(max_open_partitions=10))
    task._spill._buffer_bytes = 30_000
    for batch in table.to_batches(max_chunksize=500):
        task.write(batch)
        held = sum(open_writer.buffered for open_writer, _ in task._open.values())
        kept = sum(
            piece.get_total_buffer_size()
            for open_writer, _ in task._open.values()
            for piece in open_writer.waiting
        )
        assert held == task._buffered <= 20_000
        assert kept <= 2 * 20_000  # nothing small keeps something large
        assert task._staged_bytes < 10_000
        assert task._spill._gathered_bytes < 30_000
    assert task._spill.bytes_on_disk > 100_000
    result = task.close()
    assert result.rows == 50_000
    assert {file.partition for file in result.files} == {f"p={n}" for n in range(500)}


def test_the_largest_buffer_is_written_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zero_rename.committer.format.parquet.task_writer._BUFFER_BYTES", 10_000)
    monkeypatch.setattr("zero_rename.committer.format.parquet.task_writer._STAGE_BYTES", 1000)
    store = MemoryStreams()
    task = writer(store, numbers(1).schema, ("p",))
    table = pa.table({"p": [0 if n % 10 else n % 4 for n in range(5000)], "v": list(range(5000))})
    for batch in table.to_batches(max_chunksize=100):
        task.write(batch)
        assert task._buffered <= 10_000
    result = task.close()
    groups = {
        file.partition: pq.read_metadata(pa.BufferReader(store.body(file))).num_row_groups
        for file in result.files
    }
    assert groups["p=0"] > 2
    assert groups["p=2"] == 1
    assert rows_of(*written(store, result, table.schema, ("p",))) == rows_of(table)


def test_tiny_batches_are_gathered(store: MemoryStreams) -> None:
    task = writer(store, numbers(1).schema)
    table = numbers(3000)
    for number in range(3000):
        task.write(table.slice(number, 1))
        assert len(task._staged) <= 512
    (open_writer, _) = task._open[UNPARTITIONED]
    assert len(open_writer.waiting) <= 6
    (file,) = task.close().files
    assert store.table(file).column("v").to_pylist() == list(range(3000))


def test_sorted_data_is_not_spilled(store: MemoryStreams) -> None:
    task = writer(store, numbers(1).schema, ("p",), FileOptions(max_open_partitions=5))
    for partition in range(30):
        task.write(pa.table({"p": [partition] * 10, "v": list(range(10))}))
        task._split()
    # A partition that was finished and comes again waits: it gets one more file, not many.
    task.write(pa.table({"p": [0], "v": [10]}))
    task._split()
    task.write(pa.table({"p": [0], "v": [11]}))
    result = task.close()
    assert task._spill.rows == 2
    assert len(result.files) == 31
    assert [f.rows for f in result.files if f.partition == "p=0"] == [10, 2]


def test_only_named_partitions_are_written(store: MemoryStreams) -> None:
    task = writer(store, numbers(1).schema, ("p",), allowed_partitions=frozenset({"p=0"}))
    task.write(numbers(5, 1))
    task._split()
    with pytest.raises(InvalidInputError, match="'p=1'"):
        write_all(task, numbers(5, 2))
    assert all("p=1" not in stream.key for stream in store.opened)
    assert store.left == []


def test_partitions_with_impossible_names_are_refused(store: MemoryStreams) -> None:
    task = writer(store, pa.schema([("p", pa.string()), ("v", pa.int64())]), ("p",))
    with pytest.raises(InvalidInputError, match="1024"):
        write_all(task, pa.table({"p": ["x" * 1100], "v": [1]}))
    assert store.opened == []


# -- failures ------------------------------------------------------------------------------------


class BrokenError(Exception):
    """What the tests make a stream raise."""


def breaking(request: str, at: int) -> Callable[[str, int], None]:
    def fail(sent: str, number: int) -> None:
        if (sent, number) == (request, at):
            raise BrokenError(f"{request} {at}")

    return fail


@pytest.mark.parametrize(
    ("request_", "at"),
    [*(("CreateUpload", at) for at in (1, 2, 6)), *(("UploadPart", at) for at in (1, 2, 15))],
)
@pytest.mark.parametrize("open_partitions", [1, 3, 10])
def test_after_any_failure_everything_is_aborted(
    monkeypatch: pytest.MonkeyPatch, request_: str, at: int, open_partitions: int
) -> None:
    monkeypatch.setattr("zero_rename.committer.format.parquet.task_writer._STAGE_BYTES", 1000)
    store = MemoryStreams(fail=breaking(request_, at))
    options = FileOptions(max_open_partitions=open_partitions, rows_per_file=40)
    task = writer(store, numbers(1).schema, ("p",), options)
    with pytest.raises(StreamError, match=f"{request_} {at}"):
        write_all(task, numbers(600, 6), 100)
    assert store.left == []
    assert task._spill.bytes_on_disk == 0
    with pytest.raises(StreamClosedError):
        task.write(numbers(1))
    with pytest.raises(StreamClosedError):
        task.close()
    assert task.abort() == ()


def test_an_upload_of_another_size_is_refused(
    store: MemoryStreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = DelayedOutputStream.upload.fget
    assert told is not None
    less = property(lambda stream: replace(told(stream), size=1))
    monkeypatch.setattr(DelayedOutputStream, "upload", less)
    task = writer(store, numbers(1).schema)
    task.write(numbers(3))
    with pytest.raises(StreamError, match="uploaded"):
        task.close()
    assert store.left == []


def denied(*broken: str) -> MemoryStreams:
    """Streams whose parts, aborts or both are refused."""
    return MemoryStreams(lambda sent, _: Refused("AccessDenied") if sent in broken else None)


def test_a_failing_abort_is_noted_and_hides_nothing() -> None:
    store = denied("UploadPart", "AbortUpload")
    task = writer(store, numbers(1).schema)
    task.write(numbers(3))
    with pytest.raises(StreamError, match="refused part 1") as caught:
        task.close()
    assert any("may be left" in note for note in caught.value.__notes__)


def test_several_failures_are_told_together() -> None:
    together = threading.Barrier(2, timeout=STUCK)

    def fail(sent: str, _: int) -> Refused | None:
        return Refused(str(together.wait())) if sent == "UploadPart" else None

    store = MemoryStreams(fail)
    task = writer(store, numbers(1).schema, ("p",))
    task.write(numbers(8, 2))
    with pytest.raises(StreamError) as caught:
        task.close()
    assert any("another file of this task failed" in note for note in caught.value.__notes__)
    assert store.left == []


def test_files_that_wait_for_their_turn_are_not_begun_after_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rest of a large task would be uploaded only to be aborted: one that does not fit into
    memory, so that all partitions but one wait on the disk."""
    count = 20
    last_was_cancelled = threading.Event()

    class OneByOne(ThreadPoolExecutor):
        submitted = 0

        def __init__(self, threads: int) -> None:
            super().__init__(max_workers=1)

        def submit(self, *arguments: Any, **named: Any) -> Future[Any]:
            future = super().submit(*arguments, **named)
            self.submitted += 1
            if self.submitted == count:
                future.add_done_callback(
                    lambda future: last_was_cancelled.set() if future.cancelled() else None
                )
            return future

    def fail(sent: str, number: int) -> None:
        if (sent, number) == ("UploadPart", 2):
            raise BrokenError(sent)
        if (sent, number) == ("UploadPart", 3):
            last_was_cancelled.wait(60)

    monkeypatch.setattr(
        "zero_rename.committer.format.parquet.task_writer.ThreadPoolExecutor", OneByOne
    )
    store = MemoryStreams(fail=fail)
    task = writer(store, numbers(1).schema, ("p",), FileOptions(max_open_partitions=1))
    task.write(numbers(100, count))
    with pytest.raises(StreamError):
        task.close()
    assert last_was_cancelled.is_set()
    assert store.driver.counts()["UploadPart"] <= 3
    assert store.left == []


def test_a_file_that_failed_ends_the_task_before_the_one_after_the_next() -> None:
    """Files of one partition follow each other, and none waits for the answers to the last."""
    store = MemoryStreams(breaking("UploadPart", 2))
    task = writer(store, numbers(1).schema, (), FileOptions(rows_per_file=10))
    task.write(numbers(10_000))
    with pytest.raises(StreamError):
        task.close()
    assert store.driver.counts()["UploadPart"] < 10, "of 1,000 files"
    assert store.left == []


def test_an_interrupt_aborts_too() -> None:
    def fail(sent: str, _: int) -> None:
        if sent == "UploadPart":
            raise KeyboardInterrupt

    store = MemoryStreams(fail=fail)
    task = writer(store, numbers(1).schema)
    task.write(numbers(3))
    with pytest.raises(KeyboardInterrupt):
        task.close()
    assert store.left == []


def test_abort_takes_back_finished_files(store: MemoryStreams) -> None:
    task = writer(store, numbers(1).schema, ("p",))
    task.write(numbers(10, 3))
    result = task.close()
    assert task.close() is result
    assert len(store.left) == 3
    assert task.abort() == ()
    assert store.left == []
    assert task.abort() == ()
    assert store.driver.counts()["AbortUpload"] == 3
    with pytest.raises(StreamClosedError):
        task.close()


def test_abort_tells_what_is_left() -> None:
    store = denied("AbortUpload")
    task = writer(store, numbers(1).schema, ("p",))
    task.write(numbers(10, 3))
    task.close()
    assert len(task.abort()) == 3


def test_abort_before_any_file_is_silent(store: MemoryStreams) -> None:
    task = writer(store, numbers(1).schema)
    assert task.abort() == ()
    with pytest.raises(StreamClosedError):
        task.write(numbers(1))


# -- what others read ----------------------------------------------------------------------------


def publish(store: MemoryStreams, result: TaskResult, directory: Path) -> Path:
    for file in result.files:
        path = directory / file.key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(store.body(file))
    return directory / ROOT.prefix


def test_every_type_is_read_back_by_pyarrow_and_duckdb(tmp_path: Path) -> None:
    table = table_of(COLUMNS).append_column("day", pa.array(["a b", "x/y=z%", None]))
    store = MemoryStreams()
    task = writer(store, table.schema, ("day",))
    task.write(table)
    root = publish(store, task.close(), tmp_path)
    schema = normalise(table.schema)
    hive = ds.partitioning(pa.schema([("day", pa.string())]), flavor="hive")
    found = ds.dataset(root, partitioning=hive, format="parquet", schema=schema).to_table()
    assert rows_of(found) == rows_of(table)
    for name in schema.names:
        assert found.schema.field(name).type == schema.field(name).type
    connection = duckdb.connect()
    relation = connection.sql(
        f"select * from read_parquet('{root}/*/*.parquet', hive_partitioning = true, "
        "hive_types = {'day': VARCHAR})"
    )
    plain = [name for name in COLUMNS if name not in ("duration", "timestamp")]
    assert rows_of(relation.select(*plain, "day").to_arrow_table()) == rows_of(
        table.select([*plain, "day"])
    )
    micros = relation.filter("duration is not null").project("duration, epoch_us(timestamp)")
    assert micros.fetchall() == [(86_400_000_001, 1_357_095_845_678_900)]


@settings(deadline=None, max_examples=25)
@given(
    st.lists(
        PARTITION_VALUES["string"][1].filter(lambda t: len(t) < 60),
        min_size=1,
        max_size=4,
        unique=True,
    )
)
def test_other_readers_find_the_same_text(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str]
) -> None:
    table = pa.table({"p": texts, "v": list(range(len(texts)))})
    store = MemoryStreams()
    task = writer(store, table.schema, ("p",))
    task.write(table)
    root = publish(store, task.close(), tmp_path_factory.mktemp("table"))
    hive = ds.partitioning(pa.schema([("p", pa.string())]), flavor="hive")
    found = ds.dataset(root, partitioning=hive, format="parquet").to_table()
    assert rows_of(found.select(["p", "v"])) == rows_of(table)


# -- with a real stream and store ----------------------------------------------------------------


def real_writer(driver: BotoDriver, **options: Any) -> TaskWriter:
    def open_stream(key: str, settings: ObjectSettings) -> DelayedOutputStream:
        return DelayedOutputStream(driver, key, settings, 5 * 1024 * 1024)

    root = TableRoot(driver.bucket, "t")
    schema = pa.schema([("p", pa.int64()), ("v", pa.int64())])
    return TaskWriter(root, JOB, 0, 0, schema, ("p",), FileOptions(**options), open_stream)


def test_uploads_complete_to_what_was_written(s3_bucket: Bucket) -> None:
    driver = connect(s3_bucket.name)
    task = real_writer(driver, max_open_partitions=2)
    table = numbers(2_000_000, 4)
    for batch in table.to_batches(max_chunksize=100_000):
        task.write(batch)
    result = task.close()
    assert task._spill.rows > 0
    assert s3_bucket.keys() == []
    for file in result.files:
        driver.perform(CompleteUpload(file.key, file.upload_id, file.etags))
        body = s3_bucket.read(file.key)
        assert len(body) == file.size
        assert file.checksum == f"sha256:{hashlib.sha256(body).hexdigest()}"
        head = s3_bucket.client.head_object(Bucket=s3_bucket.name, Key=file.key)
        assert head["Metadata"] == {"zero-rename-job": JOB}
    batches = [
        batch
        for file in result.files
        for batch in read_batches(
            driver,
            table.schema,
            ("p",),
            DataFile(file.key, file.partition, file.size, file.rows, file.checksum, JOB),
        )
    ]
    assert pa.Table.from_batches(batches).sort_by("v").equals(table)
