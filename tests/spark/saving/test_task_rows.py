"""Spark's small batches are gathered before they are checked and written."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from zero_rename.spark.saving import task_rows
from zero_rename.spark.saving.task_rows import _gathered

#: As Spark makes them of rows with texts.
ROWS = 500


def small_batches(count: int, taken: list[int] | None = None) -> Iterator[pa.RecordBatch]:
    for first in range(0, count * ROWS, ROWS):
        if taken is not None:
            taken.append(first)
        yield pa.record_batch({"n": pa.array(range(first, first + ROWS), pa.int64())})


def test_first_batch_comes_at_once_and_others_together() -> None:
    taken: list[int] = []
    gathered = _gathered(small_batches(1000, taken))
    assert (next(gathered).num_rows, len(taken)) == (ROWS, 1)
    sizes = [batch.nbytes for batch in gathered]
    assert len(sizes) == -(-999 * ROWS * 8 // task_rows._ENOUGH)
    assert max(sizes) < task_rows._ENOUGH + 2 * ROWS * 8


def test_rows_keep_their_order_and_none_is_lost() -> None:
    for count in (0, 1, 2, 100):
        batches = list(_gathered(small_batches(count)))
        found = [n for batch in batches for n in batch.column("n").to_pylist()]
        assert found == list(range(count * ROWS))


def test_batch_that_is_large_by_itself_is_not_copied() -> None:
    large = pa.record_batch({"n": pa.array(range(100_000), pa.int64())})
    found = list(_gathered(iter([large, large])))
    assert [it is large for it in found] == [True, True]
