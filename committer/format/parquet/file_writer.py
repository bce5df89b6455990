"""Writer of one Parquet file into a pending upload."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from inspect import signature
from random import Random
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from ...errors import StreamError
from ...store.requests import ObjectSettings
from ..job_spec import FileOptions
from ..layout import JOB_METADATA
from ..records.pending_file import PendingFile
from ..schema.array_cast import cast_array
from ..schema.types import has_part
from .annotations import stored_schema
from .column_bounds import summarise
from .row_content import RowContent

#: Rows of a sample, and the number of runs that they are taken in. Runs, not single rows, so that a
#: sorted column still looks sorted.
_SAMPLE, _RUNS = 20_000, 10
#: A first sample has a fifth of those rows: from each fortieth of them a stretch, at random places,
#: since rows may be copies of others at any distance.
_STRETCHES, _FEWER, _SHORTEST = 40, 5, 20
_random = Random(0)
_BEGINS = [_random.uniform(0, _FEWER - 1) for _ in range(_STRETCHES)]

#: Compression levels of Spark's writer, if Arrow's default is another.
_LEVELS = {"zstd": 3}
#: Options that make pyarrow write as Spark's writer does. Older versions of pyarrow lack some: they
#: store decimals as bytes.
_LIKE_SPARK: dict[str, Any] = {
    name: True
    for name in ("write_page_index", "store_decimal_as_integer")
    if name in signature(pq.ParquetWriter).parameters
}


class PendingStream(Protocol):
    """The methods of :class:`.upload_stream.DelayedOutputStream` that a file's writer needs."""

    key: str

    def write(self, data: Any) -> int: ...

    def begin(self) -> None: ...

    def seal(self) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> Any: ...

    @property
    def upload(self) -> Any: ...


#: Opens the stream of a key; sends nothing yet.
OpenStream = Callable[[str, ObjectSettings], PendingStream]
#: Makes the summary of a pending file from the file's footer, and from the nulls of the columns
#: that have no statistics there, by name.
Describe = Callable[[pq.FileMetaData, Mapping[str, int]], str]


def file_settings(job: str, options: FileOptions) -> ObjectSettings:
    """Return the settings with which a job's data objects are created."""
    return ObjectSettings(
        {**options.metadata, JOB_METADATA: job},
        options.storage_class,
        options.tags,
        options.encrypted,
    )


class _Sink:
    """The Python file that pyarrow writes to.

    pyarrow's writers write a footer when they are garbage-collected. After :meth:`drop` such late
    bytes are discarded. pyarrow's own flush and close never reach the stream.
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
        """Do nothing: the stream uploads parts when they are full."""

    def close(self) -> None:
        """Do nothing: the file's writer closes the stream."""

    def drop(self) -> None:
        self._stream = None


