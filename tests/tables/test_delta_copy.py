"""Copies of tables of directories to Delta tables."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.memory_store import MemoryDriver, MemoryStore
from zero_rename import FileOptions, Table
from zero_rename.committer.errors import (
    InvalidInputError,
    OutcomeUnknownError,
    RefusedError,
    SnapshotGoneError,
    StoreUnreachableError,
    StreamError,
    UnfinishedCommitError,
    UnsupportedTypeError,
)
from zero_rename.committer.format.job_spec import Content
from zero_rename.committer.format.schema.compatibility import is_untyped
from zero_rename.committer.store import requests as s
from zero_rename.tables import DeltaTable


def on(store: MemoryStore, fault: Any = None) -> tuple[Table, DeltaTable]:
    old, new = Table("s3://bucket/old"), DeltaTable("s3://bucket/new")
    old.driver = MemoryDriver(store)  # type: ignore[assignment]
    new.driver = MemoryDriver(store, fault)  # type: ignore[assignment]
    return old, new


def rows(*values: int, day: str = "1") -> pa.Table:
    return pa.table({"day": [day] * len(values), "value": pa.array(values, pa.int64())})


def write(old: Table, data: pa.Table, **options: Any) -> None:
    with old.job(data.schema, partition_by=["day"], **options) as job:
        job.write(data)


def values(table: DeltaTable) -> list[int]:
    return sorted(table.scan().to_arrow()["value"].to_pylist()) if table.exists() else []


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    old, _ = on(store)
    write(old, rows(1, 2))
    write(old, rows(3, day="2"))
    return store


def test_copy_has_the_rows_and_says_what_it_did(store: MemoryStore) -> None:
    old, new = on(store)
    done = new.copy_of(old)
    assert values(new) == [1, 2, 3]
    assert (done.partitions, done.rows, done.rewritten, done.changed) == (2, 3, 2, ())
    assert not done.repeated
    assert new.verify() == []
    again = new.copy_of(old)
    assert (again.repeated, again.rewritten, again.job) == (True, 0, done.job)


def test_directory_without_records_is_copied() -> None:
    store = MemoryStore()
    old, new = on(store)
    sink = io.BytesIO()
    pq.write_table(pa.table({"value": pa.array([7], pa.int64())}), sink)
    old.run(s.PutFile("old/day=1/a.parquet", sink.getvalue()))
    new.copy_of(old)
    assert values(new) == [7]


def test_partition_that_others_load_meanwhile_is_named(store: MemoryStore) -> None:
    old, new = on(store)
    done = new.copy_of(old, lambda it: write(old, rows(9, day="2")) if it.done == 2 else None)
    assert done.changed == ("day=2",)
    assert values(new) == [1, 2, 3]


def test_copy_is_made_of_what_its_rows_were_computed_from(store: MemoryStore) -> None:
    old, new = on(store)
    source = Table("s3://bucket/source")
    source.driver = old.driver
    write(source, rows(1))
    by_rows = FileOptions(content=Content.ROWS)
    write(old, rows(5, day="3"), inputs=[source.snapshot()], code_version="4", files=by_rows)
    done = new.copy_of(old)
    inputs = new.inputs_of(done.job)
    assert [it.table for it in inputs.tables] == ["s3://bucket/source"]
    assert inputs.code_versions == ("", "4")


def test_file_without_a_record_that_changes_meanwhile_refuses_the_copy() -> None:
    store = MemoryStore()
    old, new = on(store)

    def put(value: int, name: str) -> None:
        sink = io.BytesIO()
        pq.write_table(pa.table({"value": pa.array([value], pa.int64())}), sink)
        old.run(s.PutFile(f"old/day=1/{name}.parquet", sink.getvalue()))

    put(1, "a")
    with pytest.raises(SnapshotGoneError, match="no record tells of it"):
        new.copy_of(old, lambda _: put(2, "b"))
    assert not new.exists()
    assert not new.open_jobs()


def test_column_that_delta_has_no_type_for_is_refused() -> None:
    store = MemoryStore()
    old, new = on(store)
    data = pa.table({"day": ["1"], "id": pa.array([1], pa.uint64())})
    write(old, data)
    with pytest.raises(UnsupportedTypeError, match="'id' is uint64"):
        new.copy_of(old)
    assert not new.exists()


@pytest.mark.parametrize("answered", [True, False])
def test_copy_whose_store_fails_at_a_request_is_done_once_by_another_try(
    store: MemoryStore, answered: bool
) -> None:
    number = 0
    while True:
        copied, left = store.copy(), [number]

        def fault(request: Any, apply: Any, left: list[int] = left) -> Any:
            left[0] -= 1
            if left[0] != -1:
                return apply(request)
            if answered:
                apply(request)
            if isinstance(request, s.Put | s.Delete | s.DeleteMany):
                return s.Unknown("no answer")
            raise StoreUnreachableError("The store is gone.")

        old, new = on(copied, fault)
        told: BaseException | None = None
        try:
            new.copy_of(old)
        except (RefusedError, OutcomeUnknownError, UnfinishedCommitError, StreamError) as error:
            told = error
        if left[0] >= 0:
            break
        old, new = on(copied)
        if isinstance(told, RefusedError):
            assert values(new) == []
        new.copy_of(old)
        assert values(new) == [1, 2, 3]
        number += 1
    assert number > 10


def test_copy_whose_table_was_emptied_since_is_refused_when_it_is_made_again(
    store: MemoryStore,
) -> None:
    old, new = on(store)
    done = new.copy_of(old)
    new.delete([("value", ">", 0)])
    with pytest.raises(InvalidInputError, match=f"Job {done.job} has copied .* emptied since"):
        new.copy_of(old)
    assert values(new) == []


def test_copy_of_an_empty_table_does_nothing_when_it_is_made_again() -> None:
    old, new = on(MemoryStore())
    write(old, rows(1))
    old.delete([("value", ">", 0)])
    assert not new.copy_of(old).repeated
    assert new.copy_of(old).repeated


def test_copy_of_a_delta_table_is_refused_and_says_how_to_load_its_rows(store: MemoryStore) -> None:
    _, new = on(store)
    with pytest.raises(InvalidInputError, match=r"must be a Table or a URL.*old\.scan\(\)"):
        new.copy_of(new)  # type: ignore[arg-type]


def test_job_that_left_out_a_later_column_of_the_old_table_goes_on_in_the_copy(
    store: MemoryStore,
) -> None:
    """A pipeline that never had the column is moved to the copy as it is."""
    old, new = on(store)
    noted = rows(4).append_column("note", pa.array(["new"]))
    write(old, noted, schema_mode="merge")
    write(old, rows(5))
    new.copy_of(old)
    for table in (old, new):
        with table.job(rows(6).schema) as job:
            job.write(rows(6))
    found = new.scan(filter=[("value", "=", 6)]).to_arrow()
    assert (found["note"].null_count, values(new)) == (1, [1, 2, 3, 4, 5, 6])


def test_column_that_got_its_type_later_is_no_more_without_a_type_in_the_copy() -> None:
    """Its rows are written anew, so that Spark's own reader takes the copy's files."""
    old, new = on(MemoryStore())
    write(old, rows(1).append_column("note", pa.nulls(1)))
    write(old, rows(2).append_column("note", pa.array(["typed"])), schema_mode="merge")
    new.copy_of(old)
    assert not is_untyped(new.schema.field("note"))
