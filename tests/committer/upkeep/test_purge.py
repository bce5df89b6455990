"""Purge says what is true: what could not be aborted, and whose an upload is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.faults import Crash, beside, on
from support.memory_store import MemoryStore
from support.protocol import DAY1, ROOT, World, die_before_applying
from zero_rename.committer import (
    Aborted,
    OpenedJob,
    StoreFullError,
    StoreRefusedError,
    UnfinishedCommitError,
)
from zero_rename.committer.commit.state.context import Limits
from zero_rename.committer.format.layout import TableRoot
from zero_rename.committer.store.requests import (
    AbortUpload,
    CompleteUpload,
    CreateUpload,
    Delete,
    DeleteMany,
    ListUploads,
    Put,
    Refused,
    Unknown,
    UploadPart,
)

DAY = 24 * 3600.0


def upload(world: World, key: str) -> str:
    created = world.store.apply(CreateUpload(key))
    world.store.apply(UploadPart(key, created.upload_id, 1, b"x"))
    return created.upload_id


def leftovers(world: World, count: int) -> list[str]:
    """Uploads of a job that is closed."""
    job = world.load(DAY1).job
    keys = [f"flights/day=1/part-{n:05d}-{job}-0009.parquet" for n in range(count)]
    for key in keys:
        upload(world, key)
    return keys


def actions(world: World, **options: Any) -> dict[str, str]:
    return {entry.key: str(entry.action) for entry in world.purge(**options).entries}


class TestFailures:
    @pytest.mark.parametrize(
        ("answer", "said"),
        [
            (Unknown("503 SlowDown"), "503 SlowDown"),
            (Refused("MethodNotAllowed"), "MethodNotAllowed"),
            (StoreRefusedError("These credentials lack a right."), "lack a right"),
        ],
        ids=["503", "405", "403"],
    )
    def test_what_is_still_there_is_not_called_aborted(self, answer: Any, said: str) -> None:
        world = World()
        keys = leftovers(world, 3)
        world.driver.fault = on(AbortUpload, answer)
        report = world.purge()
        assert [str(entry.action) for entry in report.entries] == ["failed"] * 3
        assert said in report.entries[0].reason
        assert report.failed == 3
        assert world.store.upload_keys() == keys

    def test_one_that_cannot_be_aborted_does_not_keep_the_others(self, world: World) -> None:
        first, second = leftovers(world, 2)
        world.driver.fault = on(AbortUpload, Unknown("500"), first)
        assert actions(world) == {first: "failed", second: "aborted"}
        assert world.store.upload_keys() == [first]

    def test_one_that_is_still_listed_is_aborted_again(self, world: World) -> None:
        """A part that arrives late leaves parts behind, although the store said *done*."""
        (key,) = leftovers(world, 1)
        left = dict(world.store.uploads)
        late = beside(AbortUpload, lambda: world.store.uploads.update(left), applied=True, times=1)
        world.driver.fault = late
        assert actions(world) == {key: "aborted"}
        assert world.store.upload_keys() == []

    def test_nothing_to_abort_costs_one_listing(self, world: World) -> None:
        world.load(DAY1)
        world.driver.requests.clear()
        world.purge()
        assert sum(isinstance(request, ListUploads) for request in world.driver.requests) == 1


def full(world: World, most: int) -> None:
    """The store takes no more than so many bytes of objects and uploads."""

    def used() -> int:
        parts = (body for it in world.store.uploads.values() for _, body in it.parts.values())
        objects = (it.body for it in world.store.objects.values())
        return sum(map(len, parts)) + sum(map(len, objects))

    def fault(request: Any, apply: Callable[[Any], Any]) -> Any:
        if isinstance(request, Put | UploadPart) and used() + len(request.body) > most:
            raise StoreFullError("The store refused Put: it is full (QuotaExceeded).")
        return apply(request)

    world.driver.fault = fault


def fill(world: World, opened: OpenedJob) -> int:
    """Upload parts of a job that make up nearly all of the store; its quota."""
    key = ROOT.data_key(DAY1, 7, opened.job, 0)
    created = world.store.apply(CreateUpload(key))
    world.store.apply(UploadPart(key, created.upload_id, 1, b"x" * 1_000_000))
    return 1_000_000


class TestFullStore:
    """QuotaExceeded: even an abort decision has no room."""

    def test_the_owner_makes_room_by_its_uploads(self, world: World) -> None:
        world.load(DAY1)
        opened = world.open()
        full(world, fill(world, opened))
        assert isinstance(world.abort(opened), Aborted)
        world.assert_clean()
        world.load(DAY1)

    def test_the_owner_of_a_committed_job_aborts_nothing(self, world: World) -> None:
        opened, result = world.written(DAY1)
        die_before_applying(world, opened, result)
        full(world, 0)
        with pytest.raises(UnfinishedCommitError, match="committed"):
            world.abort(opened)
        assert result.files[0].key in world.store.objects

    def test_purge_makes_room_and_then_settles_what_had_none(self, world: World) -> None:
        dead = world.open()
        world.write(dead, DAY1)
        closed = world.open()
        world.abort(closed)
        full(world, fill(world, closed))
        assert [str(it.outcome) for it in world.recover(patience=0)] == ["failed"]
        report = world.purge(patience=0)
        assert report.failed == 0
        assert {it.job: str(it.outcome) for it in report.recovered} == {dead.job: "aborted"}
        world.assert_clean()

    def test_job_that_may_live_is_reported_once(self, world: World) -> None:
        dead = world.open()
        world.write(dead, DAY1)
        world.advance(10 * DAY)
        living, closed = world.open(), world.open()
        world.abort(closed)
        full(world, fill(world, closed))
        report = world.purge()
        outcomes = [(it.job, str(it.outcome)) for it in report.recovered]
        assert sorted(outcomes) == sorted([(living.job, "left"), (dead.job, "aborted")])

    def test_a_job_named_as_dead_makes_room_itself(self, world: World) -> None:
        dead = world.open()
        full(world, fill(world, dead))
        assert world.purge(patience=0).failed == 1
        report = world.purge(jobs=[dead.job])
        assert {it.job: str(it.outcome) for it in report.recovered} == {dead.job: "aborted"}
        world.assert_clean()

    def test_a_job_named_as_dead_that_is_committed_keeps_its_rows(self, world: World) -> None:
        opened, result = world.written(DAY1)
        die_before_applying(world, opened, result)
        (found,) = world.purge(jobs=[opened.job]).recovered
        assert str(found.outcome) == "committed"
        assert world.jobs_of(DAY1) == [opened.job]

    def test_job_named_as_dead_whose_decision_cannot_be_read_fails_alone(
        self, world: World
    ) -> None:
        dead, damaged = world.open(), world.open()
        world.write(dead, DAY1)
        world.store.apply(Put(ROOT.decision_key(damaged.job), b"{"))
        report = world.purge(jobs=[damaged.job, dead.job])
        assert report.failed == 1
        outcomes = {it.job: str(it.outcome) for it in report.recovered}
        assert outcomes == {dead.job: "aborted", damaged.job: "failed"}

    def test_job_named_as_dead_whose_abort_is_not_confirmed_fails_alone(self, world: World) -> None:
        unsure, dead = world.open(), world.open()
        world.store.apply(CreateUpload("flights/day=1/orphaned"))
        world.driver.fault = on(Put, Unknown("no answer"), ROOT.decision_key(unsure.job))
        report = world.purge(jobs=[unsure.job, dead.job], foreign_older_than=0.0)
        outcomes = {it.job: str(it.outcome) for it in report.recovered}
        assert outcomes == {dead.job: "aborted", unsure.job: "failed"}
        assert world.store.upload_keys() == []


class TestWhose:
    def nested(self, store: MemoryStore) -> World:
        """A table in a folder of the table in ``flights``."""
        world = World(store)
        world.context = type(world.context)(TableRoot("bucket", "flights/inner"))
        return world

    def test_a_committed_job_of_a_table_below_this_one_keeps_its_uploads(self) -> None:
        outer = World()
        outer.load(DAY1)
        inner = self.nested(outer.store)
        opened, result = inner.written(DAY1)
        inner.driver.fault = on(CompleteUpload, Crash, result.files[0].key)
        with pytest.raises(Crash):
            inner.commit(opened, result)
        spark = "flights/inner/day=1/part-00000-2f9a.snappy.parquet"
        upload(inner, spark)
        outer.advance(10 * DAY)
        (first, second) = outer.purge(foreign_older_than=DAY).entries
        assert {str(first.action), str(second.action)} == {"kept"}
        assert "s3://bucket/flights/inner" in first.reason
        again = self.nested(outer.store)
        again.recover()
        assert again.jobs_of(DAY1) == [opened.job]
        assert again.purge(foreign_older_than=DAY).entries[0].key == spark
        again.assert_clean()

    def test_the_table_above_keeps_its_uploads_when_the_inner_one_is_purged(self) -> None:
        outer = World()
        inner = World(outer.store)
        inner.context = type(inner.context)(TableRoot("bucket", "flights/day=1"))
        inner.load(DAY1)  # First: nobody makes a table in a partition of one that is there.
        outer.load(DAY1)
        opened, result = outer.written(DAY1)
        outer.advance(10 * DAY)
        (entry,) = inner.purge(foreign_older_than=DAY).entries
        assert (entry.key, str(entry.action)) == (result.files[0].key, "kept")
        outer.commit(opened, result)

    def test_a_job_without_records_is_never_foreign_but_may_be_named(self, world: World) -> None:
        world.load(DAY1)
        opened = world.open()
        (file,) = world.write(opened, DAY1).files
        world.store.apply(Delete(ROOT.open_key(opened.job)))
        world.advance(10 * DAY)
        assert actions(world, foreign_older_than=DAY) == {file.key: "kept"}
        assert actions(world) == {file.key: "kept"}
        assert actions(world, jobs=[opened.job]) == {file.key: "aborted"}
        assert world.store.upload_keys() == []

    def test_uploads_of_a_job_whose_decision_cannot_be_read_are_kept(self, world: World) -> None:
        (kept,) = leftovers(world, 1)
        (job,) = world.jobs_of(DAY1)
        world.store.apply(Put(ROOT.decision_key(job), b'{"format":1'))
        (other, _) = leftovers(world, 2)
        found = actions(world)
        assert found.pop(kept) == "kept"
        assert set(found.values()) == {"aborted"}
        assert other in found


class TestOldRecords:
    """What jobs leave below ``_zero_rename/`` and nobody reads any more."""

    @pytest.fixture
    def world(self) -> World:
        return World().with_context(limits=Limits(decisions_per_head=1))

    @staticmethod
    def folded(world: World) -> str:
        """Append until a new manifest is there; its key."""
        before = set(world.store.keys(ROOT.manifests_prefix))
        while not (new := set(world.store.keys(ROOT.manifests_prefix)) - before):
            world.load(DAY1)
        return new.pop()

    def test_failures_go_when_they_are_old(self, world: World) -> None:
        world.load(DAY1)
        old, young = ROOT.failure_key("run 1"), ROOT.failure_key("run 2")
        world.store.apply(Put(old, b"{}"))
        world.advance(6 * DAY)
        world.store.apply(Put(young, b"{}"))
        assert actions(world, apply=False) == {}
        world.advance(2 * DAY)
        assert actions(world, apply=False) == {old: "would-remove"}
        assert world.store.keys(ROOT.failures_prefix) == sorted([old, young])
        assert actions(world) == {old: "removed"}
        assert world.store.keys(ROOT.failures_prefix) == [young]
        assert actions(world, records_older_than=DAY) == {young: "removed"}

    def test_lists_of_files_go_that_no_head_names(self, world: World) -> None:
        first = self.folded(world)
        world.advance(8 * DAY)
        assert actions(world) == {}, "a head names it"
        second = self.folded(world)
        before = world.snapshot().files
        assert actions(world) == {first: "removed"}
        assert world.store.keys(ROOT.manifests_prefix) == [second]
        assert world.snapshot().files == before

    def test_young_ones_stay_while_readers_may_be_about_to_read_them(self, world: World) -> None:
        first = self.folded(world)
        world.advance(3600)
        self.folded(world)
        assert actions(world) == {}
        world.advance(3600)
        assert actions(world) == {first: "removed"}

    def test_also_where_the_partition_is_never_still(self, world: World) -> None:
        first = self.folded(world)
        world.advance(8 * DAY)
        self.folded(world)
        world.advance(3600)
        world.load(DAY1)
        assert actions(world) == {first: "removed"}

    def test_none_goes_where_its_head_cannot_be_read(self, world: World) -> None:
        self.folded(world)
        self.folded(world)
        world.advance(8 * DAY)
        world.store.apply(Put(ROOT.head_key("day=9"), b"{"))
        assert set(actions(world, apply=False).values()) == {"would-remove"}
        world.store.apply(Put(ROOT.head_key(DAY1), b"{"))
        assert not {"removed", "would-remove"} & set(actions(world, apply=False).values())

    def test_one_that_stays_is_said(self, world: World) -> None:
        world.load(DAY1)
        key = ROOT.failure_key("run 1")
        world.store.apply(Put(key, b"{}"))
        world.advance(8 * DAY)
        world.driver.fault = on(DeleteMany, Unknown("500"))
        report = world.purge(apply=True)
        assert report.failed == 1
        assert "(500)" in report.entries[0].reason
