"""Arrow arrays and batches by functions that the oldest pyarrow has, which this package allows."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc


def concatenated(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Copy batches of one schema, at least one, into one: ``pyarrow.concat_batches``, which
    pyarrow 18 lacks.

    :raises pyarrow.ArrowInvalid: a column is too long for its type's offsets.
    """
    schema = batches[0].schema
    columns = [pa.concat_arrays([it.column(n) for it in batches]) for n in range(len(schema))]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def positions(first: int, end: int) -> pa.Array:
    """Count from a number to another one, which is left out: ``pyarrow.arange``, which pyarrow 18
    lacks."""
    ones = pa.repeat(pa.scalar(1, pa.int64()), max(0, end - first))
    return pc.cumulative_sum(ones, start=first - 1)  # pyright: ignore[reportAttributeAccessIssue]
