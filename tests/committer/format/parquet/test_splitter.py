"""Splitting by partition: every row goes to its partition, once, in order."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.arrow_data import PARTITION_VALUES
from zero_rename.committer.errors import InvalidInputError
from zero_rename.committer.format.layout import UNPARTITIONED
from zero_rename.committer.format.parquet.splitter import Splitter
from zero_rename.committer.format.schema.hive_paths import NULL, partition_path


def split(batch: pa.RecordBatch, partition_by: list[str]) -> dict[str, list[dict]]:
    found: dict[str, list[dict]] = {}
    for path, rows in Splitter(batch.schema, partition_by).split(batch):
        found.setdefault(path, []).extend(rows.to_pylist())
    return found


@given(data=st.data(), names=st.lists(st.sampled_from(list(PARTITION_VALUES)), max_size=3))
def test_splits_as_row_by_row_would(data: st.DataObject, names: list[str]) -> None:
    columns = [f"p{index}" for index in range(len(names))]
    fields = [pa.field(c, PARTITION_VALUES[n][0]) for c, n in zip(columns, names, strict=True)]
    schema = pa.schema([pa.field("v", pa.int64()), *fields])
    # Few distinct values, so that partitions have several rows.
    pools = [
        data.draw(st.lists(st.none() | PARTITION_VALUES[n][1], min_size=1, max_size=3))
        for n in names
    ]
    rows: list[dict[str, Any]] = []
    for number in range(data.draw(st.integers(0, 30))):
        values = [data.draw(st.sampled_from(pool)) for pool in pools]
        rows.append({"v": number, **dict(zip(columns, values, strict=True))})
    expected: dict[str, list[dict]] = {}
    for row in rows:
        path = partition_path({column: row[column] for column in columns}, schema)
        expected.setdefault(path, []).append({"v": row["v"]})
    assert split(pa.RecordBatch.from_pylist(rows, schema), columns) == expected


def test_null_and_empty_share_a_partition() -> None:
    batch = pa.RecordBatch.from_pydict({"p": ["", None, "a"], "v": [1, 2, 3]})
    assert split(batch, ["p"]) == {f"p={NULL}": [{"v": 1}, {"v": 2}], "p=a": [{"v": 3}]}


@pytest.mark.parametrize("partitions", [3, 1000])
def test_many_partitions_and_slices(partitions: int) -> None:
    batch = pa.RecordBatch.from_pydict(
        {"p": [n % partitions for n in range(5000)], "v": list(range(5000))}
    ).slice(7, 4500)
    found = split(batch, ["p"])
    assert len(found) == partitions
    for path, rows in found.items():
        numbers = [row["v"] for row in rows]
        assert numbers == sorted(numbers)
        assert {f"p={number % partitions}" for number in numbers} == {path}
    assert sum(map(len, found.values())) == 4500


def test_an_impossible_value_stops_the_whole_batch() -> None:
    batch = pa.RecordBatch.from_pydict({"p": ["a", NULL], "v": [1, 2]})
    with pytest.raises(InvalidInputError):
        next(Splitter(batch.schema, ["p"]).split(batch))


def test_unpartitioned_batches_pass_with_their_metadata() -> None:
    schema = pa.schema([("v", pa.int8())], metadata={"k": "v"})
    batch = pa.RecordBatch.from_pydict({"v": pa.array([1], pa.int8())})
    ((path, rows),) = Splitter(schema, []).split(batch)
    assert path == UNPARTITIONED
    assert rows.schema.equals(schema, check_metadata=True)
