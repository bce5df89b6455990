"""Requests and round trips of whole jobs, as exact numbers: answers a tick late, 32 connections.

The figures stand in docs/performance.md. One that grows here has been spent unseen elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from support.protocol import ROOT
from support.virtual_time import CONNECTIONS, TickingDriver, TickingWorld
from zero_rename.committer.attempt import attempt_writer
from zero_rename.committer.commit.commit import commit_job
from zero_rename.committer.format.job_spec import FileOptions, Mode
from zero_rename.committer.store.requests import Get

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.int32())])
ID = pa.schema([SCHEMA.field("id")])
#: Tasks that write at once.
SLOTS = 4


@dataclass(frozen=True)
class Cost:
    """What a job cost: requests, and round trips one after the other of its parts."""

    requests: int
    opening: int
    tasks: int
    commit: int


def cost(
    world: TickingWorld,
    tasks: int,
    days: int = 0,
    mode: Mode = Mode.APPEND,
    rows: int = 1,
    **policy: object,
) -> Cost:
    """One job of ``tasks`` tasks, each with a file, or one in each of ``days`` partitions.

    :param rows: of each task, where there are no partitions.
    """
    driver = world.driver
    driver.requests.clear()
    columns = ("day",) if days else ()
    schema = SCHEMA if days else ID
    began = driver.now
    opened = world.open(mode, schema=schema, partition_by=columns, **policy)
    # As save() has it where it sees its tasks end.
    opened = replace(opened, awaited=True)
    written = driver.now
    slots, results = [0] * SLOTS, []
    for task in range(tasks):
        worker = TickingDriver(world.store)
        writer = attempt_writer(worker, opened, task, 0)  # type: ignore[arg-type]
        numbers = list(range(days or rows))
        writer.write(pa.table(dict.fromkeys(schema.names, numbers), schema=schema))
        results.append(writer.close())
        slots[slots.index(min(slots))] += worker.now
        driver.requests += worker.requests
    driver.now += max(slots)
    done = driver.now
    driver.run(commit_job(world.context, opened, results, tasks))
    return Cost(len(driver.requests), written - began, max(slots), driver.now - done)


def made(days: int = 0, **policy: object) -> TickingWorld:
    """A table that a job has made, a minute ago."""
    world = TickingWorld()
    cost(world, 1, days, **policy)  # type: ignore[arg-type]
    world.store.clock.advance(60)  # type: ignore[attr-defined]
    return world


def test_one_file() -> None:
    assert cost(made(), 1) == Cost(15, 2, 2, 6)


def test_one_file_in_the_place_of_a_named_day() -> None:
    """Its head is read while the job opens, too."""
    named = cost(made(1), 1, 1, Mode.REPLACE, replace_partitions=("day=0",))
    unnamed = cost(made(1), 1, 1, Mode.REPLACE)
    assert named == replace(unnamed, commit=unnamed.commit - 1)


def test_the_job_that_writes_the_index_reads_no_head_that_it_has_moved() -> None:
    world = made(365)
    cost(world, 1, 365)
    gets = [request.key for request in world.driver.requests if isinstance(request, Get)]
    heads = [key for key in gets if key.startswith(ROOT.heads_prefix) and key != ROOT.index_key]
    assert ROOT.index_key in gets
    assert len(heads) == 365


def opened(world: TickingWorld) -> int:
    """How many requests open the whole table."""
    world.driver.requests.clear()
    world.snapshot()
    return len(world.driver.requests)


def test_a_table_of_many_partitions_that_one_job_made_opens_in_a_few_requests() -> None:
    """Its record, the heads twice, the index and what it consists of. The job writes the index of
    what it holds, with two requests."""
    few, many = TickingWorld(), TickingWorld()
    costs = [cost(world, 1, days).requests for world, days in ((few, 15), (many, 365))]
    assert costs[1] - costs[0] == (365 - 15) * 8 + 2
    assert opened(few) == 3 + 15 + 2
    assert opened(many) == 5


def test_a_job_that_moves_many_heads_of_a_table_with_an_index_writes_it_anew() -> None:
    """Six requests: heads, the index and its part, and both written; the former part goes."""
    world = made(365)
    few, many = cost(made(365), 1, 15), cost(world, 1, 365)
    assert many.requests - few.requests == (365 - 15) * 8 + 6
    assert opened(world) == 5


def test_64_files() -> None:
    assert cost(made(), 64) == Cost(204, 2, 2 * 64 // SLOTS, 8)


def test_1000_files() -> None:
    completes = -(-1000 // CONNECTIONS)
    assert cost(made(), 1000) == Cost(3012, 2, 2 * 1000 // SLOTS, completes + 5)


class TestOneTask:
    """The floor is two round trips, create and part: the part's answer is what a task reports."""

    def test_files_in_many_partitions(self) -> None:
        assert cost(made(31), 1, 31).tasks == 2

    def test_files_one_after_the_other(self) -> None:
        """Each begins with its first row, while the part of the one before is under way."""
        world = made()
        found = cost(world, 1, rows=16, files=FileOptions(rows_per_file=1))
        assert (found.tasks, len(world.snapshot().files)) == (16 + 1, 1 + 16)

    def test_the_upload_is_created_while_rows_come(self) -> None:
        """Of a table without partitions: there, the first row tells the file's name."""
        world = made()
        opened = replace(world.open(schema=ID, partition_by=()), awaited=True)
        worker = TickingDriver(world.store)
        writer = attempt_writer(worker, opened, 0, 0)
        writer.close()
        assert worker.requests == [], "a task without rows leaves nothing, and asks nothing"
        writer = attempt_writer(worker, opened, 1, 0)
        for number in range(3):
            writer.write(pa.table({"id": [number]}, schema=ID))
            worker.now += 1
        result = writer.close()
        assert (worker.now, len(worker.requests), result.rows) == (3 + 1, 2, 3)

    def test_one_that_ends_while_its_upload_is_created_leaves_none(self) -> None:
        world = made()
        opened = replace(world.open(schema=ID, partition_by=()), awaited=True)
        writer = attempt_writer(TickingDriver(world.store), opened, 0, 0)
        writer.write(pa.table({"id": [1]}, schema=ID))
        assert len(world.store.upload_keys()) == 1
        assert writer.abort() == ()
        assert world.store.upload_keys() == []
