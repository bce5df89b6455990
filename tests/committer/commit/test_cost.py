"""What a step costs besides the usual, counted in requests of a store in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from support.memory_store import Behaviour, MemoryStore
from support.protocol import DAY1, World
from zero_rename.committer.commit.state.context import Limits
from zero_rename.committer.upkeep.gc.collect import gc

#: An append of one file to a partition that has a head.
USUAL = 3 + 6 + 8


def _cost(world: World, *partitions: str) -> int:
    world.driver.requests.clear()
    world.load(*partitions)
    return len(world.driver.requests)


def test_a_fold_reads_each_decision_once_and_comes_once_in_so_many_jobs() -> None:
    named = Limits().decisions_per_head
    world = World()
    world.load(DAY1)
    costs = [_cost(world, DAY1) for _ in range(2 * named + 2)]
    # The decisions that the head names, the manifest before, and the new one.
    fold = named + 2
    assert max(costs) <= USUAL + fold == 27
    assert sum(cost > USUAL for cost in costs) == 2


def test_a_listing_has_a_request_for_each_thousand_heads() -> None:
    """Counted with ten a page."""
    world = World(MemoryStore(behaviour=Behaviour(page=10)))
    world.load(*(f"day={n}" for n in range(40)))
    world.write_index()
    assert _cost(world, DAY1) <= USUAL + 4


def test_a_snapshot_reads_again_only_the_heads_that_moved() -> None:
    """Of 200 partitions one is changed with every 150 requests of the reader."""
    days = [f"day={n}" for n in range(200)]
    world = World()
    world.load(*days)
    other = World(world.store)
    sent = 0

    def busy(request: Any, apply: Callable[[Any], Any]) -> Any:
        nonlocal sent
        sent += 1
        if sent % 150 == 0:
            other.load(days[sent % 200])
        return apply(request)

    world.driver.fault = busy
    snapshot = world.snapshot()
    assert len(snapshot.versions) == 200
    assert sent <= 200 + 20


#: What a first job sends besides: it looks at what is there, probes the store and makes the table.
FIRST = 37


def test_first_jobs_that_race_probe_the_store_each() -> None:
    """There is no record yet that could tell one what the other has found."""
    alone = World()
    alone.load(DAY1)
    assert len(alone.driver.requests) <= USUAL + FIRST
    world = World()
    both = [world.open(), world.open()]
    results = [world.write(opened, DAY1) for opened in both]
    for opened, result in zip(both, results, strict=True):
        world.commit(opened, result)
    assert len(world.driver.requests) <= 2 * (USUAL + FIRST)
    world.driver.requests.clear()
    world.load(DAY1)
    assert len(world.driver.requests) <= USUAL


def test_a_table_of_many_small_appends_stays_quick() -> None:
    """Every third job writes the index, without a look at decisions that it knows: a reader reads
    two heads at the most, and of each the last decision. Nobody maintains this table."""
    world = World(MemoryStore())
    costs, reads = [], []
    for number in range(240):
        world.advance(60)
        costs.append(_cost(world, f"day={number % 60}"))
        world.driver.requests.clear()
        assert len(world.snapshot().files) == number + 1
        reads.append(len(world.driver.requests))
    assert sum(costs[60:]) / 180 <= USUAL + 4
    assert max(costs[60:]) <= USUAL + 12
    assert {count for count in reads[60:]} == {5, 7, 9}


def test_gc_leaves_the_index_as_fresh_as_it_was() -> None:
    """It folds what heads name, and so changes each of them."""
    world = World(MemoryStore())
    for number in range(240):
        world.advance(60)
        world.load(f"day={number % 60}")
    world.advance(8 * 24 * 3600)
    assert world.driver.run(gc(world.context, apply=True)).folded == 60
    world.driver.requests.clear()
    assert len(world.snapshot().files) == 240
    assert len(world.driver.requests) == 5
