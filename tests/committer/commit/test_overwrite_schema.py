"""A replace of the whole table puts other columns in the place of the table's, by its commit, and
no file of the former ones comes after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from conftest import Bucket

from support.faults import Crash, on
from support.protocol import DAY1, DAY2, DAY3, SCHEMA, World, die_of
from zero_rename import Table
from zero_rename.committer.commit.commit import commit_job
from zero_rename.committer.commit.evolve import withdraw
from zero_rename.committer.commit.snapshot import take_snapshot
from zero_rename.committer.commit.state.job_state import OpenedJob
from zero_rename.committer.errors import (
    CommitConflictError,
    InvalidInputError,
    JobFencedError,
    TableMismatchError,
)
from zero_rename.committer.format.job_spec import Coordination, Mode, OnConflict
from zero_rename.committer.format.records.table_record import TableRecord
from zero_rename.committer.store.requests import Put, Step

pytestmark = pytest.mark.memory_s3

NAMED = pa.schema([("name", pa.string()), ("day", pa.int32())])
TEXTS = pa.schema([("value", pa.string()), ("day", pa.int32())])
WITH_NOTE = SCHEMA.append(pa.field("note", pa.string()))
LAST = {"on_conflict": OnConflict.LAST_WINS}


@pytest.fixture
def world() -> World:
    world = World()
    world.load(DAY1, DAY2)
    return world


def begin(world: World, schema: pa.Schema = NAMED, **policy: Any) -> OpenedJob:
    policy = {"replace_table": True, "schema_mode": "overwrite", **policy}
    return world.open(Mode.REPLACE, schema=schema, **policy)


def overwrite(world: World, schema: pa.Schema = NAMED, *partitions: str, **policy: Any) -> None:
    opened = begin(world, schema, **policy)
    world.commit(opened, world.write(opened, *(partitions or (DAY1,))))


def stored(world: World) -> TableRecord:
    key = world.context.root.table_key
    return TableRecord.decode(world.store.objects[key].body, key)


def run_beside(step: Any, *acts: tuple[str, str, Callable[[], Any]]) -> Step[Any]:
    """``step``, and beside it each of ``acts`` in turn: right before a request of the kind that is
    named, for a key or prefix with the text that is."""
    left = list(acts)
    answer: Any = None
    while True:
        try:
            request = step.send(answer)
        except StopIteration as end:
            assert not left
            return end.value
        where = getattr(request, "key", None) or getattr(request, "prefix", "")
        if left and type(request).__name__ == left[0][0] and left[0][1] in where:
            left.pop(0)[2]()
        answer = yield request


def test_the_commit_puts_the_jobs_columns_in_the_place_of_the_tables(world: World) -> None:
    opened = begin(world)
    result = world.write(opened, DAY1)
    assert world.snapshot().schema.names == ["value", "day"]
    world.commit(opened, result)
    now = world.snapshot()
    assert now.schema.names == ["name", "day"]
    assert [file.job for file in now.files] == [opened.job]
    assert (stored(world).evolution, stored(world).overwritten) == (None, 1)
    assert world.listed(DAY2) == []
    world.load(DAY2, schema=NAMED)
    with pytest.raises(TableMismatchError, match="value is not in the table"):
        world.open()


def test_an_aborted_job_changes_nothing(world: World) -> None:
    opened = begin(world)
    world.abort(opened, world.write(opened, DAY1))
    assert world.snapshot().schema.names == ["value", "day"]
    assert len(world.snapshot().files) == 2


@pytest.mark.parametrize("partition", [DAY1, DAY3])
@pytest.mark.parametrize("policy", [{}, LAST])
def test_what_opened_before_comes_with_none_of_the_former_columns(
    world: World, partition: str, policy: Any
) -> None:
    """Into a partition that was emptied, and into one that nobody had."""
    old, result = world.written(partition, **policy)
    overwrite(world, TEXTS)
    with pytest.raises(CommitConflictError, match="since this job opened"):
        world.commit(old, result)
    assert {file.job for file in world.snapshot().files}.isdisjoint({old.job})
    world.assert_clean()


@pytest.mark.parametrize("policy", [{"schema_mode": "merge", "schema": WITH_NOTE}, {}])
def test_a_new_partition_that_comes_at_the_last_moment_is_emptied_too(
    world: World, policy: Any
) -> None:
    """Between the look for partitions and the word in ``table.json``: the new partition's job saw
    nothing of the overwrite, so the overwrite sees that one, gives way and replaces it."""
    opened = begin(world, **LAST)
    result = world.write(opened, DAY1)
    other, late = world.written(DAY3, **policy)
    commit = commit_job(world.context, opened, [result])
    meanwhile = ("Put", "table.json", lambda: world.commit(other, late))
    done = world.driver.run(run_beside(commit, meanwhile))
    assert sorted(change.partition for change in done.partitions) == [DAY1, DAY2, DAY3]
    now = world.snapshot()
    assert now.schema.names == ["name", "day"]
    assert [file.job for file in now.files] == [opened.job]
    world.assert_clean()


def test_a_new_partitions_job_waits_for_the_end_of_an_overwrite(world: World) -> None:
    """Its claim came after the overwrite's last look: it sees the change that is under way."""
    opened = begin(world)
    result = world.write(opened, DAY1)
    other, late = world.written(DAY3)
    commit = commit_job(world.context, opened, [result])
    # Nobody decides meanwhile, so it takes the overwrite for dead in the end.
    meanwhile = ("Put", "/_zero_rename/jobs/", lambda: world.commit(other, late))
    with pytest.raises(JobFencedError):
        world.driver.run(run_beside(commit, meanwhile))
    assert world.snapshot().schema.names == ["value", "day"]
    assert len(world.snapshot().files) == 3
    world.assert_clean()


