"""Reading many partitions takes a look at each change, not at each of all for each partition."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from support.protocol import World
from zero_rename.committer.commit.state.decide import Decided, read_decision
from zero_rename.committer.commit.state.heads import all_heads
from zero_rename.committer.commit.state.partition_files import assemble
from zero_rename.committer.format.records.decision import Decision
from zero_rename.committer.format.records.head import HeadState

PARTITIONS = [f"day={day}" for day in range(200)]


class Counted(tuple):
    """Counts how often its items are gone through."""

    seen = 0

    def __iter__(self) -> Iterator[Any]:
        for item in super().__iter__():
            Counted.seen += 1
            yield item


def test_a_job_of_many_partitions_is_gone_through_once() -> None:
    world = World()
    job = world.load(*PARTITIONS).job
    found = world.snapshot()
    assert [file.partition for file in found.files] == sorted(PARTITIONS)
    heads = {name: head for name, head in _heads(world).items() if head.decisions == (job,)}
    assert len(heads) == len(PARTITIONS)
    decided = _decided(world, job)
    Counted.seen = 0
    files = [assemble(head, (), {job: decided}) for head in heads.values()]
    assert {len(of_one) for of_one in files} == {1}
    assert Counted.seen == len(PARTITIONS)


def _heads(world: World) -> dict[str, Any]:
    states = world.driver.run(all_heads(world.context))
    return {state.slot.name: state.head for state in states if isinstance(state, HeadState)}


def _decided(world: World, job: str) -> Decided:
    decided = world.driver.run(read_decision(world.context, job))
    assert decided is not None
    decision: Decision = replace(decided.decision, partitions=Counted(decided.decision.partitions))
    return replace(decided, decision=decision)
