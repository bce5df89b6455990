"""A head that is gone is told of, and never taken for a partition without rows."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from support.faults import at, beside
from support.memory_store import ManualClock, MemoryStore
from support.protocol import DAY1, DAY2, DAY3, ROOT, SCHEMA, World, die_before_applying
from zero_rename.committer import DamagedError, Mode, TableNotFoundError, UnfinishedCommitError
from zero_rename.committer.commit.index.read_index import TableIndex
from zero_rename.committer.commit.state.found_table import read_table
from zero_rename.committer.format.layout import UNPARTITIONED
from zero_rename.committer.overview.seen_partitions import SeenState, partitions_there
from zero_rename.committer.scan.current_table import current_snapshot
from zero_rename.committer.store.requests import CompleteUpload, Put

DAYS = [DAY1, DAY2, DAY3]
MANY = [f"day={number}" for number in range(100, 120)]


def loaded(*days: str) -> World:
    """A table with one job for each day."""
    world = World(MemoryStore(clock=ManualClock()))
    for day in days:
        world.advance(60)
        world.load(day)
    return world


def lose(world: World, *days: str, files: bool = False) -> None:
    for day in days:
        del world.store.objects[ROOT.head_key(day)]
        for key in world.listed(day) if files else ():
            del world.store.objects[key]


def refused(world: World, day: str = DAY2, partitions: Any = None) -> None:
    with pytest.raises(DamagedError) as caught:
        world.snapshot(partitions)
    assert caught.value.key == ROOT.head_key(day)
    assert "zero-rename repair" in str(caught.value)


class Condition:
    """Days from one number on: asked about each partition, as a filter is."""

    def __init__(self, least: int) -> None:
        self.least = least

    def __contains__(self, name: str) -> bool:
        return int(name.removeprefix("day=")) >= self.least


class TestReaders:
    def test_of_the_table_are_refused(self) -> None:
        world = loaded(*DAYS)
        lose(world, DAY2)
        refused(world)
        refused(world, partitions=[DAY2])
        refused(world, partitions=Condition(2))
        assert len(world.snapshot([DAY1, DAY3]).files) == 2
        assert len(world.snapshot(Condition(3)).files) == 1  # type: ignore[arg-type]

    def test_of_an_unpartitioned_table_are_refused(self) -> None:
        world = World()
        world.load(UNPARTITIONED, partition_by=())
        lose(world, UNPARTITIONED)
        refused(world, UNPARTITIONED)

    def test_of_a_table_without_any_head_are_refused(self) -> None:
        world = loaded(*DAYS)
        lose(world, *DAYS)
        refused(world, DAY1)

    def test_of_two_partition_columns_are_refused(self) -> None:
        world = World()
        hours = SCHEMA.append(pa.field("hour", pa.int32()))
        for hour in ("day=1/hour=1", "day=1/hour=2", "day=2/hour=1"):
            world.load(hour, schema=hours, partition_by=("day", "hour"))
        assert len(world.snapshot().files) == 3
        lose(world, "day=1/hour=2")
        refused(world, "day=1/hour=2")

    def test_a_decision_tells_where_no_file_is_left(self) -> None:
        world = World()
        world.load(*DAYS)
        lose(world, DAY2, files=True)
        refused(world)

    def test_the_index_tells_where_no_file_is_left(self) -> None:
        world = loaded(*MANY)
        assert world.write_index()
        lose(world, MANY[7], files=True)
        refused(world, MANY[7])
        refused(world, MANY[7], Condition(105))

    def test_a_healthy_table_with_an_index_costs_no_request_more(self) -> None:
        world = loaded(*MANY)
        assert world.write_index()
        world.driver.requests.clear()
        world.snapshot()
        # The record of the table, two listings of heads, the index's record and its one part.
        assert len(world.driver.requests) == 5

    def test_the_index_keeps_what_it_alone_knows(self) -> None:
        """However often it is written anew."""
        world = loaded(*MANY)
        world.write_index()
        before = world.store.objects[ROOT.index_key].etag
        lose(world, MANY[7], files=True)
        for day in (*MANY[10:], *MANY[10:]):
            world.advance(60)
            world.load(day)
        world.write_index()
        assert world.store.objects[ROOT.index_key].etag != before
        refused(world, MANY[7])

    def test_files_of_others_without_a_head_are_passed_over_as_ever(self) -> None:
        world = loaded(*DAYS)
        world.store.apply(Put(f"{ROOT.partition_prefix('day=9')}part-0.parquet", b"foreign"))
        job = world.snapshot([DAY1]).files[0].job
        world.store.apply(Put(ROOT.data_key("day=9", 0, job, 0), b"moved by hand"))
        assert len(world.snapshot().files) == 3

    def test_a_table_that_comes_into_being_is_not_taken_for_one_that_lost_heads(self) -> None:
        """A reader at each request of a job that makes partitions, and a job at each of a
        reader's."""
        for made in range(60):
            world = loaded(DAY1)
            reader = World(world.store)

            def reads(reader: World = reader) -> None:
                assert len(reader.snapshot().files) in (1, 3)

            world.driver.fault = at(made, reads)
            world.load(DAY2, DAY3)
            other = World(world.store)
            reader.driver.fault = at(made, partial(other.load, "day=4", "day=5"))
            assert len(reader.snapshot().files) in (3, 5)


