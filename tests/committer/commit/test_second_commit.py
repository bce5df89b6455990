"""Commits of one job that are called a second time, with other partitions than the first."""

from __future__ import annotations

from typing import Any

import pytest

from support.faults import on
from support.memory_store import Behaviour, MemoryStore
from support.protocol import DAY1, DAY2, ROOT, World
from zero_rename.committer import JobFencedError, Mode, UnfinishedCommitError
from zero_rename.committer.commit.state.heads import read_head, swap_head
from zero_rename.committer.format.job_spec import Coordination
from zero_rename.committer.format.records.head import Slot
from zero_rename.committer.store.requests import CompleteUpload, Put, Unknown

UNCOORDINATED: dict[str, Any] = {"coordination": Coordination.NONE}


def claim(world: World, partition: str) -> str | None:
    slot = Slot.partition(ROOT, partition)
    return world.driver.run(read_head(world.context, slot)).head.claim


def claimed_by_second_commit(world: World) -> str:
    """A head with the claim of a committed job whose decision does not name the partition: a second
    commit with more partitions has claimed it, and its process has died."""
    job = world.load(DAY1).job
    slot = Slot.partition(ROOT, DAY2)
    free = world.driver.run(read_head(world.context, slot))
    claimed = free.head.claimed(job, "another", world.context.write_id(), None)
    world.driver.run(swap_head(free, claimed))
    assert claim(world, DAY2) == job
    return job


class TestMorePartitions:
    def test_second_commit_with_more_partitions_reports_the_first_and_leaves_no_claim(
        self, world: World
    ) -> None:
        world.load(DAY1)
        opened, result = world.written(DAY1)
        extra = world.write(opened, DAY1, DAY2)
        first = world.commit(opened, result)
        second = world.commit(opened, extra)
        assert [it.partition for it in second.partitions] == [
            it.partition for it in first.partitions
        ]
        assert claim(world, DAY2) is None

    def test_second_commit_of_a_replaced_table_leaves_no_claim_on_a_new_directory(
        self, world: World
    ) -> None:
        world.load(DAY1)
        opened, result = world.written(DAY1, mode=Mode.REPLACE, replace_table=True)
        world.commit(opened, result)
        world.driver.run(Put(f"{ROOT.prefix}/day=2/foreign.parquet", b"x"))
        world.commit(opened, result)
        assert claim(world, DAY2) is None

    def test_next_writer_takes_off_a_claim_that_the_decision_does_not_name(
        self, world: World
    ) -> None:
        claimed_by_second_commit(world)
        job = world.load(DAY2).job
        assert (world.jobs_of(DAY2), claim(world, DAY2)) == ([job], None)

    def test_reader_passes_over_a_claim_that_the_decision_does_not_name(self, world: World) -> None:
        claimed_by_second_commit(world)
        assert {file.partition for file in world.snapshot().files} == {DAY1}

    def test_purge_takes_off_a_claim_that_the_decision_does_not_name(self, world: World) -> None:
        job = claimed_by_second_commit(world)
        (done,) = world.purge().recovered
        assert (done.job, str(done.outcome)) == (job, "committed")
        assert "took its claim off day=2" in done.detail
        assert claim(world, DAY2) is None


class TestFewerPartitions:
    def test_second_commit_without_results_reports_the_first(self, world: World) -> None:
        opened, result = world.written(DAY1)
        world.commit(opened, result)
        assert [it.partition for it in world.commit(opened).partitions] == [DAY1]

    def test_second_commit_without_results_in_another_process_reports_the_first(
        self, world: World
    ) -> None:
        world.load(DAY1)
        opened, result = world.written(DAY1)
        world.commit(opened, result)
        other = world.with_context(process=lambda: "other")
        assert [it.partition for it in other.commit(opened).partitions] == [DAY1]


@pytest.mark.parametrize("conditional", [True, False])
class TestUncoordinated:
    def world(self, conditional: bool) -> World:
        behaviour = Behaviour(conditional_put=conditional, conditional_delete=conditional)
        world = World(MemoryStore(behaviour=behaviour))
        world.load(DAY1, **UNCOORDINATED)
        return world

    def test_second_commit_of_a_replace_keeps_files_of_a_later_job(self, conditional: bool) -> None:
        world = self.world(conditional)
        opened, result = world.written(DAY1, mode=Mode.REPLACE, **UNCOORDINATED)
        world.driver.fault = on(CompleteUpload, Unknown("no answer"))
        with pytest.raises(UnfinishedCommitError):
            world.commit(opened, result)
        world.driver.fault = None
        later = world.load(DAY1, **UNCOORDINATED)
        world.commit(opened, result)
        assert any(later.job in key for key in world.listed(DAY1))

    def test_commit_after_an_abort_is_refused(self, conditional: bool) -> None:
        world = self.world(conditional)
        opened, result = world.written(DAY1, mode=Mode.REPLACE, **UNCOORDINATED)
        world.abort(opened, result)
        with pytest.raises(JobFencedError):
            world.commit(opened, result)