class FileWriter:
    """Writer of one Parquet file of at least one row.

    :param stream: the stream that takes its bytes.
    :param partition: the file's partition.
    :param schema: the file's columns; its metadata is written to the footer.
    :param compression: Parquet codec.
    :param sorted_by: columns by which its rows come sorted, ascending, null last.
    :param content: adds up the hashes of the file's rows; ``None``: rows are not hashed.
    :param describe: makes the summary from its footer; ``None``: the bounds of its first columns.
    """

    def __init__(
        self,
        stream: PendingStream,
        partition: str,
        schema: pa.Schema,
        compression: str,
        sorted_by: Sequence[str] = (),
        content: RowContent | None = None,
        describe: Describe | None = None,
    ) -> None:
        self._stream = stream
        self._partition = partition
        self._sink = _Sink(stream)
        self._aborted = False
        self.rows = 0
        self._schema = schema
        self._stored = stored_schema(schema)
        self._compression = compression
        self._sorted_by = sorted_by
        self._content = content
        self._describe = describe or self._bounds
        self._writer: pq.ParquetWriter | None = None
        self._footers: list[pq.FileMetaData] = []
        #: Nulls of the columns without statistics.
        self._nulls: dict[str, int] = {}
        self._summary = ""

    @property
    def size(self) -> int:
        """Bytes written to the stream so far."""
        return self._sink.tell()

    def write(self, rows: pa.Table, unbounded: Collection[str] = ()) -> None:
        """Write a row group.

        :param unbounded: Parquet's names of columns that may hold NaN in the file; counts for the
            first row group. Arrow's statistics ignore NaN, and readers for which it is the greatest
            value would leave its rows out. So these columns have no statistics.
        :raises StreamError: a part could not be uploaded.
        """
        if self._writer is None:  # not in __init__: it writes, and may fail
            self._writer = pq.ParquetWriter(
                self._sink,
                self._stored,
                compression=self._compression,
                compression_level=_LEVELS.get(self._compression),
                use_dictionary=dictionary_columns(rows),
                metadata_collector=self._footers,
                sorting_columns=self._sorting_columns(),
                write_statistics=self._bounded(unbounded),
                **_LIKE_SPARK,
            )
            self._nulls = {name: 0 for name in self._schema.names if name in unbounded}
        for name in self._nulls:
            self._nulls[name] += rows.column(name).null_count
        self._writer.write_table(self._annotated(rows), row_group_size=max(1, rows.num_rows))
        self.rows += rows.num_rows
        if self._content is not None:
            self._content.add(rows)

    def _bounded(self, unbounded: Collection[str]) -> bool | list[str]:
        """Return the columns that get statistics; ``True``: all."""
        if not unbounded:
            return True
        parts = (_leaves(field.name, pa.nulls(0, field.type)) for field in self._stored)
        return [path for leaves in parts for path, _ in leaves if path not in unbounded]

    def _annotated(self, rows: pa.Table) -> pa.Table:
        """Cast rows to the types for which pyarrow writes the annotations of their columns."""
        if self._stored.equals(self._schema):
            return rows
        columns = [
            pa.chunked_array([cast_array(chunk, field.type) for chunk in column.chunks], field.type)
            for column, field in zip(rows.columns, self._stored, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=self._stored)

    def seal(self) -> None:
        """Write the footer, and send the last bytes without waiting for the store.

        :raises StreamError: a part could not be uploaded.
        """
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            self._summary = self._describe(self._footers.pop(), self._nulls)
        self._sink.drop()
        self._stream.seal()

    def _bounds(self, footer: pq.FileMetaData, _: Mapping[str, int]) -> str:
        return summarise(footer, self._schema, self._sorted_by)

    def settle(self) -> None:
        """Wait until the store has all parts of a sealed file. May be repeated.

        :raises StreamError: the upload failed; it is aborted by :meth:`abort`.
        """
        self._stream.close()

    def finish(self) -> PendingFile:
        """Wait as :meth:`settle`, and describe the file.

        :raises StreamError: the upload failed; it is aborted by :meth:`abort`.
        """
        written = self.size
        self.settle()
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
            summary=self._summary,
            content="" if self._content is None else self._content.digest,
        )

    def _sorting_columns(self) -> Sequence[pq.SortingColumn] | None:
        if not self._sorted_by:
            return None
        keys = [(name, "ascending") for name in self._sorted_by]
        return pq.SortingColumn.from_ordering(self._stored, keys, null_placement="at_end")

    def abort(self) -> Exception | None:
        """Abort the file, finished or not. May be repeated.

        :returns: the reason why its upload may still be in the store; ``None``: it is not.
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


def dictionary_columns(rows: pa.Table) -> list[str]:
    """Choose the columns that get a dictionary, by Parquet's names (``a.list.element``).

    :param rows: a file's first row group, in a table's normalised types.
    """
    sample = _sample(rows)
    return [
        path
        for name in sample.column_names
        for path, values in _leaves(name, pa.concat_arrays(sample.column(name).chunks))
        if _pays(values)
    ]


def nan_columns(rows: pa.Table) -> set[str]:
    """Return the columns in which a row holds NaN, by Parquet's names."""
    return {
        path
        for name in rows.column_names
        if has_part(rows.schema.field(name).type, _is_float)
        for chunk in rows.column(name).chunks
        for path, values in _leaves(name, chunk)
        if _is_float(values.type)
        and pc.call_function("any", [pc.call_function("is_nan", [values])]).as_py()
    }


def _is_float(kind: pa.DataType) -> bool:
    return pt.is_float32(kind) or pt.is_float64(kind)


def _sample(rows: pa.Table) -> pa.Table:
    if rows.num_rows <= _SAMPLE:
        return rows
    step = rows.num_rows // _RUNS
    return pa.concat_tables([rows.slice(run * step, _SAMPLE // _RUNS) for run in range(_RUNS)])


def _leaves(path: str, values: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    kind = values.type
    if pt.is_struct(kind):
        for field, inner in zip(kind, values.flatten(), strict=True):
            yield from _leaves(f"{path}.{field.name}", inner)
    elif pt.is_map(kind):
        entries = values.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
        for name, inner in zip(("key", "value"), entries.flatten().flatten(), strict=True):
            yield from _leaves(f"{path}.key_value.{name}", inner)
    elif pt.is_list(kind):
        yield from _leaves(f"{path}.list.element", values.flatten())
    else:
        yield path, values.drop_null()


def _pays(values: pa.Array) -> bool:
    """Return whether a dictionary and its indices are smaller than the plain values."""
    if not len(values) or pt.is_boolean(values.type) or pt.is_null(values.type):
        return False
    if _hardly_repeats(values):
        return False
    distinct = values.unique()
    index_bits = max(1, (len(distinct) - 1).bit_length())
    return len(values) * index_bits / 8 + _plain_bytes(distinct) < _plain_bytes(values)


def _hardly_repeats(values: pa.Array) -> bool:
    """Return whether a sample of the values has hardly any repeats, as in keys and measurements.

    If each value came twice, a sample of a fifth of them would show every fifth value twice.
    """
    size = len(values) // (_FEWER * _STRETCHES)
    if size < _SHORTEST:
        return False
    places = [int((_FEWER * number + begin) * size) for number, begin in enumerate(_BEGINS)]
    few = pa.concat_arrays([values.slice(place, size) for place in places])
    return len(few.unique()) >= 0.999 * len(few)


def _plain_bytes(values: pa.Array) -> int:
    """Return the bytes that values take in a page without a dictionary."""
    kind = values.type
    if pt.is_string(kind) or pt.is_binary(kind):
        characters = pc.call_function("sum", [pc.call_function("binary_length", [values])])
        return 4 * len(values) + (characters.as_py() or 0)
    if pt.is_decimal(kind):
        width = 4 if kind.precision <= 9 else 8 if kind.precision <= 18 else 16
    else:
        width = max(4, kind.bit_width // 8)
    return width * len(values)
