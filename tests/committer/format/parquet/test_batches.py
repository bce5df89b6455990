"""Batches brought together, and positions counted, as pyarrow's own newer functions do."""

from __future__ import annotations

import pyarrow as pa
import pytest

from zero_rename.committer.format.parquet.batches import concatenated, positions


def test_batches_of_all_kinds_of_columns_become_one() -> None:
    rows = [{"n": 1, "s": "a", "l": [1]}, {"n": None, "s": None, "l": None}]
    schema = pa.schema(
        [
            pa.field("n", pa.int64(), metadata={"kept": "yes"}),
            pa.field("s", pa.dictionary(pa.int32(), pa.string())),
            pa.field("l", pa.list_(pa.int8())),
        ]
    )
    one = pa.RecordBatch.from_pylist(rows, schema)
    two = pa.RecordBatch.from_pylist([{"n": 3, "s": "b", "l": []}], schema)
    found = concatenated([one, two.slice(0, 0), two])
    assert found.to_pylist() == [*rows, {"n": 3, "s": "b", "l": []}]
    assert found.schema.equals(schema, check_metadata=True)


@pytest.mark.parametrize(("first", "end"), [(0, 3), (5, 6), (2, 2), (7, 3)])
def test_positions_are_those_of_a_range(first: int, end: int) -> None:
    found = positions(first, end)
    assert found.type == pa.int64()
    assert found.to_pylist() == list(range(first, end))
