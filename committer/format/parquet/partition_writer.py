"""Writer of one partition's rows: it forms row groups and files."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from ..job_spec import FileOptions
from .batches import positions
from .file_writer import FileWriter, nan_columns

#: A file ends once it has this share of ``bytes_per_file``: to fill the rest would take smaller and
#: smaller row groups.
_FULL = 0.9


class PartitionWriter:
    """Collector of a partition's rows into row groups and files.

    :param schema: columns of the files.
    :param options: the limits of files and row groups.
    :param open_file: starts the partition's next file.
    :param buffer_bytes: a row group is written when this number of bytes waits, or earlier.
    """

    def __init__(
        self,
        schema: pa.Schema,
        options: FileOptions,
        open_file: Callable[[], FileWriter],
        buffer_bytes: int,
    ) -> None:
        self._schema = schema
        self._options = options
        self._open_file = open_file
        self._limit = buffer_bytes
        self._file: FileWriter | None = None
        self.waiting: list[pa.RecordBatch] = []
        self._rows = 0
        self._ratio = 1.0
        self.buffered = 0
        self._sealed: FileWriter | None = None
        #: Columns that have held NaN: see :meth:`.FileWriter.write`.
        self._unbounded: set[str] = set()

    @property
    def has_begun(self) -> bool:
        """True if a file has been opened; otherwise all rows so far are ``waiting``."""
        return self._file is not None or self._sealed is not None

    def open(self) -> FileWriter:
        """Return the file for the next row group; if none is open, open one."""
        if self._file is None:
            self._file = self._open_file()
        return self._file

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows; write a row group, or end a file, when a limit is reached."""
        at = 0
        per_row = batch.nbytes / batch.num_rows if batch.num_rows else 0.0
        while at < batch.num_rows:
            room = self._room(per_row)
            if room < 1:  # These rows are larger than the earlier ones.
                self.flush()
                continue
            piece = batch.slice(at, room)
            at += piece.num_rows
            self.waiting.append(_own(piece))
            self._rows += piece.num_rows
            self.buffered += int(per_row * piece.num_rows)
            if self._room(per_row) < 1:
                self.flush()

    def flush(self) -> None:
        """Write the waiting rows as a row group, and end the file if it is full."""
        if not self._rows:
            return
        table = pa.Table.from_batches(self.waiting, self._schema)
        file = self._open_for(table)
        before = file.size
        raw, self.waiting, self._rows, self.buffered = self.buffered, [], 0, 0
        file.write(table, self._unbounded)
        if raw:
            self._ratio = max(0.001, (file.size - before) / raw)
        options = self._options
        if file.rows == options.rows_per_file or (
            options.bytes_per_file and file.size >= _FULL * options.bytes_per_file
        ):
            self._end_file()

    def _open_for(self, rows: pa.Table) -> FileWriter:
        """Return the file for a row group: another one if its columns hold NaN that had none."""
        found = nan_columns(rows)
        if not found <= self._unbounded:
            self._unbounded |= found
            if self._file is not None and self._file.rows:
                self._end_file()
        return self.open()

    def close(self) -> None:
        """Write the rest, and end the last file without waiting for the store.

        :meth:`settle`, or the file's own ``finish``, waits for it.
        """
        self.flush()
        self._end_file()

    def settle(self) -> None:
        """Wait until the store has all parts of the last file that has ended."""
        if self._sealed is not None:
            self._sealed.settle()

    def _end_file(self) -> None:
        if self._file is not None:
            self._file.seal()
            self.settle()  # Of the file before: its failure ends the task now, not after all files.
            self._sealed, self._file = self._file, None

    def _room(self, per_row: float) -> int:
        """Return how many rows fit before a row group must be written; 0 or less: none.

        :param per_row: bytes of one of these rows.
        """
        options = self._options
        rows = options.row_group_rows - self._rows
        size = self._limit - self.buffered
        if options.rows_per_file:
            in_file = self._file.rows if self._file else 0
            rows = min(rows, options.rows_per_file - in_file - self._rows)
        if options.bytes_per_file:
            left = options.bytes_per_file - (self._file.size if self._file else 0)
            size = min(size, int(left / self._ratio) - self.buffered)
        if not self._rows:
            return min(rows, max(1, int(size / per_row))) if per_row else rows
        return min(rows, int(size / per_row)) if per_row else rows


def _own(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Copy a batch that is a small slice of a large one.

    A waiting slice would keep all of the large batch in memory.
    """
    if batch.get_total_buffer_size() <= 4 * batch.nbytes + 1024:
        return batch
    return batch.take(positions(0, batch.num_rows))
