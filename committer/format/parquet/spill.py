"""Spill file: rows that wait on local disk until a task has room to write their partition.

There is one Arrow file for each task. It is written in runs: the rows gathered in memory are
ordered by partition and appended. To read a partition back, the file is mapped and the runs are
sliced; nothing is copied. The file has no name (it is unlinked as soon as it is made), so not even
a killed process leaves it behind: Spark kills tasks without running any ``finally``.
"""

from __future__ import annotations

import bisect
import mmap
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from ...errors import StreamError

_MIB = 1024 * 1024
#: Bytes that a batch takes in memory besides its values, so that many tiny batches count, too.
BATCH_OVERHEAD = 2048


class Spill:
    """Rows by partition, on disk. Several threads may read, one may write.

    :param schema: the rows' columns.
    :param buffer_bytes: bytes gathered in memory before a run is written.
    :param batch_rows: rows per batch of the file.
    """

    def __init__(
        self, schema: pa.Schema, buffer_bytes: int = 32 * _MIB, batch_rows: int = 65_536
    ) -> None:
        self._schema = schema
        self._buffer_bytes = buffer_bytes
        self._batch_rows = batch_rows
        self._gathered: dict[str, list[pa.RecordBatch]] = {}
        self._gathered_bytes = 0
        self._runs: dict[str, list[tuple[int, int]]] = {}
        self._starts: list[int] = []
        self._written_rows = 0
        self._file: Any = None
        self._writer: Any = None
        self._reader: Any = None
        self._lock = threading.Lock()
        self.rows = 0

    def __contains__(self, partition: str) -> bool:
        return partition in self._gathered or partition in self._runs

    @property
    def partitions(self) -> list[str]:
        """Partitions that have rows here, sorted."""
        return sorted(self._gathered.keys() | self._runs.keys())

    @property
    def bytes_on_disk(self) -> int:
        return self._file.tell() if self._file else 0

    def add(self, partition: str, batch: pa.RecordBatch) -> None:
        """Take rows of a partition.

        :raises StreamError: they cannot be written to local disk.
        """
        self._gathered.setdefault(partition, []).append(batch)
        self._gathered_bytes += batch.nbytes + BATCH_OVERHEAD
        self.rows += batch.num_rows
        if self._gathered_bytes >= self._buffer_bytes:
            self._write_run()

    def seal(self) -> None:
        """End the writing; to be called before :meth:`read`.

        :raises StreamError: rows cannot be written to local disk.
        """
        if not self._runs:
            return  # All rows are in memory: no file is needed.
        self._write_run()
        try:
            self._writer.close()
            self._file.flush()
            mapped = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise _failed(error) from error
        self._reader = pa.ipc.open_file(pa.py_buffer(mapped))

    def read(self, partition: str) -> Iterator[pa.RecordBatch]:
        """Yield a partition's rows, in the order in which they came."""
        yield from self._gathered.get(partition, ())
        for start, count in self._runs.get(partition, ()):
            end = start + count
            index = bisect.bisect_right(self._starts, start) - 1
            while start < end:
                with self._lock:
                    batch = self._reader.get_batch(index)
                offset = start - self._starts[index]
                piece = batch.slice(offset, end - start)
                yield piece
                start += piece.num_rows
                index += 1

    def close(self) -> None:
        """Drop all rows and free the disk space. May be repeated."""
        self._gathered, self._runs, self._starts = {}, {}, []
        self._reader = self._writer = None  # The mapping ends with the last slice of it.
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write_run(self) -> None:
        """Append the gathered rows to the file, ordered by partition."""
        gathered, self._gathered, self._gathered_bytes = self._gathered, {}, 0
        batches: list[pa.RecordBatch] = []
        for partition in sorted(gathered):
            count = sum(batch.num_rows for batch in gathered[partition])
            self._runs.setdefault(partition, []).append((self._written_rows, count))
            self._written_rows += count
            batches += gathered[partition]
        run = pa.Table.from_batches(batches, self._schema).combine_chunks()
        start = self._written_rows - run.num_rows
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115
                self._writer = pa.ipc.new_file(self._file, self._schema)
            for batch in run.to_batches(max_chunksize=self._batch_rows):
                self._writer.write_batch(batch)
                self._starts.append(start)
                start += batch.num_rows
        except OSError as error:
            raise _failed(error) from error


def _failed(error: OSError) -> StreamError:
    return StreamError(
        f"Rows cannot wait on local disk: {error}. Nothing of this task is visible.",
        remedy="Free space in the temporary directory or set TMPDIR to a larger one; or raise "
        "max_open_partitions; or repartition the data by its partition columns first.",
    )
