"""Rows sorted on disk: all of them, in Arrow's order, a bounded part of them in memory."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.arrow_data import rows_of
from support.conditions import ROWS, SCHEMA
from zero_rename.committer.errors import InvalidInputError
from zero_rename.committer.format.parquet import row_order
from zero_rename.committer.format.parquet.row_order import check_order, in_order


def ordered(rows: pa.Table, by: list[str], most_bytes: int, batch_rows: int = 2) -> list[pa.Table]:
    batches = rows.to_batches(max_chunksize=batch_rows)
    found = in_order(batches, rows.schema, by, most_bytes)
    return [it if isinstance(it, pa.Table) else pa.Table.from_batches([it]) for it in found]


@given(
    st.lists(ROWS, max_size=4).map(lambda lists: [row for some in lists for row in some]),
    st.lists(st.sampled_from(SCHEMA.names), min_size=1, max_size=3, unique=True),
    st.sampled_from([1, 200, 1000, 10**6]),
)
def test_all_rows_come_in_order(rows: list[dict[str, Any]], by: list[str], most: int) -> None:
    """Of runs of two rows up to all, with nulls, NaN and equal keys."""
    table = pa.Table.from_pylist(rows, SCHEMA)
    numbered = table.append_column("number", pa.array(range(len(rows)), pa.int64()))
    pieces = ordered(numbered, by, most)
    found = pa.concat_tables(pieces) if pieces else numbered.slice(0, 0)
    assert sorted(found["number"].to_pylist()) == list(range(len(rows)))
    keys = [(name, "ascending") for name in by]
    assert rows_of(found.select(by)) == rows_of(numbered.sort_by(keys).select(by))
    if len(rows):
        taken = numbered.take(found["number"].combine_chunks())
        assert rows_of(found) == rows_of(taken)


@pytest.mark.parametrize("distinct", [1, 3, 100_000])
def test_no_more_than_a_few_runs_are_held(distinct: int) -> None:
    """However many rows there are, and however many of them have the same key."""
    most, count = 64_000, 100_000
    rows = pa.table({"k": [n * 7919 % distinct for n in range(count)], "n": range(count)})
    pieces = ordered(rows, ["k"], most, batch_rows=1000)
    assert len(pieces) > 10
    assert max(piece.nbytes for piece in pieces) <= 3 * most
    found = pa.concat_tables(pieces)
    assert found["k"].to_pylist() == sorted(rows["k"].to_pylist())
    assert sorted(found["n"].to_pylist()) == list(range(count))


@pytest.mark.parametrize("count", [0, 1, 5])
def test_rows_without_bytes_are_kept(count: int) -> None:
    rows = pa.table({"x": pa.nulls(count), "s": pa.nulls(count, pa.struct([("y", pa.null())]))})
    assert rows.select(["x"]).nbytes == 0
    for some in (rows, rows.select(["x"])):
        assert sum(map(len, ordered(some, ["x"], 10))) == count


def test_without_columns_to_sort_by_nothing_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_order, "Spill", None)
    rows = pa.table({"n": [3, 1, 2]})
    assert pa.concat_tables(ordered(rows, [], 10))["n"].to_pylist() == [3, 1, 2]


@pytest.mark.parametrize("by", ["n", ["m"], ["day"], ["n", "n"], ["inner"]], ids=str)
def test_what_rows_cannot_be_sorted_by(by: Any) -> None:
    inner = pa.struct([("a", pa.int64())])
    schema = pa.schema([("n", pa.int64()), ("inner", inner), ("day", pa.int32())])
    with pytest.raises(InvalidInputError, match="cannot be sorted by") as caught:
        check_order(by, schema, ["day"])
    assert "they have n, inner" in str(caught.value)
    check_order(["n"], schema, ["day"])
    check_order((), schema, ["day"])
