"""Rows of Delta tables merged, updated and deleted by Spark, without any jar of Delta's."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import Bucket

from support.delta_log import commit
from zero_rename.committer import CommitConflictError, Committed, InvalidInputError, Table
from zero_rename.committer.errors import TableMismatchError, TableNotFoundError
from zero_rename.committer.format.handoff import Handoff
from zero_rename.committer.format.row_changes import RowChanges
from zero_rename.spark import delete, load, merge, save, update
from zero_rename.tables import DeltaTable

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("planned_once")]
SCHEMA = "k long, v long, p string"
COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("p", pa.string())])


@pytest.fixture
def url(s3_bucket: Bucket) -> str:
    url = f"s3://{s3_bucket.name}/flights"
    put(url, (1, 10, "x"), (2, None, "x"), (3, 30, "y"), (4, 40, "z"))
    return url


def put(url: str, *rows: tuple[Any, ...], by: tuple[str, ...] = ("p",), **policy: Any) -> None:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(it, kind) for it, kind in zip(columns, COLUMNS.types, strict=True)]
    with DeltaTable(url).job(COLUMNS, partition_by=by, **policy) as job:
        job.write(pa.Table.from_arrays(arrays, schema=COLUMNS))


def held(url: str) -> list[tuple[Any, ...]]:
    found = DeltaTable(url).scan(columns=["k", "v", "p"]).to_arrow().to_pylist()
    return sorted(tuple(row.values()) for row in found)


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Lets another job commit once, when a change has been computed, before its job opens."""
    waiting: list[Callable[[], None]] = []
    policies = DeltaTable.rewrite_policies

    def lands(self: DeltaTable, *given: Any) -> Any:
        while waiting:
            waiting.pop()()
        return policies(self, *given)

    monkeypatch.setattr(DeltaTable, "rewrite_policies", lands)
    return waiting.append


def test_merge_makes_a_table_then_updates_inserts_and_deletes(
    spark: Any, s3_bucket: Bucket
) -> None:
    url = f"s3://{s3_bucket.name}/new"
    first = spark.createDataFrame([(1, 1, "x"), (2, 2, "y"), (3, 3, "z")], SCHEMA)
    made = merge(first, url, on=["k"], partition_by=["p"], layout="delta")
    assert made.rows == RowChanges(inserted=3)
    news = [(1, 5, "x", "u"), (2, 0, "y", "d"), (4, 4, "y", "u")]
    news = spark.createDataFrame(news, f"{SCHEMA}, op string")
    done = merge(news, url, on=["k"], delete_when="op = 'd'")
    assert held(url) == [(1, 5, "x"), (3, 3, "z"), (4, 4, "y")]
    assert done.rows == RowChanges(inserted=1, updated=1, deleted=1)
    assert [it.operation for it in DeltaTable(url).history()] == ["MERGE", "MERGE"]
    assert merge(news, url, on=["k"], delete_when="op = 'd'").committed is None


def test_merge_across_partitions_moves_a_row(spark: Any, url: str) -> None:
    moved = spark.createDataFrame([(1, 11, "z"), (9, 9, "new")], SCHEMA)
    done = merge(moved, url, on=["k"], across_partitions=True)
    assert held(url) == [(1, 11, "z"), (2, None, "x"), (3, 30, "y"), (4, 40, "z"), (9, 9, "new")]
    assert done.partitions == ("p=new", "p=x", "p=z")


def test_update_and_deletion_write_the_partitions_alone_in_which_rows_change(
    spark: Any, url: str
) -> None:
    raised = update(url, set={"V": "coalesce(v, 0) + 1"}, where="k < 3")
    assert (raised.rows, raised.partitions) == (RowChanges(updated=2, unchanged=2), ("p=x",))
    gone = delete(url, where="v >= 40 or k = 2")
    assert (gone.rows, gone.partitions) == (RowChanges(deleted=2, unchanged=2), ("p=x", "p=z"))
    assert held(url) == [(1, 11, "x"), (3, 30, "y")]
    assert [it.operation for it in DeltaTable(url).history()] == ["DELETE", "MERGE", "WRITE"]
    assert len(load(spark, url, as_of=0).collect()) == 4


def test_table_without_partitions_is_changed_whole(spark: Any, s3_bucket: Bucket) -> None:
    url = f"s3://{s3_bucket.name}/flat"
    put(url, (1, 10, "x"), (2, 20, "y"), by=())
    assert update(url, set={"v": "v * 2"}, where="k = 2").rows == RowChanges(updated=1, unchanged=1)
    assert delete(url, where="true").rows == RowChanges(deleted=2)
    assert held(url) == []


