"""The history of a table as a frame: a row for each partition that a job changed."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from support.protocol import DAY1, DAY2, ROOT, World, memory_table
from zero_rename.committer import InvalidInputError, Mode, Owner, Table, TableNotFoundError
from zero_rename.committer.commit.state.context import Limits


def shown(table: Table, *columns: str, **asked: Any) -> list[tuple[Any, ...]]:
    found = table.history(**asked).select(list(columns)).to_pylist()
    return [tuple(row.values()) for row in found]


def test_the_last_job_comes_first(world: World) -> None:
    world.load(DAY1, DAY2, rows=3, owner=Owner(dag_id="flights", run_id="r1", try_number=2))
    world.advance(60)
    world.load(DAY1, mode=Mode.REPLACE, rows=5, owner=Owner(application="by hand"))
    world.advance(60)
    gone = world.open(owner=Owner(dag_id="flights"))
    world.abort(gone)
    table = memory_table(world.store)
    assert shown(table, "change", "partition", "version", "rows", "files", "files_removed") == [
        (None, None, None, None, None, None),
        ("replace", DAY1, 2, 5, 1, 1),
        ("append", DAY1, 1, 3, 1, 0),
        ("append", DAY2, 1, 3, 1, 0),
    ]
    assert shown(table, "verdict", "dag_id", "application", "run_id", "try_number") == [
        ("abort", "flights", None, None, None),
        ("commit", None, "by hand", None, None),
        ("commit", "flights", None, "r1", 2),
        ("commit", "flights", None, "r1", 2),
    ]
    assert shown(table, "job")[0] == (gone.job,)


def test_job_that_another_process_has_aborted_shows_its_owner(world: World) -> None:
    world.load(DAY1)
    dead = world.open(owner=Owner(dag_id="flights", run_id="r1"))
    world.advance(100_000)
    (done,) = memory_table(world.store).recover()
    assert (done.job, done.outcome) == (dead.job, "aborted")
    newest = shown(memory_table(world.store), "verdict", "dag_id", "run_id")[0]
    assert newest == ("abort", "flights", "r1")


def test_rows_that_a_job_only_wrote_again_are_not_new(world: World) -> None:
    """A compaction, say."""
    first = world.load(DAY1, DAY2, rows=3).job
    world.advance(60)
    policy: dict[str, Any] = {"replace_partitions": (DAY1,), "merges": {DAY1: (first,)}}
    world.load(DAY1, mode=Mode.REPLACE, rows=3, **policy)
    changes = shown(memory_table(world.store), "change", "partition")
    assert changes == [("rewrite", DAY1), ("append", DAY1), ("append", DAY2)]


def test_times_are_the_store_s(world: World) -> None:
    world.load(DAY1)
    (at,) = memory_table(world.store).history()["decided_at"].to_pylist()
    assert at == dt.datetime.fromtimestamp(world.store.clock(), dt.UTC).replace(microsecond=0)


def test_so_many_jobs(world: World) -> None:
    jobs = []
    for _ in range(3):
        world.advance(60)
        jobs.append(world.load(DAY1, DAY2).job)
    table = memory_table(world.store)
    assert shown(table, "job", most_jobs=1) == [(jobs[2],)] * 2
    with pytest.raises(InvalidInputError):
        table.history(0)


def test_a_decision_that_cannot_be_read(world: World) -> None:
    whole = world.load(DAY1).job
    world.advance(60)
    broken = world.load(DAY1).job
    key = ROOT.decision_key(broken)
    world.store.objects[key] = replace(world.store.objects[key], body=b"{")
    table = memory_table(world.store)
    assert shown(table, "job", "verdict") == [(whole, "commit"), (broken, "damaged")]


def test_job_of_whose_decision_a_part_is_gone_is_damaged() -> None:
    world = World().with_context(limits=Limits(files_per_object=1))
    job = world.load(DAY1, DAY2).job
    whole = ROOT.decision_key(job)
    part = next(it for it in world.store.objects if it.startswith(whole[:-4]) and it != whole)
    del world.store.objects[part]
    assert shown(memory_table(world.store), "job", "verdict") == [(job, "damaged")]


def test_a_table_that_is_none(world: World) -> None:
    table = memory_table(world.store)
    with pytest.raises(TableNotFoundError):
        table.history()


def test_it_is_a_frame_of_columns_that_stay(world: World) -> None:
    world.load(DAY1)
    found = memory_table(world.store).history()
    assert isinstance(found, pa.Table)
    assert found.schema.field("decided_at").type == pa.timestamp("us", "UTC")
    assert found.to_pandas()["rows"].sum() == 1
