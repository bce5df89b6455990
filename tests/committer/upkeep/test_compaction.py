"""Compaction: the same rows in fewer files, and nobody else's work lost or doubled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from conftest import Bucket

from support.arrow_data import rows_of
from support.command_line import invoke
from support.day_rows import load_rows, values
from support.old_records import gc_of_all
from zero_rename import Table
from zero_rename.committer import (
    CommitConflictError,
    InvalidInputError,
    OnRepeat,
    StoreUnreachableError,
)
from zero_rename.committer import rewritable_table as tables
from zero_rename.committer.upkeep.compaction import CompactAction, compaction_spec

pytestmark = pytest.mark.memory_s3

ROWS = pa.table({"value": [1, 2, 3], "day": [1, 1, 2]})


def append(table: Table, rows: pa.Table = ROWS, **more: Any) -> str:
    return load_rows(table, rows, **more)


@pytest.fixture
def table(s3_bucket: Bucket) -> Table:
    """Two partitions of three files each."""
    table = Table(f"s3://{s3_bucket.name}/sales")
    for _ in range(3):
        append(table)
    return table


def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Any]) -> None:
    """Act once, when the compaction has planned its first partition and not begun its job: moto
    lets one job be open at a time."""
    acts = [act]

    def then(*arguments: Any) -> Any:
        if acts:
            acts.pop()()
        return compaction_spec(*arguments)

    monkeypatch.setattr(tables, "compaction_spec", then)


def test_partition_whose_head_cannot_be_read_is_left_and_the_others_are_compacted(
    table: Table, s3_bucket: Bucket
) -> None:
    s3_bucket.put("sales/_zero_rename/heads/day=1.json", b"{")
    for apply, action in ((False, CompactAction.WOULD_COMPACT), (True, CompactAction.COMPACTED)):
        found = {it.partition: it for it in table.compact(apply=apply)}
        assert {name: it.action for name, it in found.items()} == {
            "day=2": action,
            "day=1": CompactAction.LEFT,
        }
        assert "heads/day=1.json" in found["day=1"].reason
    assert len(table.files("day=2")) == 1


def test_it_only_says_what_it_would_do(table: Table) -> None:
    found = table.compact()
    assert [(one.partition, one.action, one.files, one.files_after) for one in found] == [
        ("day=1", CompactAction.WOULD_COMPACT, 3, 1),
        ("day=2", CompactAction.WOULD_COMPACT, 3, 1),
    ]
    assert len(table.files()) == 6


def test_the_same_rows_are_in_fewer_files(table: Table) -> None:
    before = rows_of(table.to_arrow())
    found = table.compact(apply=True)
    assert {one.action for one in found} == {CompactAction.COMPACTED}
    assert len(table.files()) == 2
    assert rows_of(table.to_arrow()) == before
    assert table.compact() == []
    assert table.verify() == []


def test_an_error_names_the_partitions_that_were_compacted_before_it(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[Any] = []

    def then(context: Any, plan: Any, owner: Any) -> Any:
        planned.append(plan)
        if len(planned) == 2:
            raise StoreUnreachableError("The store did not answer.")
        return compaction_spec(context, plan, owner)

    monkeypatch.setattr(tables, "compaction_spec", then)
    done = invoke("compact", table.root.url, "--apply")
    assert "UnfinishedUpkeepError: It is begun and not finished: The store did not" in done.output
    assert "Committed before, by other jobs: day=1." in done.output
    assert (len(table.files("day=1")), len(table.files("day=2"))) == (1, 3)


def test_large_enough_files_stay(table: Table) -> None:
    assert table.compact(target_bytes=1) == []


def test_a_partition_alone(table: Table) -> None:
    assert [one.partition for one in table.compact(["day=02"], apply=True)] == ["day=2"]
    assert (len(table.files("day=1")), len(table.files("day=2"))) == (3, 1)


def test_a_table_without_partitions(s3_bucket: Bucket) -> None:
    table = Table(f"s3://{s3_bucket.name}/plain")
    for _ in range(2):
        with table.job(ROWS.schema) as job:
            job.write(ROWS)
    assert [one.files_after for one in table.compact(apply=True)] == [1]
    assert values(table) == [1, 1, 2, 2, 3, 3]


class TestSorting:
    @pytest.fixture
    def table(self, s3_bucket: Bucket) -> Table:
        """A day of four files, each with numbers from everywhere."""
        table = Table(f"s3://{s3_bucket.name}/numbers")
        for start in range(4):
            numbers = range(start, 4000, 4)
            append(table, pa.table({"value": numbers, "x": [0] * 1000, "day": [1] * 1000}))
        return table

    def test_a_file_holds_what_lies_together(self, table: Table) -> None:
        before = sorted(map(repr, rows_of(table.to_arrow())))
        assert len(table.scan(filter=pc.field("value") < 100).files) == 4
        (done,) = table.compact(target_bytes=2000, apply=True, sort_by=["value"])
        assert (done.action, done.files_after) == (CompactAction.COMPACTED, len(table.files()))
        assert done.files_after > 2
        assert sorted(map(repr, rows_of(table.to_arrow()))) == before
        scan = table.scan(filter=pc.field("value") < 100)
        assert len(scan.files) == 1
        assert scan.count() == 100
        assert table.verify() == []

    def test_files_say_how_they_are_sorted(self, table: Table, s3_bucket: Bucket) -> None:
        table.compact(apply=True, sort_by=["x", "value"])
        (file,) = table.files()
        body = s3_bucket.client.get_object(Bucket=s3_bucket.name, Key=file.key)["Body"].read()
        parquet = pq.ParquetFile(pa.BufferReader(body))
        asked = [("x", "ascending"), ("value", "ascending")]
        order = pq.SortingColumn.from_ordering(parquet.schema_arrow, asked)
        assert parquet.metadata.row_group(0).sorting_columns == order
        assert parquet.read()["value"].to_pylist() == list(range(4000))

    def test_what_is_sorted_so_is_left(self, table: Table) -> None:
        assert len(table.compact(apply=True, sort_by=["x", "value"])) == 1
        assert table.compact(sort_by=["x", "value"]) == table.compact(sort_by=["x"]) == []
        assert len(table.compact(sort_by=["value"])) == 1
        append(table, pa.table({"value": [5], "x": [0], "day": [1]}))
        assert len(table.compact(sort_by=["x"])) == 1

    def test_rows_that_come_meanwhile_are_kept(
        self, table: Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        new = pa.table({"value": [-1], "x": [0], "day": [1]})
        meanwhile(monkeypatch, lambda: append(Table(table.root.url), new))
        (found,) = table.compact(apply=True, sort_by=["value"])
        assert found.action is CompactAction.CHANGED_MEANWHILE
        assert values(table) == [-1, *range(4000)]

    def test_columns_that_are_not_there(self, table: Table) -> None:
        with pytest.raises(InvalidInputError, match="cannot be sorted by day"):
            table.compact(apply=True, sort_by=["day"])
        assert len(table.files()) == 4


class TestBeside:
    def test_rows_that_are_appended_meanwhile_are_kept(
        self, table: Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        new = pa.table({"value": [10], "day": [1]})
        meanwhile(monkeypatch, lambda: append(Table(table.root.url), new))
        actions = {one.partition: one.action for one in table.compact(apply=True)}
        assert actions == {
            "day=1": CompactAction.CHANGED_MEANWHILE,
            "day=2": CompactAction.COMPACTED,
        }
        assert values(table) == [1, 1, 1, 2, 2, 2, 3, 3, 3, 10]

    def test_a_partition_that_is_replaced_meanwhile_stays_so(
        self, table: Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        new = pa.table({"value": [10], "day": [1]})
        meanwhile(monkeypatch, lambda: append(Table(table.root.url), new, mode="overwrite"))
        found = table.compact(["day=1"], apply=True)
        assert [one.action for one in found] == [CompactAction.CHANGED_MEANWHILE]
        assert values(table) == [3, 3, 3, 10]
        assert table.open_jobs() == []


class TestRunsThatAreRepeated:
    def again(self, table: Table, **more: Any) -> str | None:
        return append(table, idempotency_key="run", on_repeat=OnRepeat.REPLACE_OWN, **more)

    def test_one_whose_rows_were_merged_is_refused(self, table: Table) -> None:
        """Its rows cannot be taken out of files with those of others: they would be there twice."""
        self.again(table)
        table.compact(apply=True)
        before = values(table)
        with pytest.raises(CommitConflictError, match="since a compaction"):
            self.again(table)
        assert values(table) == before
        append(table)
        table.compact(apply=True)
        with pytest.raises(CommitConflictError, match="since a compaction"):
            self.again(table)

    def test_one_that_replaces_what_is_there_goes_on(self, table: Table) -> None:
        """No row is left that could be there twice."""
        self.again(table, mode="overwrite")
        table.compact(sort_by=["value"], apply=True)
        gc_of_all(table)
        self.again(table, mode="overwrite")
        assert values(table) == [1, 2, 3]
        assert table.verify() == []
        append(table)
        table.compact(apply=True)
        with pytest.raises(CommitConflictError, match="since a compaction"):
            self.again(table, mode="overwrite")

    def test_one_whose_rows_were_replaced_since_goes_on(self, table: Table) -> None:
        self.again(table)
        table.compact(apply=True)
        append(table, mode="overwrite")
        self.again(table)
        assert values(table) == [1, 1, 2, 2, 3, 3]


def test_a_table_whose_readers_list_is_refused(s3_bucket: Bucket) -> None:
    table = Table(f"s3://{s3_bucket.name}/loose")
    for _ in range(2):
        append(table, coordination="none")
    with pytest.raises(InvalidInputError, match="coordination"):
        table.compact(apply=True)