def test_what_another_job_adds_meanwhile_is_changed_too(
    spark: Any, url: str, beside: Callable[..., None]
) -> None:
    beside(partial(put, url, (9, 99, "y")))
    done = delete(url, where="v >= 30")
    assert (done.rows.deleted, done.attempts) == (3, 2)
    beside(partial(put, url, (9, 99, "x")))
    with pytest.raises(CommitConflictError):
        update(url, set={"v": "0"}, where="k = 1", attempts=1)
    assert held(url) == [(1, 10, "x"), (2, None, "x"), (9, 99, "x")]


def test_partition_that_another_job_makes_meanwhile_is_a_conflict_of_a_merge(
    spark: Any, url: str, beside: Callable[..., None]
) -> None:
    """The merge read that no row was there."""
    beside(partial(put, url, (9, 1, "new")))
    done = merge(spark.createDataFrame([(9, 2, "new")], SCHEMA), url, on=["k"])
    assert (done.rows, done.attempts) == (RowChanges(updated=1), 2)
    assert (9, 2, "new") in held(url)


def test_run_that_has_merged_is_not_merged_again_and_tells_what_it_did(
    spark: Any, url: str
) -> None:
    news = spark.createDataFrame([(1, 5, "x"), (9, 9, "y")], SCHEMA)
    once = {"idempotencyKey": "orders/monday"}
    first = merge(news, url, on=["k"], options=once)
    again = merge(news, url, on=["k"], options=once)
    assert again.committed is not None
    assert again.committed.repeated
    assert (again.rows, again.bytes_read) == (first.rows, first.bytes_read)
    assert again.rows == RowChanges(inserted=1, updated=1, unchanged=2)
    assert len(DeltaTable(url).history()) == 2


def test_merge_brings_columns_where_it_says_so(spark: Any, url: str) -> None:
    news = spark.createDataFrame([(1, 5, "x", "A1")], f"{SCHEMA}, seat string")
    with pytest.raises(TableMismatchError, match="seat"):
        merge(news, url, on=["k"])
    merge(news, url, on=["k"], schema_mode="merge")
    found = DeltaTable(url).scan(columns=["k", "seat"]).to_arrow().to_pylist()
    assert sorted((row["k"], row["seat"]) for row in found)[:2] == [(1, "A1"), (2, None)]


def test_file_with_a_column_that_the_table_does_not_show_is_not_written_again(
    spark: Any, url: str, s3_bucket: Bucket
) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"k": [7], "v": [70], "note": ["kept"]}), sink)
    s3_bucket.put("flights/other.parquet", sink.getvalue())
    size = len(sink.getvalue())
    add = {"path": "other.parquet", "partitionValues": {"p": "x"}, "size": size}
    commit(s3_bucket, {"add": {**add, "modificationTime": 1, "dataChange": True}})
    with pytest.raises(TableMismatchError, match="note is not in the table"):
        update(url, set={"v": "0"}, where="k = 1")
    assert update(url, set={"v": "0"}, where="k = 3").rows == RowChanges(updated=1, unchanged=4)
    assert (7, 70, "x") in held(url)


def test_rows_are_merged_by_the_submitter_s_words(
    spark: Any, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {"table": url, "layout": "delta", "mode": "merge", "merge_on": "k"}
    for name, value in said.items():
        monkeypatch.setenv(Handoff.variable(name), value)
    news = spark.createDataFrame([(1, 5, "x"), (9, 9, "y")], SCHEMA)
    done = save(news)
    assert isinstance(done, Committed)
    assert done.row_changes == RowChanges(inserted=1, updated=1, unchanged=2)
    assert save(spark.createDataFrame([(9, 8, "y")], SCHEMA), url, layout="delta") is not None
    assert held(url) == [(1, 5, "x"), (2, None, "x"), (3, 30, "y"), (4, 40, "z"), (9, 8, "y")]


def test_layout_is_that_of_the_table_which_is_there(spark: Any, s3_bucket: Bucket) -> None:
    url = f"s3://{s3_bucket.name}/directories"
    rows = spark.createDataFrame([(1, 1, "x")], SCHEMA)
    save(rows, url, partition_by=["p"])
    assert merge(rows, url, on=["k"]).committed is None
    assert Table(url).exists()
    with pytest.raises(TableMismatchError):
        merge(rows, url, on=["k"], layout="delta")
    with pytest.raises(TableNotFoundError):
        delete(f"s3://{s3_bucket.name}/nothing", where="true")


def test_delta_table_is_not_changed_where_the_submitter_waits_for_directories(
    spark: Any, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(Handoff.variable("table"), url)
    with pytest.raises(InvalidInputError, match="layout=directory"):
        delete(url, where="true")
    monkeypatch.setenv(Handoff.variable("layout"), "delta")
    assert delete(url, where="k = 1").rows.deleted == 1
