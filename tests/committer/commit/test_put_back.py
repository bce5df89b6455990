"""A head that was put back to a state before a committed job's claim: nothing is removed."""

from __future__ import annotations

import pytest

from support.protocol import DAY1, ROOT, World, die_before_applying, memory_table
from zero_rename.committer import DamagedError, Mode

HEAD = ROOT.head_key(DAY1)


def test_recovery_removes_nothing_that_a_head_names_that_was_put_back() -> None:
    world = World()
    world.load(DAY1)
    before, listed = world.store.objects[HEAD], world.listed(DAY1)
    opened, result = world.written(DAY1, mode=Mode.REPLACE)
    die_before_applying(world, opened, result)
    claimed = world.store.objects[HEAD]
    world.store.objects[HEAD] = before
    (found,) = World(world.store).recover(patience=0)
    assert (str(found.outcome), "put back" in found.detail) == ("failed", True)
    assert world.listed(DAY1) == listed
    world.store.objects[HEAD] = claimed
    (found,) = World(world.store).recover(patience=0)
    assert str(found.outcome) == "committed"
    assert world.jobs_of(DAY1) == [opened.job]


def test_head_that_was_put_back_to_the_claimed_version_is_told_too() -> None:
    """Without the claim it is a copy from before the job."""
    world = World()
    for _ in range(3):
        world.load(DAY1)
    older = world.store.objects[HEAD]
    world.load(DAY1)
    opened, result = world.written(DAY1, mode=Mode.REPLACE)
    die_before_applying(world, opened, result)
    world.store.objects[HEAD] = older
    listed = world.listed(DAY1)
    (found,) = World(world.store).recover(patience=0)
    assert (str(found.outcome), "put back" in found.detail) == ("failed", True)
    assert world.listed(DAY1) == listed


def test_lists_of_a_lost_head_stay_though_a_refused_write_has_made_it_anew() -> None:
    world = World()
    for _ in range(60):
        world.load(DAY1)
    head = world.store.objects[HEAD]
    lists = [key for key in world.store.keys(ROOT.control_prefix) if "manifest" in key]
    assert lists
    del world.store.objects[HEAD]
    with pytest.raises(DamagedError):
        world.load(DAY1)
    assert HEAD in world.store.objects
    world.advance(400 * 86400.0)
    memory_table(world.store).gc(0.0, apply=True)
    world.store.objects[HEAD] = head
    assert len(world.snapshot().files) == 60


def test_job_of_before_is_finished_where_a_replace_has_made_a_lost_head_anew() -> None:
    world = World()
    for _ in range(3):
        world.load(DAY1)
    opened, result = world.written(DAY1, mode=Mode.REPLACE)
    die_before_applying(world, opened, result)
    del world.store.objects[HEAD]
    world.advance(1.0)
    world.load(DAY1, mode=Mode.REPLACE)
    kept = {file.key for file in world.snapshot().files}
    (found,) = World(world.store).recover(patience=0)
    assert str(found.outcome) == "committed"
    assert {file.key for file in world.snapshot().files} == kept
