"""Rows whose partition column has only nulls and no type: Spark calls it void."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from support.delta_tables import on
from support.memory_store import MemoryStore
from support.protocol import memory_table
from zero_rename.committer import UnsupportedTypeError

UNTYPED = pa.table({"day": pa.nulls(2), "value": pa.array([2, 3], pa.int64())})


def opened(store: MemoryStore, layout: str) -> Any:
    return on(store) if layout == "delta" else memory_table(store)


def write(table: Any, data: pa.Table, **options: Any) -> None:
    with table.job(data.schema, **options) as job:
        job.write(data)


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("partition_by", [None, ("day",)])
@pytest.mark.parametrize("layout", ["directory", "delta"])
def test_rows_without_a_type_are_nulls_of_the_tables_partition_column(
    layout: str, partition_by: tuple[str, ...] | None, mode: str
) -> None:
    """With partition_by named, a table of directories refused what a Delta table takes."""
    store = MemoryStore()
    typed = pa.table({"day": ["a"], "value": pa.array([1], pa.int64())})
    write(opened(store, layout), typed, partition_by=("day",))
    write(opened(store, layout), UNTYPED, partition_by=partition_by, mode=mode)
    found = opened(store, layout).scan().to_arrow().sort_by("value").to_pydict()
    assert found == {"day": ["a", None, None], "value": [1, 2, 3]}


def test_new_table_of_directories_refuses_it_and_says_what_to_do() -> None:
    store = MemoryStore()
    with pytest.raises(UnsupportedTypeError, match=r"'day'.*only nulls.*cast\('string'\)"):
        write(opened(store, "directory"), UNTYPED, partition_by=("day",))
    assert store.keys("flights/") == []


def test_new_delta_table_refuses_it() -> None:
    store = MemoryStore()
    with pytest.raises(UnsupportedTypeError, match=r"'day' is null.*Cast the column"):
        write(opened(store, "delta"), UNTYPED, partition_by=("day",))
    assert store.keys("flights/") == []
