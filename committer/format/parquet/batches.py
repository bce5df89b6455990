"""Functions for Arrow arrays and batches that the oldest supported pyarrow lacks."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc


def concatenated(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Copy batches of one schema, at least one, into one batch.

    ``pyarrow.concat_batches`` does the same, but pyarrow 18 lacks it.

    :raises pyarrow.ArrowInvalid: a column is too long for its type's offsets.
    """
    schema = batches[0].schema
    columns = [pa.concat_arrays([it.column(n) for it in batches]) for n in range(len(schema))]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def positions(first: int, end: int) -> pa.Array:
    """Make an array of the integers from ``first`` up to and without ``end``.

    ``pyarrow.arange`` does the same, but pyarrow 18 lacks it.
    """
    ones = pa.repeat(pa.scalar(1, pa.int64()), max(0, end - first))
    return pc.cumulative_sum(ones, start=first - 1)