def test_a_reader_between_two_overwrites_looks_again(world: World) -> None:
    """The table was read before the first, its heads before the second, and then its columns."""

    now = world.driver.run(
        run_beside(
            take_snapshot(world.context),
            ("ListObjects", "/heads/", lambda: overwrite(world)),
            ("Get", "table.json", lambda: overwrite(world, TEXTS)),
        )
    )
    assert now.schema.field("value").type == pa.string()
    assert [file.job for file in now.files] == [file.job for file in world.snapshot().files]


def test_two_overwrites_at_once_are_one_after_the_other(world: World) -> None:
    first, second = begin(world, **LAST), begin(world, TEXTS, **LAST)
    one, two = world.write(first, DAY1), world.write(second, DAY2)
    world.commit(second, two)
    world.commit(first, one)
    assert world.snapshot().schema.names == ["name", "day"]
    assert [file.job for file in world.snapshot().files] == [first.job]
    assert stored(world).overwritten == 2


def test_without_other_columns_it_is_a_replace_of_the_whole_table(world: World) -> None:
    overwrite(world, SCHEMA)
    assert (stored(world).schema_version, stored(world).overwritten) == (0, 0)
    assert len(world.snapshot().files) == 1


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ({"replace_table": False}, "without replacing the whole table"),
        ({"coordination": Coordination.NONE}, "cannot change"),
    ],
)
def test_what_contradicts_it_is_refused(world: World, policy: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        begin(world, **policy)
    assert world.store.keys(world.context.root.open_prefix) == []


def test_partition_columns_stay(world: World) -> None:
    dated = pa.schema([("value", pa.int64()), ("day", pa.string())])
    with pytest.raises(TableMismatchError, match="day is string, in the table int32"):
        begin(world, dated)
    with pytest.raises(InvalidInputError, match="'day' is not among the columns"):
        begin(world, pa.schema([("value", pa.int64())]), partition_by=None)


# -- rows ----------------------------------------------------------------------------------------


def test_columns_are_dropped_and_retyped(s3_bucket: Bucket) -> None:
    table = Table(f"s3://{s3_bucket.name}/flights")
    old = pa.table({"n": [1, 2], "gone": [0.5, 1.5], "day": [1, 2]})
    new = pa.table({"day": [2], "n": ["two"], "more": [True]})
    whole: dict[str, Any] = {"mode": "overwrite", "replace_table": True}
    with table.job(old.schema, partition_by=["day"]) as job:
        job.write(old)
    with pytest.raises(TableMismatchError) as caught, table.job(new.schema, **whole):
        pass
    assert "schema_mode=overwrite" in str(caught.value.remedy)
    with table.job(new.schema, schema_mode="overwrite", **whole) as job:
        job.write(new)
    assert table.to_arrow().select(new.schema.names).to_pylist() == new.to_pylist()
    assert table.schema.names == new.schema.names
    assert table.verify() == []
    with table.job(new.schema) as job:
        job.write(new)
    assert table.scan(filter=[("n", "=", "two")]).count() == 2


def test_nobody_takes_out_the_change_of_another_job() -> None:
    """One that overwrites takes out its own word alone, to claim more."""
    world = World()
    world.load(DAY1)
    dead, result = world.written(DAY1, schema=WITH_NOTE, schema_mode="merge")
    die_of(on(Put, Crash, world.context.root.decision_key(dead.job)), world, dead, result)
    key = world.context.root.table_key
    before = world.store.objects[key]
    other = world.open(
        Mode.REPLACE,
        schema=TEXTS,
        replace_table=True,
        schema_mode="overwrite",
        partition_by=("day",),
    )
    world.driver.run(withdraw(world.context, other))
    assert world.store.objects[key] is before
    world.driver.run(withdraw(world.context, dead))
    assert TableRecord.decode(world.store.objects[key].body, key).evolution is None
