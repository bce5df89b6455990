"""Compaction of a Delta table that sorts the rows of its partitions."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import Bucket

from support.delta_log import commit
from zero_rename.committer import Content, FileOptions
from zero_rename.committer.errors import InvalidInputError
from zero_rename.committer.upkeep.compaction import CompactAction
from zero_rename.tables import DeltaTable

pytestmark = pytest.mark.memory_s3
#: What sorting by ``value`` brings together in a file, and a condition for it.
_FEW = [("value", "<", 100)]


def append(table: DeltaTable, values: Any, day: str = "1", **options: Any) -> None:
    values = list(values)
    rows = pa.table({"x": [0] * len(values), "value": values, "day": [day] * len(values)})
    by = None if table.exists() else ["day"]
    with table.job(rows.schema, partition_by=by, **options) as job:
        job.write(rows)


@pytest.fixture
def table(s3_bucket: Bucket) -> DeltaTable:
    """A day of four files, each with numbers from everywhere."""
    found = DeltaTable(f"s3://{s3_bucket.name}/flights")
    for start in range(4):
        append(found, range(start, 4000, 4))
    return found


def values(table: DeltaTable, **options: Any) -> list[Any]:
    return table.scan(columns=["value"], **options).to_arrow()["value"].to_pylist()


def entry(bucket: Bucket, version: int) -> list[dict[str, Any]]:
    body = bucket.read(f"flights/_delta_log/{version:020}.json").decode()
    return [json.loads(line) for line in body.splitlines()]


def test_sorted_files_hold_what_lies_together_and_readers_open_one(table: DeltaTable) -> None:
    assert len(table.scan(filter=_FEW).files) == 4
    (done,) = table.compact(target_bytes=2000, apply=True, sort_by=["value"])
    assert (done.action, done.files) == (CompactAction.COMPACTED, 4)
    assert done.files_after == len(table.state().files) > 2
    assert values(table) == list(range(4000))
    scan = table.scan(filter=_FEW)
    assert len(scan.files) == 1
    assert scan.count() == 100
    assert table.verify() == []
    assert table.history(1)[0].operation == "OPTIMIZE"


def test_entry_of_a_sorting_changes_no_data_and_names_the_columns(
    table: DeltaTable, s3_bucket: Bucket
) -> None:
    table.compact(apply=True, sort_by=["x", "value"])
    changes = [it for it in entry(s3_bucket, 4) if "add" in it or "remove" in it]
    assert sorted(key for it in changes for key in it) == ["add", *["remove"] * 4]
    assert not any(it["dataChange"] for change in changes for it in change.values())
    (added,) = (it["add"] for it in changes if "add" in it)
    assert added["tags"]["sorted"] == "x,value"
    bounds = json.loads(added["stats"])
    assert (bounds["minValues"], bounds["maxValues"]) == (
        {"x": 0, "value": 0},
        {"x": 0, "value": 3999},
    )


def test_footer_of_a_sorted_file_says_how_it_is_sorted(
    table: DeltaTable, s3_bucket: Bucket
) -> None:
    table.compact(apply=True, sort_by=["x", "value"])
    (file,) = table.state().files
    parquet = pq.ParquetFile(pa.BufferReader(s3_bucket.read(file.key)))
    asked = [("x", "ascending"), ("value", "ascending")]
    order = pq.SortingColumn.from_ordering(parquet.schema_arrow, asked)
    assert parquet.metadata.row_group(0).sorting_columns == order


def test_partition_that_is_sorted_so_is_left_and_one_that_has_got_rows_since_is_not(
    table: DeltaTable,
) -> None:
    assert len(table.compact(apply=True, sort_by=["x", "value"])) == 1
    assert table.compact(sort_by=["x", "value"]) == table.compact(sort_by=["x"]) == []
    assert len(table.compact(sort_by=["value"])) == 1
    append(table, [5], day="2")
    assert [it.partition for it in table.compact(sort_by=["x"])] == ["day=2"]
    append(table, [5])
    assert len(table.compact(sort_by=["x"])) == 2
    done = table.compact(apply=True, sort_by=["x"])
    assert [(it.partition, it.files_after) for it in done] == [("day=1", 1), ("day=2", 1)]
    assert table.compact(sort_by=["x"]) == []


@pytest.mark.parametrize("between", ["checkpoint", "restore"])
def test_partition_stays_sorted_through_a_checkpoint_and_a_restore(
    table: DeltaTable, between: str
) -> None:
    table.compact(apply=True, sort_by=["value"])
    if between == "checkpoint":
        table.checkpoint_log()
        append(table, [1], day="2")
    else:
        append(table, [9], mode="overwrite")
        table.restore(4, apply=True)
    assert table.compact(["day=1"], sort_by=["value"]) == []
    assert values(table, partitions=["day=1"]) == list(range(4000))


def test_rows_appended_beside_a_sorting_stay_and_are_sorted_by_the_next(table: DeltaTable) -> None:
    with table.job() as job:
        job.write(pa.table({"x": [0], "value": [-1], "day": ["1"]}))
        (done,) = table.compact(apply=True, sort_by=["value"])
    assert done.action is CompactAction.COMPACTED
    assert sorted(values(table)) == [-1, *range(4000)]
    assert len(table.compact(apply=True, sort_by=["value"])) == 1
    assert values(table) == [-1, *range(4000)]


def test_table_without_partitions_is_sorted_with_columns_that_came_later(s3_bucket: Bucket) -> None:
    table = DeltaTable(f"s3://{s3_bucket.name}/plain")
    for rows in (
        pa.table({"value": [3, 1]}),
        pa.table({"value": [2, 0], "gate": pa.array(["B", "A"])}),
    ):
        with table.job(rows.schema, schema_mode="merge") as job:
            job.write(rows)
    (done,) = table.compact(apply=True, sort_by=["gate", "value"])
    assert (done.files, done.files_after) == (2, 1)
    found = table.scan().to_arrow().to_pylist()
    assert [(it["gate"], it["value"]) for it in found] == [("A", 0), ("B", 2), (None, 1), (None, 3)]
    assert table.compact(sort_by=["gate", "value"]) == []


@pytest.mark.parametrize("wrong", [["day"], ["gate"], ["value", "value"]])
def test_columns_that_files_do_not_have_or_have_once_are_refused(
    table: DeltaTable, wrong: list[str]
) -> None:
    with pytest.raises(InvalidInputError, match="cannot be sorted by"):
        table.compact(apply=True, sort_by=wrong)
    assert table.state().log_version == 3


def test_tag_of_a_stranger_leaves_no_rows_out_and_sorts_nothing(
    table: DeltaTable, s3_bucket: Bucket
) -> None:
    """Only a job's files are sorted as their tags say; and a tag has no bounds."""
    table.compact(apply=True, sort_by=["value"])
    (added,) = (it["add"] for it in entry(s3_bucket, 4) if "add" in it)
    for tags in ({**added["tags"], "sorted": "value&value=i0,1"}, {"sorted": "value"}):
        commit(s3_bucket, {"add": {**added, "tags": tags}})
        assert table.scan(filter=[("value", ">", 3990)]).count() == 9
    assert len(table.compact(sort_by=["value"])) == 1


def test_content_of_rows_is_the_same_after_a_sorting(s3_bucket: Bucket) -> None:
    table = DeltaTable(f"s3://{s3_bucket.name}/flights")
    for day in ("1", "2"):
        append(table, [3, 1, 2], day, files=FileOptions(content=Content.ROWS))
    before = {it.partition: it.content for it in table.state().files}
    table.compact(apply=True, sort_by=["value"])
    assert {it.partition: it.content for it in table.state().files} == before
    assert all(before.values())