class TestWriters:
    def test_an_append_does_not_make_it_for_good(self) -> None:
        world = loaded(*DAYS)
        lose(world, DAY2)
        with pytest.raises(DamagedError, match="is gone"):
            world.load(DAY2)
        assert world.store.keys(ROOT.open_prefix) == []
        assert len(world.listed(DAY2)) == 1
        refused(world)
        refused(world, partitions=[DAY2])
        with pytest.raises(DamagedError, match="is gone"):
            world.load(DAY2)
        world.load(DAY1)

    def test_a_replace_makes_the_partition_whole(self) -> None:
        world = loaded(*DAYS)
        world.write_index()
        world.load(DAY2)
        world.write_index()
        lose(world, DAY2)
        job = world.load(DAY2, mode=Mode.REPLACE).job
        assert world.jobs_of(DAY2) == [job]
        assert len(world.snapshot().files) == 3
        world.write_index()
        assert len(world.snapshot().files) == 3

    def test_a_head_made_anew_where_no_file_was_left_is_noticed(self) -> None:
        world = loaded(*MANY)
        for _ in range(3):
            world.load(MANY[7])
        world.write_index()
        lose(world, MANY[7], files=True)
        world.load(MANY[7])
        with pytest.raises(DamagedError, match="made anew: it is at version 1"):
            world.snapshot()
        world.write_index()
        with pytest.raises(DamagedError, match="made anew"):
            world.snapshot()
        world.load(MANY[7], mode=Mode.REPLACE)
        assert len(world.snapshot().files) == len(MANY)

    def test_one_that_is_lost_while_its_job_commits_is_not_called_applied(self) -> None:
        """Its rows would be gone without a word."""
        world = loaded(DAY1)
        opened, result = world.written(DAY1)
        world.driver.fault = beside(CompleteUpload, lambda: lose(world, DAY1), times=1)
        with pytest.raises(UnfinishedCommitError, match="a head that it had claimed is gone"):
            world.commit(opened, result)
        assert world.store.keys(ROOT.open_prefix) == [ROOT.open_key(opened.job)]
        (outcome,) = world.recover()
        assert str(outcome.outcome) == "failed"
        assert world.store.keys(ROOT.open_prefix) == [ROOT.open_key(opened.job)]

    def test_nor_is_one_that_died_before_it_was_applied(self) -> None:
        world = loaded(DAY1)
        opened = world.open()
        die_before_applying(world, opened, world.write(opened, DAY1))
        lose(world, DAY1)
        (outcome,) = world.recover()
        assert str(outcome.outcome) == "failed"


class TestTheRecordOfTheTable:
    def test_readers_say_that_it_is_gone(self) -> None:
        world = loaded(*DAYS)
        del world.store.objects[ROOT.table_key]
        with pytest.raises(DamagedError, match=r"table\.json is gone"):
            world.driver.run(current_snapshot(world.context, None))

    def test_a_job_of_its_columns_makes_it_again(self) -> None:
        world = loaded(*DAYS)
        del world.store.objects[ROOT.table_key]
        world.load(DAY1)
        assert len(world.snapshot().files) == 4
        assert world.driver.run(read_table(world.context)).partition_by == ("day",)


class TestAllRecords:
    """What a resolution hid, or a replace kept, lies beside what counts: a listing sees both."""

    @staticmethod
    def hidden() -> World:
        world = loaded(DAY1)
        world.load(DAY1, mode=Mode.REPLACE, keep_replaced=True)
        for key in world.store.keys(ROOT.control_prefix):
            del world.store.objects[key]
        assert len(world.listed(DAY1)) == 2
        return world

    def test_readers_do_not_count_what_lies_there(self) -> None:
        world = self.hidden()
        with pytest.raises(DamagedError, match="no record is here"):
            world.driver.run(current_snapshot(world.context, None))

    def test_nor_does_a_first_job(self) -> None:
        world = self.hidden()
        with pytest.raises(DamagedError, match="no record is here"):
            world.load(DAY2)
        with pytest.raises(TableNotFoundError):
            world.snapshot()

    def test_a_replace_of_the_whole_table_begins_anew(self) -> None:
        world = self.hidden()
        job = world.load(DAY2, mode=Mode.REPLACE, replace_table=True).job
        assert [file.job for file in world.snapshot().files] == [job]
        assert world.listed(DAY1) == []


def test_the_overview_shows_it() -> None:
    world = loaded(*MANY)
    world.write_index()
    lose(world, MANY[7])
    table = world.driver.run(read_table(world.context))
    seen = world.driver.run(partitions_there(world.context, table)).partitions
    assert seen[MANY[7]].state is SeenState.UNREADABLE
    assert len(seen) == len(MANY)


def test_the_index_names_each_partition_once() -> None:
    world = loaded(*MANY)
    world.write_index()
    lose(world, MANY[7])
    world.load(MANY[3])
    world.write_index()
    index = TableIndex.decode(world.store.objects[ROOT.index_key].body, ROOT)
    assert sum(part.rows for part in index.parts) == len(MANY) + 1
