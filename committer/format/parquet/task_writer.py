"""Writer of one task attempt: it turns rows into pending files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import partial
from typing import Any, NoReturn

import pyarrow as pa

from ...errors import (
    InvalidInputError,
    StreamClosedError,
    StreamError,
    TaskLateError,
    ZeroRenameError,
    first_few,
)
from ..file_checks import check_options
from ..given_rows import batches_of
from ..job_spec import Content, FileOptions
from ..layout import UNPARTITIONED, TableRoot
from ..records.pending_file import PendingFile, TaskResult
from ..schema.compatibility import cast, normalise
from .batches import concatenated
from .file_writer import Describe, FileWriter, OpenStream, file_settings
from .partition_writer import PartitionWriter
from .row_content import RowContent
from .spill import BATCH_OVERHEAD, Spill
from .splitter import Splitter

_MIB = 1024 * 1024
#: Bytes of rows that wait for their row group, over all open partitions of a task.
_BUFFER_BYTES = 128 * _MIB
#: Batches are gathered to about this size before they are split by partition. Spark's have 10,000
#: rows, and a split costs time for each batch and partition, not for each row.
_STAGE_BYTES = 16 * _MIB
#: The same without partitions: there is nothing to split, so only tiny batches are gathered.
_STAGE_BYTES_UNPARTITIONED = 1 * _MIB
#: An open partition without rows in this number of splits makes room for another, so data sorted by
#: partition is written without spilling.
_IDLE_SPLITS = 4
#: Files closed at once: their encoding takes time, and parts may have to wait for others.
_THREADS = 8


def _key_by_task(root: TableRoot, job: str, task: int, partition: str, number: int) -> str:
    return root.data_key(partition, task, job, number)


class TaskWriter:
    """Writer of one task attempt's rows as pending files. For use by one thread.

    Rows are split by partition. At most ``options.max_open_partitions`` partitions have an open
    file. Rows of further partitions wait in a spill file and are written at :meth:`close`; so are
    the rows of partitions whose row groups would have less than 16 MiB for lack of memory. Memory:
    about 16 MiB being split, 128 MiB waiting for row groups, 32 MiB on their way to the spill file,
    besides what the streams hold.

    Any error, even an interrupt, aborts all uploads of the attempt, also finished ones. A note on
    the error names each upload that could not be aborted. After that, or after :meth:`abort`, the
    writer takes no more rows.

    :param root: the table's location.
    :param job: the job's id.
    :param task: the task's number.
    :param attempt: a number that is unique among the task's attempts.
    :param schema: the table's normalised schema, partition columns included. Its metadata is
        written to the files' footers.
    :param partition_by: the partition columns, outermost first.
    :param options: the options of the files.
    :param open_stream: opens an output stream of delayed visibility for a key.
    :param allowed_partitions: the only partitions that rows may be for; ``None``: any.
    :param narrowed: rows for any other partitions than these are left out, and counted; ``None``:
        no rows are.
    :param absent: columns that the rows may lack; they become null.
    :param sorted_by: columns by which the rows come sorted; the files record it.
    :param key_of: makes the key of a file from its partition and its number there; ``None``: the
        key is in the partition's directory, and has the task's number.
    :param keep_partition_by: the files hold the partition columns, too, since no directory has
        their values.
    :param describe: makes the summary of a pending file from its footer; ``None``: the bounds of
        its first columns.
    :param at_end: called when all files are uploaded, if there are any; if it raises, the files are
        aborted.
    :raises InvalidInputError: invalid options.
    """

    def __init__(
        self,
        root: TableRoot,
        job: str,
        task: int,
        attempt: int,
        schema: pa.Schema,
        partition_by: tuple[str, ...],
        options: FileOptions,
        open_stream: OpenStream,
        allowed_partitions: Collection[str] | None = None,
        absent: frozenset[str] = frozenset(),
        at_end: Callable[[], object] | None = None,
        key_of: Callable[[str, int], str] | None = None,
        describe: Describe | None = None,
        keep_partition_by: bool = False,
        sorted_by: Sequence[str] = (),
        narrowed: Collection[str] | None = None,
    ) -> None:
        check_options(options)
        self._root = root
        self._job = job
        self._task = task
        self._attempt = attempt
        self._schema = normalise(schema)
        self._absent = absent
        self._at_end = at_end
        self._key_of = key_of or partial(_key_by_task, root, job, task)
        self._describe = describe
        self._options = options
        self._open_stream = open_stream
        self._allowed = allowed_partitions
        self._narrowed = narrowed
        self._left_out = 0
        self._sorted_by = sorted_by
        self._settings = file_settings(job, options)
        self._splitter = Splitter(self._schema, partition_by, keep_partition_by)
        self._partitioned = bool(partition_by)
        self._stage_bytes = _STAGE_BYTES if partition_by else _STAGE_BYTES_UNPARTITIONED
        self._staged: list[pa.RecordBatch] = []
        self._staged_bytes = 0
        self._splits = 0
        self._open: dict[str, tuple[PartitionWriter, int]] = {}  # least recently used first
        self._buffered = 0
        self._evicted: set[str] = set()
        self._numbers: dict[str, int] = {}
        self._files: list[FileWriter] = []
        self._spill = Spill(self._splitter.data_schema)
        self._state = "open"
        self._result: TaskResult | None = None

    def write(self, rows: Any) -> None:
        """Take rows; match their columns by name, and cast them if nothing is lost.

        :param rows: rows in any form that :func:`.given_rows.batches_of` accepts.

        Rows may be gathered first. So an error in them may be raised by a later call, but always
        before any of them is uploaded.

        :raises InvalidInputError: other columns than the table's, a value that would change,
            or a partition that is not allowed or cannot be a directory.
        :raises StreamError: a file could not be uploaded, or rows not spilled.
        :raises StreamClosedError: the writer was closed or aborted.
        """
        self._check_open()
        try:
            for batch in batches_of(rows):
                for piece in _pieces(batch):
                    self._take(cast(piece, self._schema, self._absent))
        except BaseException as error:
            self._fail(error)

    def close(self) -> TaskResult:
        """Write the remaining rows and wait until the store has all files. May be repeated.

        :returns: the attempt's files, sorted by key; empty if no row came.
        :raises: the errors of :meth:`write` and ``at_end``.
        """
        if self._result is not None and self._state == "closed":
            return self._result
        self._check_open()
        try:
            self._split()
            self._spill.seal()
            self._close_all()
            self._spill.close()
            finished = self._finished()
            if finished and self._at_end is not None:
                self._at_end()
        except BaseException as error:
            self._fail(error)
        files = tuple(sorted(finished, key=lambda file: file.key))
        self._result = TaskResult(
            self._job, self._task, self._attempt, files, left_out=self._left_out
        )
        self._state = "closed"
        return self._result

    def abort(self) -> tuple[Exception, ...]:
        """Abort the attempt's uploads, even those of a closed writer. May be repeated.

        :returns: an error for each upload that may stay in the store, invisible, until purge finds
            it.
        """
        if self._state == "aborted":
            return ()
        self._state = "aborted"
        self._open, self._staged = {}, []
        self._spill.close()
        if len(self._files) < 2:
            outcomes = [file.abort() for file in self._files]
        else:
            with ThreadPoolExecutor(_THREADS) as pool:
                outcomes = list(pool.map(FileWriter.abort, self._files))
        self._files = []
        return tuple(outcome for outcome in outcomes if outcome is not None)

    # Inside.

    def _check_open(self) -> None:
        if self._state != "open":
            raise StreamClosedError(
                f"The writer of task {self._task} was {self._state}; it takes no more rows.",
                table=self._root.url,
                job=self._job,
            )

    def _fail(self, error: BaseException) -> NoReturn:
        """Abort the attempt and raise ``error``, with failed aborts as its notes.

        If the uploads are missing because the job is over, :class:`TaskLateError` is raised
        instead.
        """
        for left in self.abort():
            error.add_note(f"Also, aborting an upload of this task failed: {left}")
        if isinstance(error, StreamError) and self._at_end is not None:
            try:
                self._at_end()
            except TaskLateError as late:
                raise late from error
            except ZeroRenameError as other:
                error.add_note(f"Also, nobody knows whether its job is over: {other}")
        raise error

    def _take(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        if not self._partitioned and not self._open:
            # There are rows for the one file: its upload is created while more rows come.
            writer = self._partition_writer(UNPARTITIONED, _BUFFER_BYTES)
            writer.open()
            self._open[UNPARTITIONED] = (writer, self._splits)
        self._staged.append(batch)
        self._staged_bytes += batch.nbytes + BATCH_OVERHEAD
        if self._staged_bytes >= self._stage_bytes:
            self._split()

    def _split(self) -> None:
        """Pass the staged rows to the writers of their partitions."""
        if not self._staged:
            return
        staged = self._staged
        batch = staged[0] if len(staged) == 1 else concatenated(staged)
        self._staged, self._staged_bytes = [], 0
        self._splits += 1
        for partition, rows in self._check_allowed(self._splitter.split(batch)):
            self._route(partition, rows)

    def _check_allowed(
        self, parts: Iterator[tuple[str, pa.RecordBatch]]
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        for partition, rows in parts:
            if self._allowed is not None and partition not in self._allowed:
                what = f"the partition {partition!r}" if self._partitioned else "the table"
                named = first_few(sorted(self._allowed))
                those = f" ({named})" if named else ": it names none"
                raise InvalidInputError(
                    f"There are rows for {what}, which is not among the partitions that this job "
                    f"may write{those}. Nothing of this task is visible.",
                    table=self._root.url,
                    job=self._job,
                    remedy="Filter the rows, or name that partition too.",
                )
            if self._narrowed is None or partition in self._narrowed:
                yield partition, rows
            else:
                self._left_out += rows.num_rows

    def _route(self, partition: str, rows: pa.RecordBatch) -> None:
        """Pass rows to the partition's open writer, to a new one, or to the spill file."""
        found = self._open.pop(partition, None)
        if found is None:
            waits = partition in self._spill or partition in self._evicted
            if waits or not self._make_room():
                self._spill.add(partition, rows)
                return
            writer = self._partition_writer(partition, _BUFFER_BYTES)
        else:
            writer = found[0]
        self._open[partition] = (writer, self._splits)
        self._buffered -= writer.buffered
        writer.add(rows)
        self._buffered += writer.buffered
        while self._buffered > _BUFFER_BYTES:
            self._free_memory()

    def _make_room(self) -> bool:
        if len(self._open) < self._options.max_open_partitions:
            return True
        oldest, (writer, last) = next(iter(self._open.items()))
        if self._splits - last < _IDLE_SPLITS:
            return False
        del self._open[oldest]
        self._evicted.add(oldest)
        self._buffered -= writer.buffered
        writer.close()
        return True

    def _free_memory(self) -> None:
        """Write the largest row group, or move the smallest partition without a file to disk.

        The latter only if the largest row group is small, and such a partition exists. Small row
        groups are avoided, since a column's values are compressed within their row group.
        """
        largest = max((writer for writer, _ in self._open.values()), key=lambda w: w.buffered)
        unbegun = [name for name, (writer, _) in self._open.items() if not writer.has_begun]
        if largest.buffered >= _BUFFER_BYTES // _THREADS or not unbegun:
            self._buffered -= largest.buffered
            largest.flush()
            return
        smallest = min(unbegun, key=lambda name: self._open[name][0].buffered)
        writer, _ = self._open.pop(smallest)
        self._buffered -= writer.buffered
        for rows in writer.waiting:
            self._spill.add(smallest, rows)

    def _partition_writer(self, partition: str, buffer_bytes: int) -> PartitionWriter:
        return PartitionWriter(
            self._splitter.data_schema,
            self._options,
            lambda: self._open_file(partition),
            buffer_bytes,
        )

    def _open_file(self, partition: str) -> FileWriter:
        number = self._numbers.get(partition, 0)
        self._numbers[partition] = number + 1
        stream = self._open_stream(self._key_of(partition, number), self._settings)
        stream.begin()
        options = self._options
        file = FileWriter(
            stream,
            partition,
            self._splitter.data_schema,
            options.compression,
            self._sorted_by,
            RowContent() if options.content is Content.ROWS else None,
            self._describe,
        )
        self._files.append(file)
        return file

    def _close_all(self) -> None:
        """Close open partitions and write spilled ones, several at once."""
        writers = [writer for writer, _ in self._open.values()]
        for writer in writers:
            if writer.waiting:
                writer.open()
        work = [writer.close for writer in writers]
        work += [partial(self._write_spilled, name) for name in self._spill.partitions]
        self._open = {}
        if len(work) == 1:
            work[0]()
            return
        with ThreadPoolExecutor(_THREADS) as pool:
            futures = [pool.submit(job) for job in work]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
            finally:
                for future in futures:
                    future.cancel()
        # Outside the pool: all work that had begun has ended, so an abort sees every upload.
        _raise_first([f.exception() for f in futures if not f.cancelled()])

    def _finished(self) -> list[PendingFile]:
        """Wait until the store has all parts of each file, and return the files."""
        found: list[PendingFile] = []
        failures: list[BaseException | None] = []
        for file in self._files:
            try:
                found.append(file.finish())
            except Exception as error:
                failures.append(error)
        _raise_first(failures)
        return found

    def _write_spilled(self, partition: str) -> None:
        writer = self._partition_writer(partition, _BUFFER_BYTES // _THREADS)
        for rows in self._spill.read(partition):
            writer.add(rows)
        writer.close()
        writer.settle()


def _raise_first(failures: Iterable[BaseException | None]) -> None:
    """Raise the first failure, if any, with the others as its notes."""
    found = [failure for failure in failures if failure is not None]
    for other in found[1:]:
        found[0].add_note(f"Also, another file of this task failed: {other}")
    if found:
        raise found[0]


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Slice a large batch: a cast or a split copies all the rows that it is given."""
    count = -(-_size(batch) // (2 * _STAGE_BYTES))
    rows = max(1, -(-batch.num_rows // max(1, count)))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def _size(batch: pa.RecordBatch) -> int:
    try:
        return batch.nbytes
    except pa.ArrowTypeError:  # For views before pyarrow 19; a slice counts with its whole buffers.
        return batch.get_total_buffer_size()
