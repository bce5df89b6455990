"""One Parquet file on its way into a pending upload."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import StreamError
from ...store.requests import ObjectSettings
from ..records.pending_file import PendingFile
from .dictionaries import dictionary_columns

#: Where Arrow's default is another than that of Spark's writer.
_LEVELS = {"zstd": 3}
#: What Spark's writer does, too, and what pyarrow does only when it is asked to; older versions of
#: pyarrow store decimals as bytes.
_LIKE_SPARK: dict[str, Any] = {
    name: True
    for name in ("write_page_index", "store_decimal_as_integer")
    if name in signature(pq.ParquetWriter).parameters
}


class PendingStream(Protocol):
    """What is needed of :class:`.upload_stream.DelayedOutputStream`."""

    key: str

    def write(self, data: Any) -> int: ...

    def close(self) -> None: ...

    def abort(self) -> Any: ...

    @property
    def upload(self) -> Any: ...


#: Opens the stream of a key; sends nothing yet.
OpenStream = Callable[[str, ObjectSettings], PendingStream]


class _Sink:
    """The Python file that pyarrow writes to.

    pyarrow's writers write a footer when they are garbage-collected; after :meth:`drop` such
    late bytes go nowhere, and pyarrow's own flush and close never reach the stream.
    """

    mode = "wb"
    closed = False

    def __init__(self, stream: PendingStream) -> None:
        self._stream: PendingStream | None = stream
        self._size = 0

    def write(self, data: Any) -> int:
        size = len(data)
        if self._stream is not None:
            self._stream.write(data)
            self._size += size
        return size

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        """Nothing to do: the stream uploads parts when they are full."""

    def close(self) -> None:
        """Nothing to do: the file's writer closes the stream."""

    def drop(self) -> None:
        self._stream = None


class FileWriter:
    """Writes one Parquet file of at least one row.

    :param stream: where its bytes go.
    :param partition: the partition it lies in.
    :param schema: the file's columns; its metadata reaches the footer.
    :param compression: Parquet codec.
    """

    def __init__(
        self, stream: PendingStream, partition: str, schema: pa.Schema, compression: str
    ) -> None:
        self._stream = stream
        self._partition = partition
        self._sink = _Sink(stream)
        self._aborted = False
        self.rows = 0
        self._schema = schema
        self._compression = compression
        self._writer: pq.ParquetWriter | None = None

    @property
    def size(self) -> int:
        """Bytes handed to the stream so far."""
        return self._sink.tell()

    def write(self, rows: pa.Table) -> None:
        """Write a row group.

        :raises StreamError: a part could not be uploaded.
        """
        if self._writer is None:  # not in __init__: it writes, and may fail
            self._writer = pq.ParquetWriter(
                self._sink,
                self._schema,
                compression=self._compression,
                compression_level=_LEVELS.get(self._compression),
                use_dictionary=dictionary_columns(rows),  # pyright: ignore[reportArgumentType]
                **_LIKE_SPARK,
            )
        self._writer.write_table(rows, row_group_size=max(1, rows.num_rows))
        self.rows += rows.num_rows

    def finish(self) -> PendingFile:
        """Write the footer and wait until the store has all parts.

        :raises StreamError: the upload failed; it is aborted by :meth:`abort`.
        """
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        written = self.size
        self._sink.drop()
        self._stream.close()
        upload = self._stream.upload
        if upload.size != written:
            raise StreamError(
                f"{written} bytes were written, {upload.size} uploaded.", key=self._stream.key
            )
        return PendingFile(
            key=upload.key,
            partition=self._partition,
            upload_id=upload.upload_id,
            etags=tuple(upload.etags),
            size=upload.size,
            rows=self.rows,
            checksum=upload.checksum,
        )

    def abort(self) -> Exception | None:
        """Give the file up, finished or not. May be repeated.

        :returns: why its upload may be left in the store, or ``None``.
        """
        if self._aborted:
            return None
        self._aborted = True
        self._sink.drop()
        if self._writer is not None:
            self._writer.is_open = False  # else its finaliser writes a footer
        try:
            outcome = self._stream.abort()
        except Exception as error:
            return error
        return getattr(outcome, "cleanup_error", None)
