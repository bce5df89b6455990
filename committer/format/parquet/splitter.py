"""Splitter of batches by partition, with Arrow's kernels: no code in Python runs for each row.

Each partition column is dictionary-encoded. The codes of all columns are combined into one code for
each row. Only the distinct combinations are converted to directory names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from ..layout import UNPARTITIONED
from ..schema.compatibility import data_schema
from ..schema.hive_paths import escape, format_values
from ..schema.whole_numbers import whole_number

_FEW = 256


class Splitter:
    """Splitter of a table's batches into the rows of each partition.

    :param schema: the table's normalised schema.
    :param partition_by: its partition columns, outermost first; may be empty.
    :param keep: leave the partition columns in the rows. An empty text becomes null there, since
        null and the empty text share a partition.
    """

    def __init__(self, schema: pa.Schema, partition_by: Sequence[str], keep: bool = False) -> None:
        self._columns = tuple(partition_by)
        self._names = [escape(column) for column in partition_by]
        self.data_schema = schema if keep else data_schema(schema, partition_by)
        self._kept_texts = [
            index
            for index, field in enumerate(schema)
            if keep and field.name in self._columns and pt.is_string(field.type)
        ]

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Split a batch by partition, in the order of each partition's first row.

        All paths are made before the first pair is yielded, so an impossible value stops the batch
        as a whole. Rows keep their order within a partition. A path can come twice: null and the
        empty string share one. The rows may be a slice of a larger batch.

        :param batch: a batch with the columns of the given schema, in that order.
        :returns: pairs of a partition's path and its rows, without the partition columns unless
            these are kept.
        :raises InvalidInputError: a value that no directory can hold.
        """
        if not batch.num_rows:
            return
        for index in self._kept_texts:
            texts = batch.column(index)
            texts = pc.if_else(pc.equal(texts, ""), pa.scalar(None, texts.type), texts)
            batch = batch.set_column(index, batch.schema.field(index), texts)
        data = batch.select(self.data_schema.names).replace_schema_metadata(
            self.data_schema.metadata
        )
        if not self._columns:
            yield UNPARTITIONED, data
            return
        codes, paths = self._encode(batch)
        if len(set(paths)) == 1:
            yield paths[0], data
            return
        yield from _take_each(data, codes, paths)

    def _encode(self, batch: pa.RecordBatch) -> tuple[pa.Array, list[str]]:
        """Return a code for each row, and the path of each code."""
        codes, parts = _encode_column(self._columns[0], batch.column(self._columns[0]))
        paths = [f"{self._names[0]}={part}" for part in parts]
        for column, name in zip(self._columns[1:], self._names[1:], strict=True):
            inner, parts = _encode_column(column, batch.column(column))
            # Both factors are at most the number of rows: 64 bits are enough.
            factor = whole_number(len(parts), pa.int64())
            pairs = pc.add(pc.multiply(codes, factor), inner).dictionary_encode()
            codes = pairs.indices.cast(pa.int64())
            distinct = pairs.dictionary.to_pylist()
            paths = [
                f"{paths[pair // len(parts)]}/{name}={parts[pair % len(parts)]}"
                for pair in distinct
            ]
        return codes, paths


def partition_paths(rows: pa.RecordBatch, partition_by: Sequence[str]) -> pa.Array:
    """Return the path of each row's partition.

    :raises InvalidInputError: a value that no directory can hold.
    """
    if not (partition_by and rows.num_rows):
        return pa.repeat(pa.scalar(UNPARTITIONED), rows.num_rows)
    codes, paths = Splitter(rows.schema, partition_by)._encode(rows)
    return pa.array(paths, pa.string()).take(codes)


def _encode_column(column: str, values: pa.Array) -> tuple[pa.Array, list[str]]:
    """Return a 64-bit code for each row, and the directory value of each code."""
    kind = values.type
    if pt.is_floating(kind):
        # By bits: 0.0 and -0.0 are different directories, though a hash table may find them equal.
        values = values.view(pa.int32() if pt.is_float32(kind) else pa.int64())
    encoded = values.dictionary_encode(null_encoding="encode")
    distinct = encoded.dictionary
    if pt.is_floating(kind):
        distinct = distinct.view(kind)
    return encoded.indices.cast(pa.int64()), format_values(column, distinct)


def _take_each(
    data: pa.RecordBatch, codes: pa.Array, paths: list[str]
) -> Iterator[tuple[str, pa.RecordBatch]]:
    order = pc.array_sort_indices(codes)  # stable
    counted = pc.value_counts(codes)
    counts = dict(zip(*(counted.field(i).to_pylist() for i in (0, 1)), strict=True))
    # A take for each partition costs a kernel call for each column. One take for all partitions
    # keeps all rows in memory for longer.
    few = len(paths) <= _FEW
    rows = None if few else data.take(order)
    start = 0
    for code, path in enumerate(paths):
        count = counts[code]
        part = data.take(order.slice(start, count)) if rows is None else rows.slice(start, count)
        yield path, part
        start += count
