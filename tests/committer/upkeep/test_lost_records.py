"""Records that are gone: ``verify`` and the doctor tell, and ``adopt`` takes none for foreign."""

from __future__ import annotations

from typing import Any

import pytest

from support.memory_store import StoredObject
from support.protocol import DAY1, DAY2, DAY3, ROOT, World, die_before_applying
from zero_rename.committer import AdoptAction, DamagedError, Finding, Mode
from zero_rename.committer.format.job_spec import NOBODY, OnRepeat, SuccessMarkers
from zero_rename.committer.format.records.head import Slot
from zero_rename.committer.store.lifecycle import LifecycleRule
from zero_rename.committer.upkeep.adopt import adopt, adopt_current
from zero_rename.committer.upkeep.doctor.examination import examine
from zero_rename.committer.upkeep.verify import verify_current

DAYS = [DAY1, DAY2, DAY3]


def loaded(**policy: Any) -> World:
    """A table with one job for each day."""
    world = World()
    for day in DAYS:
        world.load(day, **policy)
    return world


def lose(world: World, *keys: str) -> World:
    for key in keys:
        del world.store.objects[key]
    return world


def findings(world: World) -> set[tuple[str, str, str]]:
    found: list[Finding] = world.driver.run(verify_current(world.context))
    return {(it.partition, it.key, str(it.kind)) for it in found}


def problems(world: World) -> set[tuple[str, str]]:
    return {(it.what, it.subject) for it in world.driver.run(examine(world.context))}


HEAD = ROOT.head_key(DAY2)


class TestAHead:
    def told(self, world: World) -> None:
        assert findings(world) == {(DAY2, HEAD, "damaged")}
        assert problems(world) == {("damaged", HEAD)}

    def test_that_files_tell_of(self) -> None:
        self.told(lose(loaded(success_markers=SuccessMarkers.NONE), HEAD))

    def test_that_the_index_tells_of(self) -> None:
        world = loaded(success_markers=SuccessMarkers.NONE)
        world.write_index()
        self.told(lose(world, HEAD, *world.listed(DAY2)))

    def test_that_a_marker_tells_of(self) -> None:
        world = loaded()
        self.told(lose(world, HEAD, *world.listed(DAY2)))

    def test_that_a_refused_append_made_anew(self) -> None:
        world = lose(loaded(), HEAD)
        with pytest.raises(DamagedError):
            world.load(DAY2)
        self.told(world)

    def test_adopt_leaves_its_partition_and_says_why(self) -> None:
        world = lose(loaded(), HEAD)
        report = world.driver.run(adopt(world.context, NOBODY, apply=True))
        (entry,) = report.entries
        assert (entry.partition, entry.action) == (DAY2, AdoptAction.LEFT)
        assert "zero-rename repair" in entry.reason
        assert HEAD not in world.store.objects

    def test_a_marker_of_a_table_that_was_here_before_is_none(self) -> None:
        world = loaded()
        key = ROOT.marker_key("day=9")
        world.store.objects[key] = world.store.objects[ROOT.marker_key(DAY1)]
        for job in world.jobs_of(DAY1):
            world.load(DAY1, mode=Mode.REPLACE)
            lose(world, ROOT.decision_key(job))
        assert findings(world) == set()
        assert problems(world) == set()


class TestAllHeads:
    def test_are_told(self) -> None:
        world = loaded()
        keys = {ROOT.head_key(day) for day in DAYS}
        lose(world, *keys)
        assert {key for _, key, _ in findings(world)} == keys
        assert problems(world) == {("damaged", key) for key in keys}


