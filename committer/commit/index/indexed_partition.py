"""Partitions in an object of the index: Parquet, with one row for each file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import RecordDamagedError
from ...format.layout import TableRoot, job_in_key
from ...format.records.data_file import DataFile, is_content

#: A partition without files has one row, without a key. Keys are relative to the table's root.
#: Former versions wrote no ``summary`` or ``content``, and cannot read an index that has them.
_SCHEMA = pa.schema(
    [
        pa.field("partition", pa.string(), nullable=False),
        pa.field("etag", pa.string(), nullable=False),
        pa.field("version", pa.int64(), nullable=False),
        pa.field("schema_version", pa.int64(), nullable=False),
        pa.field("key", pa.string()),
        pa.field("size", pa.int64()),
        pa.field("rows", pa.int64()),
        pa.field("checksum", pa.string()),
        pa.field("job", pa.string()),
        pa.field("summary", pa.string()),
        pa.field("content", pa.string()),
    ]
)
#: Number of columns of the first versions; the columns after these came one by one.
_LEAST = 9
_ENCODINGS = {name: "DELTA_BYTE_ARRAY" for name in ("key", "checksum", "summary")}
_DICTIONARIES = ["partition", "etag", "version", "schema_version", "job"]


@dataclass(frozen=True)
class IndexedPartition:
    """Content of a partition's head while the head had a certain ETag and carried no claim.

    A head never has an ETag a second time, and what it names does not change. So a reader that
    finds the ETag in a listing need not read the head.

    :param files: oldest first.
    :param schema_version: the head's.
    """

    name: str
    etag: str
    version: int
    files: tuple[DataFile, ...]
    schema_version: int = 0

    @property
    def rows(self) -> int:
        """Number of rows that the partition takes in the index."""
        return max(1, len(self.files))


def encode_part(root: TableRoot, partitions: Iterable[IndexedPartition]) -> bytes:
    """Encode partitions as one object of the index."""
    start = len(root.prefix) + 1
    rows = [
        (it.name, it.etag, it.version, it.schema_version, *_of_file(file, start))
        for it in partitions
        for file in it.files or (None,)
    ]
    columns = [
        pa.array(column, field.type)
        for column, field in zip(zip(*rows, strict=True), _SCHEMA, strict=True)
    ]
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.Table.from_arrays(columns, schema=_SCHEMA),
        sink,
        compression="zstd",
        use_dictionary=_DICTIONARIES,
        column_encoding=_ENCODINGS,
        write_statistics=False,
    )
    return sink.getvalue().to_pybytes()


def _of_file(file: DataFile | None, start: int) -> tuple[object, ...]:
    if file is None:
        return (None,) * 7
    # Most files have their job's id in their name.
    job = None if file.job == job_in_key(file.key) else file.job
    more = file.summary or None, file.content or None
    return file.key[start:], file.size, file.rows, file.checksum, job, *more


def decode_part(body: bytes, key: str, root: TableRoot, rows: int) -> list[IndexedPartition]:
    """Decode the partitions in one object of the index.

    :param rows: how many rows it should have.
    :raises RecordDamagedError: it holds something else.
    """
    try:
        parquet = pq.ParquetFile(pa.BufferReader(body))
        if parquet.metadata.num_rows != rows:
            raise _damaged(key, f"has {parquet.metadata.num_rows} rows, not {rows}")
        there = parquet.schema_arrow
        if len(there) < _LEAST or not there.equals(pa.schema(list(_SCHEMA)[: len(there)])):
            raise _damaged(key, "has other columns")
        columns = [column.to_pylist() for column in parquet.read().columns]
        columns += [[None] * rows] * (len(_SCHEMA) - len(columns))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _damaged(key, f"is no Parquet file: {error}") from error
    found = []
    for head, lines in groupby(zip(*columns, strict=True), lambda line: line[:4]):
        name, etag, version, schema_version = head
        files = tuple(_file(root, key, line) for line in lines if line[4] is not None)
        found.append(IndexedPartition(name, etag, version, files, schema_version))
    return found


def _file(root: TableRoot, part: str, line: tuple) -> DataFile:
    partition, _, _, _, inner, size, rows, checksum, job, summary, content = line
    content = content or ""
    key = f"{root.prefix}/{inner}"
    if root.partition_of_data_key(key) != partition:
        raise _damaged(part, f"names {inner!r} of another partition than {partition!r}")
    writer = job_in_key(key) if job is None else job
    if None in (size, rows, checksum) or writer is None or not is_content(content):
        raise _damaged(part, f"says of {inner!r} what no file has")
    if size < 0 or rows < -1:
        raise _damaged(part, f"says of {inner!r} what no file has")
    return DataFile(key, partition, size, rows, checksum, writer, summary or "", content)


def _damaged(key: str, what: str) -> RecordDamagedError:
    return RecordDamagedError(
        f"An object of the table's index {what}. Readers go on without it.",
        field="",
        key=key,
        remedy="Write the index anew: zero-rename index TABLE",
    )
