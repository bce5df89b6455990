"""Heads that are gone are built again where the decisions tell all, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from support.faults import beside
from support.protocol import DAY1, DAY2, DAY3, ROOT, World, die_before_applying
from zero_rename.committer import Mode, OnConflict, OnRepeat, RebuildAction, RebuiltHead, Snapshot
from zero_rename.committer.commit.claim import claim_all
from zero_rename.committer.commit.commit import _claims, _targets
from zero_rename.committer.commit.state.heads import read_head
from zero_rename.committer.format.layout import UNPARTITIONED
from zero_rename.committer.format.records.head import PartitionHead, Slot
from zero_rename.committer.format.records.partition_ranks import PartitionRanks
from zero_rename.committer.store.requests import Put
from zero_rename.committer.upkeep.gc.collect import gc
from zero_rename.committer.upkeep.rebuilt_heads import rebuild_heads
from zero_rename.committer.upkeep.verify import verify

HEAD = ROOT.head_key(DAY2)
SCHEMA = pa.schema([("value", pa.int64()), ("day", pa.int32())])


def filled(loads: int = 3) -> World:
    world = World()
    for _ in range(loads):
        world.load(DAY1, DAY2)
        world.load(DAY2)
    return world


def rebuilt(world: World, apply: bool = True) -> list[RebuiltHead]:
    return world.driver.run(rebuild_heads(world.context, apply))


def restored(world: World, *heads: str, loses: Callable[[World], None] | None = None) -> World:
    """The table with heads lost and built again, which is as it was."""
    before: Snapshot = world.snapshot()
    ranks = _ranks(world)
    for key in heads or (HEAD,):
        del world.store.objects[key]
    stored = dict(world.store.objects)
    planned = rebuilt(world, apply=False)
    assert world.store.objects == stored, "a plan changes nothing"
    assert {it.action for it in planned} == {RebuildAction.WOULD_REBUILD}
    done = rebuilt(world)
    assert [it.partition for it in done] == [it.partition for it in planned]
    assert {it.action for it in done} == {RebuildAction.REBUILT}
    after = world.snapshot()
    assert (after.files, after.versions) == (before.files, before.versions)
    assert _ranks(world) == ranks, "a late run would take the place of a newer one's rows"
    assert world.driver.run(verify(world.context)) == []
    assert rebuilt(world) == []
    world.load(DAY2)
    world.assert_clean()
    return world


def _ranks(world: World) -> dict[str, PartitionRanks]:
    slots = [Slot.partition(ROOT, name) for name in (DAY1, DAY2)]
    return {it.name: world.driver.run(read_head(world.context, it)).head.ranks for it in slots}


def left(world: World, *keys: str, why: str) -> None:
    for key in keys or (HEAD,):
        world.store.objects.pop(key, None)
    before = dict(world.store.objects)
    (found,) = rebuilt(world)
    assert (found.partition, found.action) == (DAY2, RebuildAction.LEFT)
    assert why in found.reason
    assert world.store.objects == before


def _claims_at(world: World, number: int) -> list[str]:
    """At a request of the world's driver a replace of a partition opens, writes and claims; its
    job, once that has happened."""
    other, claimed, sent = World(world.store), list[str](), count(1)

    def fault(request: Any, apply: Callable[[Any], Any]) -> Any:
        if next(sent) == number:
            policy: dict[str, Any] = {"on_conflict": OnConflict.LAST_WINS}
            opened = other.open(Mode.REPLACE, replace_partitions=(DAY2,), **policy)
            result = other.write(opened, DAY2)
            targets = other.driver.run(_targets(other.context, opened, [result]))
            requests = _claims(other.context, opened, targets)
            other.driver.run(claim_all(other.context, opened, requests))
            claimed.append(opened.job)
        return apply(request)

    world.driver.fault = fault
    return claimed


class TestRebuilt:
    @pytest.mark.parametrize("loads", [3, 20], ids=["few", "more than a head names"])
    def test_after_appends(self, loads: int) -> None:
        restored(filled(loads))

    def test_after_a_replace(self) -> None:
        world = filled()
        world.load(DAY2, mode=Mode.REPLACE)
        world.load(DAY2)
        restored(world)

    def test_after_appends_of_older_runs(self) -> None:
        world = filled()
        world.load(DAY2, mode=Mode.REPLACE, run_rank=2)
        world.load(DAY2, run_rank=3)
        world.load(DAY2, run_rank=1)
        restored(world)

    def test_one_that_was_emptied(self) -> None:
        world = filled()
        world.load(DAY1, mode=Mode.REPLACE, replace_partitions=(DAY1, DAY2))
        restored(world)

    def test_what_a_replace_kept_stays_hidden(self) -> None:
        world = filled()
        world.load(DAY2, mode=Mode.REPLACE, keep_replaced=True)
        before = world.snapshot().files
        del world.store.objects[HEAD]
        assert rebuilt(world)[0].files == 1
        assert world.snapshot().files == before

    def test_a_run_that_replaced_its_own_rows(self) -> None:
        world = filled()
        for _ in range(2):
            world.load(DAY2, idempotency_key="run", on_repeat=OnRepeat.REPLACE_OWN)
        restored(world)

    def test_files_from_before_the_table(self, world: World) -> None:
        world.store.apply(Put(f"{ROOT.partition_prefix(DAY2)}old.parquet", b"rows"))
        world.load(DAY1, DAY2)
        restored(world)

    def test_all_of_them(self) -> None:
        restored(filled(), ROOT.head_key(DAY1), HEAD)

    def test_one_that_a_refused_append_made_anew(self) -> None:
        world = filled()
        before = world.snapshot().files
        del world.store.objects[HEAD]
        with pytest.raises(Exception, match="is gone"):
            world.load(DAY2)
        assert HEAD in world.store.objects
        assert [it.action for it in rebuilt(world)] == [RebuildAction.REBUILT]
        assert world.snapshot().files == before

    def test_of_a_job_that_died_before_it_was_applied(self) -> None:
        """Its claim went with the head."""
        world = filled()
        opened = world.open()
        die_before_applying(world, opened, world.write(opened, DAY1, DAY2))
        del world.store.objects[HEAD]
        assert [it.action for it in rebuilt(world)] == [RebuildAction.REBUILT]
        assert world.jobs_of(DAY2)[-1] == opened.job
        assert world.jobs_of(DAY1)[-1] == opened.job
        assert len(world.jobs_of(DAY2)) == 7
        world.assert_clean()


class TestLeft:
    def test_where_a_decision_is_condensed(self) -> None:
        world = filled(9)
        world.advance(30 * 24 * 3600)
        world.driver.run(gc(world.context, apply=True))
        left(world, why="is condensed")

    def test_where_one_is_gone(self) -> None:
        world = filled()
        left(world, HEAD, ROOT.decision_key(world.jobs_of(DAY2)[2]), why="version 3")

    def test_where_the_last_one_is_gone(self) -> None:
        world = filled()
        left(world, HEAD, ROOT.decision_key(world.jobs_of(DAY2)[-1]), why="a marker names 6")

    def test_where_the_last_one_and_its_markers_are_gone(self) -> None:
        world = filled()
        job = world.jobs_of(DAY2)[-1]
        markers = (ROOT.marker_key(DAY2), ROOT.marker_key(UNPARTITIONED))
        keys = (*markers, ROOT.decision_key(job))
        left(world, HEAD, *keys, why="no decision is on record")

    def test_where_one_cannot_be_read(self) -> None:
        world = filled()
        world.store.apply(Put(ROOT.decision_key(world.jobs_of(DAY1)[0]), b"{"))
        left(world, why="cannot be read")

    def test_where_a_file_is_gone(self) -> None:
        world = filled()
        left(world, HEAD, world.listed(DAY2)[0], why="is not there as it was decided")

    def test_while_a_job_is_open_that_may_hold_its_claim(self) -> None:
        world = filled()
        opened = world.open()
        left(world, why=opened.job)

    def test_head_that_a_living_replace_claims_meanwhile_keeps_its_claim(self) -> None:
        """At each request of the repair, also where the replace has opened since it listed the
        open jobs."""
        for number in range(1, 60):
            world = filled(1)
            del world.store.objects[HEAD]
            claimed = _claims_at(world, number)
            found = rebuilt(world)
            if not claimed:
                assert number > 10
                return
            head = PartitionHead.decode(
                world.store.objects[HEAD].body, Slot.partition(ROOT, DAY2), ROOT
            )
            assert head.claim == claimed[0], number
            (entry,) = found
            assert head.version == (0 if entry.action is RebuildAction.LEFT else 2)
        raise AssertionError("the repair does not end")

    def test_where_two_jobs_found_the_same_version(self) -> None:
        """A head was made anew, and lost again."""
        world = filled(1)
        for key in (HEAD, *world.listed(DAY2)):
            del world.store.objects[key]
        world.load(DAY2)
        left(world, why="both found it at version 0")

    def test_a_head_that_somebody_makes_meanwhile_stays(self) -> None:
        world = filled()
        del world.store.objects[HEAD]
        other = World(world.store)

        world.driver.fault = beside(Put, lambda: other.load(DAY2, mode=Mode.REPLACE), HEAD, times=1)
        (found,) = rebuilt(world)
        assert found.action is RebuildAction.LEFT
        assert "meanwhile" in found.reason
        assert len(world.snapshot([DAY2]).files) == 1


def test_a_healthy_table_is_left_alone() -> None:
    world = filled()
    world.load(DAY3)
    opened = world.open()
    die_before_applying(world, opened, world.write(opened, "day=4"))
    before = dict(world.store.objects)
    assert rebuilt(world) == []
    assert world.store.objects == before