class TestAHeadThatWasPutBack:
    def put_back(self, world: World, body: StoredObject) -> World:
        world.store.objects[HEAD] = body
        return world

    def test_to_before_the_claim_of_an_open_job_is_told_by_the_doctor(self) -> None:
        world = loaded()
        before = world.store.objects[HEAD]
        die_before_applying(world, *world.written(DAY2, mode=Mode.REPLACE))
        assert problems(world) == set()
        self.put_back(world, before)
        assert problems(world) == {("damaged", HEAD)}
        (found,) = world.driver.run(examine(world.context))
        assert "was put back to a former state: it is at version 1" in found.detail

    @pytest.mark.parametrize("mode", [Mode.APPEND, Mode.REPLACE], ids=str)
    def test_to_before_a_closed_job_is_told_by_verify(self, mode: Mode) -> None:
        world = loaded()
        world.load(DAY2, mode=Mode.REPLACE)
        before = world.store.objects[HEAD]
        world.advance(1)
        world.load(DAY2, mode=mode)
        world.load(DAY1)
        assert findings(world) == set()
        assert findings(self.put_back(world, before)) == {(DAY2, HEAD, "damaged")}

    def test_that_a_replace_made_anew_is_not(self) -> None:
        world = loaded()
        for _ in range(3):
            world.load(DAY2)
        late = {key: world.store.objects[key] for key in world.listed(DAY2)}
        lose(world, HEAD)
        world.load(DAY2, mode=Mode.REPLACE)
        world.store.objects.update(late)
        assert {kind for _, _, kind in findings(world)} == {"unnamed"}

    def test_files_whose_removal_is_outstanding_do_not_tell_of_one(self) -> None:
        world = loaded()
        late = {key: world.store.objects[key] for key in world.listed(DAY2)}
        world.load(DAY2, mode=Mode.REPLACE)
        world.store.objects.update(late)
        assert {kind for _, _, kind in findings(world)} == {"unnamed"}


class TestARunsRecord:
    """Without it a cleared run adds its rows a second time."""

    def test_that_is_gone_is_told(self) -> None:
        world = World()
        for run in ("a", "b"):
            world.load(DAY1, idempotency_key=run)
        assert problems(world) == set()
        key = Slot.run(ROOT, "a").key
        assert problems(lose(world, key)) == {("record of a run gone", key)}

    def test_that_was_put_back_is_told(self) -> None:
        world = World()
        world.load(DAY1, idempotency_key="a")
        key = Slot.run(ROOT, "a").key
        before = world.store.objects[key]
        world.load(DAY1, idempotency_key="a", on_repeat=OnRepeat.REPLACE_OWN)
        assert problems(world) == set()
        world.store.objects[key] = before
        assert problems(world) == {("record of a run gone", key)}


class TestTheRecordOfTheTable:
    def test_is_told(self) -> None:
        world = lose(loaded(), ROOT.table_key)
        assert findings(world) == {("", ROOT.table_key, "damaged")}
        assert problems(world) == {("damaged", ROOT.table_key)}
        with pytest.raises(DamagedError, match=r"table\.json is gone"):
            world.driver.run(adopt_current(world.context, NOBODY, apply=True))

    def test_rule_that_may_have_expired_it_is_told_too(self) -> None:
        world = lose(loaded(), ROOT.table_key)
        world.store.rules = (LifecycleRule("tidy", "", expires=True),)
        told = {what for what, _ in problems(world)}
        assert told == {"damaged", "lifecycle rule expires the table"}


class TestAllRecords:
    def test_are_told(self) -> None:
        world = loaded()
        world.load(DAY1, mode=Mode.REPLACE, keep_replaced=True)
        lose(world, *world.store.keys(ROOT.control_prefix))
        first = min(world.listed(DAY1))
        assert findings(world) == {("", first, "damaged")}
        assert problems(world) == {("damaged", first)}
        with pytest.raises(DamagedError, match="no record is here"):
            world.driver.run(adopt_current(world.context, NOBODY, apply=True))


def test_of_a_table_that_lost_nothing_nobody_says_anything() -> None:
    world = loaded()
    world.load(DAY1, mode=Mode.REPLACE)
    for day in DAYS:
        world.load(day, mode=Mode.REPLACE)
    world.load(mode=Mode.REPLACE, replace_partitions=(DAY3,))
    world.write_index()
    world.load(DAY1)
    assert findings(world) == set()
    assert problems(world) == set()
