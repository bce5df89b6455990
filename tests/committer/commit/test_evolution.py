"""A table's columns change by the commit of a job, never without it, and no change is lost."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from conftest import Bucket

from support.faults import Crash, on
from support.memory_store import MemoryStore
from support.protocol import DAY1, DAY2, SCHEMA, World, die_of, memory_table
from zero_rename import Table
from zero_rename.committer.commit.state.found_table import find_table
from zero_rename.committer.commit.state.job_state import OpenedJob
from zero_rename.committer.errors import DamagedError, InvalidInputError, TableMismatchError
from zero_rename.committer.format.job_spec import Coordination
from zero_rename.committer.format.records.pending_file import TaskResult
from zero_rename.committer.format.records.table_record import TableRecord
from zero_rename.committer.store.requests import Put

pytestmark = pytest.mark.memory_s3

WITH_NOTE = SCHEMA.append(pa.field("note", pa.string()))
WITH_COUNT = SCHEMA.append(pa.field("count", pa.int32()))


@pytest.fixture
def world() -> World:
    world = World()
    opened = world.open()
    world.commit(opened, world.write(opened, DAY1))
    return world


def evolve(world: World, schema: pa.Schema, partition: str = DAY1) -> None:
    opened = world.open(schema=schema, schema_mode="merge")
    world.commit(opened, world.write(opened, partition))


def brings_a_note(world: World) -> tuple[OpenedJob, TaskResult]:
    """A job that is about to bring a column."""
    return world.written(DAY1, schema=WITH_NOTE, schema_mode="merge")


def columns(world: World) -> list[str]:
    found = world.driver.run(find_table(world.context))
    assert found is not None
    return found.record.schema.names


def stored(world: World) -> TableRecord:
    key = world.context.root.table_key
    return TableRecord.decode(world.store.objects[key].body, key)


def test_a_column_is_added_by_the_commit(world: World) -> None:
    opened, result = brings_a_note(world)
    assert columns(world) == ["value", "day"]
    world.commit(opened, result)
    assert columns(world) == ["value", "day", "note"]
    assert stored(world).evolution is None
    assert stored(world).schema_version == 1


def test_an_aborted_job_changes_nothing(world: World) -> None:
    opened = world.open(schema=WITH_NOTE, schema_mode="merge")
    world.abort(opened, world.write(opened, DAY1))
    assert columns(world) == ["value", "day"]


def test_two_that_evolve_at_once_both_leave_their_columns(world: World) -> None:
    first = world.open(schema=WITH_NOTE, schema_mode="merge")
    second = world.open(schema=WITH_COUNT, schema_mode="merge")
    one, two = world.write(first, DAY1), world.write(second, DAY2)
    world.commit(second, two)
    world.commit(first, one)
    assert columns(world) == ["value", "day", "count", "note"]
    assert stored(world).schema_version == 2


def test_two_that_add_one_column_agree_on_the_wider_type(world: World) -> None:
    wide = SCHEMA.append(pa.field("count", pa.int64()))
    first = world.open(schema=WITH_COUNT, schema_mode="merge")
    second = world.open(schema=wide, schema_mode="merge")
    one, two = world.write(first, DAY1), world.write(second, DAY1)
    world.commit(second, two)
    world.commit(first, one)
    assert stored(world).schema.field("count").type == pa.int64()
    assert stored(world).schema_version == 1


def test_of_two_that_disagree_on_a_new_column_one_is_refused(world: World) -> None:
    other = SCHEMA.append(pa.field("note", pa.int64()))
    first = world.open(schema=WITH_NOTE, schema_mode="merge")
    second = world.open(schema=other, schema_mode="merge")
    one, two = world.write(first, DAY1), world.write(second, DAY1)
    world.commit(first, one)
    with pytest.raises(TableMismatchError, match="note is int64, in the table string"):
        world.commit(second, two)
    assert stored(world).schema.field("note").type == pa.string()
    assert len(world.snapshot().files) == 2


def test_a_change_that_is_under_way_is_waited_for_and_fenced(world: World) -> None:
    """A job that died between its word in ``table.json`` and its decision."""
    die_of(on(Put, Crash, "/jobs/"), world, *brings_a_note(world))
    assert stored(world).evolution is not None
    assert columns(world) == ["value", "day"]
    evolve(world, WITH_COUNT, DAY2)
    assert columns(world) == ["value", "day", "count"]
    assert len(world.snapshot().files) == 2


@pytest.mark.parametrize("finisher", ["reader", "recovery", "next job"])
def test_a_decided_change_is_the_tables_though_its_job_died(world: World, finisher: str) -> None:
    die_of(on(Put, Crash, "/jobs/", applied=True), world, *brings_a_note(world))
    assert columns(world) == ["value", "day", "note"]
    if finisher == "reader":
        assert world.snapshot().schema.names == ["value", "day", "note"]
        return
    if finisher == "recovery":
        world.recover()
    else:
        opened = world.open()
        world.commit(opened, world.write(opened, DAY2))
    assert stored(world).evolution is None
    assert stored(world).schema.names == ["value", "day", "note"]


def test_recovery_of_an_undecided_change_leaves_the_columns(world: World) -> None:
    die_of(on(Put, Crash, "/jobs/"), world, *brings_a_note(world))
    world.recover(patience=0.0)
    assert columns(world) == ["value", "day"]
    evolve(world, WITH_COUNT)
    assert stored(world).schema.names == ["value", "day", "count"]


def test_a_job_that_opened_before_a_change_still_commits(world: World) -> None:
    old, result = world.written(DAY2)
    evolve(world, WITH_NOTE)
    world.commit(old, result)
    assert world.snapshot().schema.names == ["value", "day", "note"]
    assert len(world.snapshot().files) == 3


def test_a_table_that_was_put_back_is_not_read(world: World) -> None:
    key = world.context.root.table_key
    before = world.store.objects[key].body
    evolve(world, WITH_NOTE)
    world.store.apply(Put(key, before))
    with pytest.raises(DamagedError, match="put back to a former state"):
        world.snapshot()


def test_uncoordinated_tables_do_not_evolve() -> None:
    with pytest.raises(InvalidInputError, match="cannot change"):
        World().open(coordination=Coordination.NONE, schema_mode="merge")


# -- rows ----------------------------------------------------------------------------------------


@pytest.fixture
def table(s3_bucket: Bucket) -> Table:
    return Table(f"s3://{s3_bucket.name}/flights")


def load(table: Table, rows: pa.Table, **policy: Any) -> None:
    policy = {"partition_by": ("day",), **policy}
    with table.job(rows.schema, **policy) as job:
        job.write(rows)


def test_old_files_are_read_with_nulls_and_widened(table: Table) -> None:
    old = pa.table(
        {
            "n": pa.array([1, 2], pa.int32()),
            "x": pa.array([0.5, None], pa.float32()),
            "price": pa.array([Decimal("1.25"), None], pa.decimal128(5, 2)),
            "void": pa.nulls(2),
            "row": pa.array([{"a": 1}, None], pa.struct([("a", pa.int16())])),
            "kept": ["k", "l"],
            "day": [1, 1],
        }
    )
    new = pa.table(
        {
            "note": ["later"],
            "day": [2],
            "n": [2**40],
            "x": [0.1],
            "price": pa.array([Decimal("12345678.1234")], pa.decimal128(18, 4)),
            "void": ["no more"],
            "row": [{"a": 2**40}],
        }
    )
    load(table, old)
    before = table.snapshot()
    load(table, new, schema_mode="merge")
    assert table.schema.names == [*old.schema.names, "note"]
    assert table.schema.field("n").type == pa.int64()
    rows = sorted(table.to_arrow().to_pylist(), key=lambda row: row["n"])
    assert rows == [
        {**row, "note": None}
        for row in old.cast(old.schema.set(3, pa.field("void", pa.string()))).to_pylist()
    ] + [{**new.to_pylist()[0], "kept": None}]
    assert table.verify() == []
    assert table.scan(filter=pc.field("note").is_null()).count() == 2
    assert table.scan(filter=pc.field("n") > 2).count() == 1
    # A state that was taken before is read as it was.
    batches = [batch for file in before.files for batch in table.read_file(before, file)]
    assert pa.Table.from_batches(batches).to_pylist() == old.to_pylist()


def test_a_job_of_the_old_columns_goes_on(table: Table) -> None:
    old = pa.table({"n": pa.array([1], pa.int32()), "day": [1]})
    load(table, old)
    load(table, pa.table({"n": [2**40], "day": [1], "note": ["x"]}), schema_mode="merge")
    load(table, old)
    rows = sorted(table.to_arrow().to_pylist(), key=repr)
    assert rows == [
        {"n": 1, "day": 1, "note": None},
        {"n": 1, "day": 1, "note": None},
        {"n": 2**40, "day": 1, "note": "x"},
    ]


def test_a_column_that_was_there_from_the_first_may_not_be_missing(table: Table) -> None:
    load(table, pa.table({"n": [1], "s": ["x"], "day": [1]}))
    with pytest.raises(TableMismatchError, match="s is missing") as caught:
        load(table, pa.table({"n": [1], "day": [1]}))
    assert "schema_mode=merge" in str(caught.value.remedy)
    load(table, pa.table({"n": [1], "day": [1]}), schema_mode="merge")
    assert table.to_arrow(columns=["s"]).column("s").null_count == 1


@pytest.mark.parametrize("more", [[], ["later"]])
def test_first_jobs_that_evolve_leave_files_that_can_be_read(more: list[str]) -> None:
    """Both begin while there is no table; the later one has no column ``s``, and its files
    neither, whatever it brings."""
    table = memory_table(MemoryStore())
    one = pa.table({"n": [1], "s": ["x"], "day": [1]})
    two = pa.table({"n": [2], **{name: ["y"] for name in more}, "day": [1]})
    with table.job(two.schema, partition_by=("day",), schema_mode="merge") as later:
        later.write(two)
        load(table, one)
    nulls: dict[str, Any] = {name: None for name in more}
    expected = [{**one.to_pylist()[0], **nulls}, {"s": None, **two.to_pylist()[0]}]
    assert sorted(table.to_arrow().to_pylist(), key=lambda row: row["n"]) == expected
    assert table.scan(filter=pc.field("s").is_null()).count() == 1
    assert table.verify() == []
    load(table, one)
    assert table.scan().count() == 3


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (pa.array(["1"]), "n is string, in the table int64 (accepted: any integer"),
        (pa.array([1.5]), "n is double, in the table int64 (accepted: any integer"),
        (pa.array([1], pa.uint64()), "n is uint64, in the table int64"),
    ],
)
def test_what_would_lose_something_is_refused(table: Table, given: pa.Array, words: str) -> None:
    load(table, pa.table({"n": [1], "day": [1]}))
    with pytest.raises(TableMismatchError) as caught:
        load(table, pa.table({"n": given, "day": [1]}), schema_mode="merge")
    assert words in caught.value.message
    assert table.schema.names == ["n", "day"]


def test_a_partition_column_keeps_its_type(table: Table) -> None:
    load(table, pa.table({"n": [1], "day": pa.array([1], pa.int32())}))
    with pytest.raises(TableMismatchError, match=r"day is int64.*its type stays"):
        load(table, pa.table({"n": [1], "day": pa.array([1], pa.int64())}), schema_mode="merge")


def test_the_requests_of_a_change(table: Table, s3_bucket: Bucket) -> None:
    """Read ``table.json`` again, write it, and write it once more: three besides an append's."""
    old, new = pa.table({"n": [1], "day": [1]}), pa.table({"n": [1], "day": [1], "s": ["x"]})
    load(table, old)
    s3_bucket.counter.reset()
    load(table, old)
    plain = s3_bucket.counter.total()
    s3_bucket.counter.reset()
    load(table, new, schema_mode="merge")
    assert s3_bucket.counter.total() == plain + 3
    s3_bucket.counter.reset()
    load(table, old)
    assert s3_bucket.counter.total() == plain
