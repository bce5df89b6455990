"""A record that cannot be read harms itself only, is named, and has a way out."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from support.protocol import DAY1, DAY2, DAY3, ROOT, World, die_before_applying
from zero_rename.committer import DamagedError, Mode, OnRepeat, Problem, RecordDamagedError
from zero_rename.committer.commit.claim import ClaimRequest, claim_all
from zero_rename.committer.commit.index.write_index import write_index_now
from zero_rename.committer.commit.snapshot import survey
from zero_rename.committer.format.job_spec import NOBODY
from zero_rename.committer.format.records.head import Slot
from zero_rename.committer.store.requests import AbortUpload, Delete, Put
from zero_rename.committer.upkeep.adopt import adopt
from zero_rename.committer.upkeep.doctor.examination import examine
from zero_rename.committer.upkeep.gc.collect import gc
from zero_rename.committer.upkeep.recovery import open_jobs
from zero_rename.committer.upkeep.repair import repair
from zero_rename.committer.upkeep.verify import verify


@pytest.fixture(autouse=True)
def small_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that name files may have a quarter of a megabyte here, not of a gigabyte."""
    for module in ("format.records.codec", "commit.state.decide", "commit.state.partition_files"):
        monkeypatch.setattr(f"zero_rename.committer.{module}.LIST_BYTES", LARGEST)
    monkeypatch.setattr("zero_rename.committer.format.records.codec.RECORD_BYTES", LARGEST)


#: Bytes of the largest record of these tests.
LARGEST = 256 * 1024


def truncated(record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode()[:-20]


def set_to(**members: str) -> Callable[[dict[str, Any]], bytes]:
    """The record with members whose JSON is given as text."""

    def spoil(record: dict[str, Any]) -> bytes:
        text = json.dumps(record | {name: f"@{name}@" for name in members})
        for name, value in members.items():
            text = text.replace(f'"@{name}@"', value)
        return text.encode()

    return spoil


SPOILT = {
    "larger than any record": lambda record: json.dumps(record).encode() + b" " * LARGEST,
    "truncated": truncated,
    "a time beyond all calendars": set_to(opened_at="1e300", decided_at="1e300"),
    "infinity": set_to(opened_at="Infinity", decided_at="-Infinity"),
    "half a surrogate pair": set_to(write_id=r'"\ud800"'),
    "no text": lambda _: b"\xff\xfe\x00",
    "another job's": set_to(job='"zr1-00000000000000000000000000"'),
}


def spoil(world: World, key: str, how: Callable[[dict[str, Any]], bytes]) -> None:
    world.store.apply(Put(key, how(json.loads(world.store.objects[key].body))))


def problems(world: World) -> list[Problem]:
    return world.driver.run(examine(world.context))


def named(world: World) -> set[tuple[str, str]]:
    return {(problem.what, problem.subject) for problem in problems(world)}


def claimed(world: World, *partitions: str, **policy: Any) -> str:
    """A job that died between its claims and its decision."""
    opened = world.open(**policy)
    world.write(opened, *partitions)
    slots = [Slot.partition(ROOT, name) for name in partitions]
    requests = [ClaimRequest(slot, opened.base.get(slot.name), replaces=False) for slot in slots]
    world.driver.run(claim_all(world.context, opened, requests))
    return opened.job


def decided(world: World, *partitions: str) -> str:
    """A job that died between its decision and its first completion."""
    opened, result = world.written(*partitions)
    die_before_applying(world, opened, result)
    return opened.job


@pytest.mark.parametrize("how", SPOILT.values(), ids=list(SPOILT))
class TestOpenRecord:
    def damaged(self, how: Callable[[dict[str, Any]], bytes]) -> tuple[World, str]:
        """A dead job that claims two partitions, and whose open record is spoilt."""
        world = World()
        world.load(DAY1)
        job = claimed(world, DAY1, DAY2, idempotency_key="run")
        spoil(world, ROOT.open_key(job), how)
        return world, job

    def test_it_is_listed_among_the_others_and_named(self, how: Any) -> None:
        world, job = self.damaged(how)
        other = world.open()
        found = {it.job: it.damage for it in world.driver.run(open_jobs(world.context))}
        assert set(found) == {job, other.job}
        assert ROOT.open_key(job) in found[job]
        assert found[other.job] == ""
        assert ("damaged", ROOT.open_key(job)) in named(world)

    def test_writers_go_on(self, how: Any) -> None:
        world, _ = self.damaged(how)
        loaded = world.load(DAY3, idempotency_key="another run")
        assert world.jobs_of(DAY3) == [loaded.job]

    def test_recovery_settles_the_others_and_leaves_it_for_a_day(self, how: Any) -> None:
        world, job = self.damaged(how)
        dead = decided(world, DAY3)
        outcomes = {it.job: str(it.outcome) for it in world.recover()}
        assert outcomes == {job: "left", dead: "committed"}
        assert world.jobs_of(DAY3) == [dead]

    def test_the_way_out_takes_its_claims_and_uploads(self, how: Any) -> None:
        world, job = self.damaged(how)
        assert {it.job: str(it.outcome) for it in world.recover(patience=0)} == {job: "aborted"}
        world.assert_clean()
        world.load(DAY1, DAY2, idempotency_key="run")

    def test_a_committed_job_needs_no_open_record(self, world: World, how: Any) -> None:
        job = decided(world, DAY1)
        spoil(world, ROOT.open_key(job), how)
        assert [str(it.outcome) for it in world.recover()] == ["committed"]
        assert world.jobs_of(DAY1) == [job]
        world.assert_clean()


@pytest.mark.parametrize("how", SPOILT.values(), ids=list(SPOILT))
class TestDecisionOfAnOpenJob:
    def damaged(self, how: Callable[[dict[str, Any]], bytes]) -> tuple[World, str]:
        world = World()
        world.load(DAY1, DAY2)
        job = decided(world, DAY1)
        spoil(world, ROOT.decision_key(job), how)
        return world, job

    def test_the_other_jobs_are_settled(self, how: Any) -> None:
        world, job = self.damaged(how)
        other = decided(world, DAY2)
        assert {it.job: str(it.outcome) for it in world.recover()} == {
            job: "failed",
            other: "committed",
        }
        assert {it.job: str(it.outcome) for it in world.purge().recovered} == {job: "failed"}
        assert world.jobs_of(DAY2)[-1] == other

    def test_repair_looks_at_the_others(self, how: Any) -> None:
        world, job = self.damaged(how)
        other = decided(world, DAY2)
        (found,) = world.driver.run(repair(world.context))
        assert found.job == other
        with pytest.raises(RecordDamagedError):
            world.driver.run(repair(world.context, job=job))

    def test_it_is_listed_and_named(self, how: Any) -> None:
        world, job = self.damaged(how)
        (found,) = world.driver.run(open_jobs(world.context))
        assert (found.job, found.decided) == (job, None)
        assert ROOT.decision_key(job) in found.damage
        assert named(world) == {("damaged", ROOT.decision_key(job))}

    def test_only_what_it_claims_cannot_be_read(self, how: Any) -> None:
        world, _ = self.damaged(how)
        with pytest.raises(RecordDamagedError):
            world.snapshot()
        assert len(world.snapshot([DAY2]).files) == 1
        found = world.driver.run(survey(world.context))
        assert set(found.damaged) == {DAY1}
        assert [file.partition for file in found.snapshot.files] == [DAY2]


class TestDeletedDecision:
    def damaged(self) -> tuple[World, str]:
        """Of two partitions one holds the files of a job whose decision somebody deleted."""
        world = World()
        world.load(DAY1, DAY2)
        job = world.load(DAY1).job
        world.store.apply(Delete(ROOT.decision_key(job)))
        return world, job

    def test_only_its_partition_cannot_be_read(self) -> None:
        world, job = self.damaged()
        with pytest.raises(DamagedError, match=job):
            world.snapshot()
        assert len(world.snapshot([DAY2]).files) == 1
        (finding,) = world.driver.run(verify(world.context))
        assert (finding.partition, str(finding.kind)) == (DAY1, "damaged")
        assert finding.key == ROOT.decision_key(job)

    def test_the_doctor_names_it(self) -> None:
        world, job = self.damaged()
        assert named(world) == {("damaged", ROOT.decision_key(job))}

    def test_appends_go_on_beyond_what_a_head_names(self) -> None:
        world, _ = self.damaged()
        jobs = [world.load(DAY1, DAY2).job for _ in range(30)]
        assert world.jobs_of(DAY2)[-30:] == jobs
        world.assert_clean()

    def test_a_replace_makes_the_partition_whole(self) -> None:
        world, _ = self.damaged()
        job = world.load(DAY1, mode=Mode.REPLACE).job
        assert world.jobs_of(DAY1) == [job]
        assert problems(world) == []
        assert world.driver.run(verify(world.context)) == []

    @pytest.mark.parametrize("on_repeat", [OnRepeat.SKIP, OnRepeat.REPLACE_OWN])
    def test_a_run_whose_commit_is_gone_does_not_load_twice(self, on_repeat: OnRepeat) -> None:
        world = World()
        job = world.load(DAY1, idempotency_key="run").job
        world.store.apply(Delete(ROOT.decision_key(job)))
        with pytest.raises(DamagedError, match="a second time"):
            world.load(DAY1, idempotency_key="run", on_repeat=on_repeat)
        assert len(world.listed(DAY1)) == 1
        assert world.store.keys(ROOT.open_prefix) == []


class TestHead:
    def test_the_other_partitions_are_looked_after(self, world: World) -> None:
        world.load(DAY1, DAY2)
        world.store.apply(Put(ROOT.head_key(DAY1), b"{"))
        dead = decided(world, DAY2)
        report = world.purge()
        assert (dead, "committed") in {(it.job, str(it.outcome)) for it in report.recovered}
        assert report.failed == 1
        assert named(world) == {("damaged", ROOT.head_key(DAY1))}
        assert set(world.driver.run(survey(world.context)).damaged) == {DAY1}
        assert world.jobs_of(DAY2)[-1] == dead

    def test_files_that_other_jobs_have_lost_are_named_and_repaired(self, world: World) -> None:
        world.load(DAY1, DAY2)
        hindered, other = decided(world, DAY1), decided(world, DAY2)
        for upload_id, upload in list(world.store.uploads.items()):
            if other in upload.key:
                world.store.apply(AbortUpload(upload.key, upload_id))
        world.store.apply(Put(ROOT.head_key(DAY1), b"{"))
        assert "committed files lost" in {what for what, _ in named(world)}
        found = {it.job: len(it.lost) for it in world.driver.run(repair(world.context))}
        assert found == {hindered: 0, other: 1}
        with pytest.raises(RecordDamagedError) as caught:
            world.driver.run(repair(world.context, accept_loss=True, patience=0.0))
        assert other in caught.value.__notes__[0]
        assert [it.job for it in world.driver.run(open_jobs(world.context))] == [hindered]

    def test_foreign_files_of_other_partitions_are_named_and_adopted(self, world: World) -> None:
        world.load(DAY1, DAY2)
        world.store.apply(Put(f"{ROOT.prefix}/{DAY3}/foreign.parquet", b"rows"))
        world.store.apply(Put(ROOT.head_key(DAY1), b"{"))
        assert named(world) == {("damaged", ROOT.head_key(DAY1)), ("files no reader sees", DAY3)}
        report = world.driver.run(adopt(world.context, NOBODY, apply=True))
        found = {it.partition: str(it.action) for it in report.entries}
        assert found == {DAY1: "left", DAY3: "adopted"}


@pytest.mark.parametrize("number", ["9" * 400, "9007199254740993", "-1"])
def test_a_head_of_a_version_that_no_store_could_have_reached(world: World, number: str) -> None:
    """It is damage to its partition, whoever meets it."""
    world.load(DAY1, DAY2)
    spoil(world, ROOT.head_key(DAY1), set_to(version=number))
    assert set(world.driver.run(survey(world.context)).damaged) == {DAY1}
    assert world.driver.run(write_index_now(world.context))
    assert {it.partition for it in world.driver.run(verify(world.context))} == {DAY1}
    assert named(world) == {("damaged", ROOT.head_key(DAY1))}
    assert set(world.driver.run(gc(world.context, 0.0, apply=True)).damaged) == {DAY1}
    with pytest.raises(RecordDamagedError, match="version"):
        world.load(DAY1)
    with pytest.raises(RecordDamagedError, match="version"):
        world.snapshot([DAY1])
    world.load(DAY2)


def test_what_others_put_among_the_open_records_is_no_job(world: World) -> None:
    world.load(DAY1)
    for name in ("notes.json", "zr1-short.json", "x\ny"):
        world.store.apply(Put(f"{ROOT.open_prefix}{name}", b"{}"))
    assert world.driver.run(open_jobs(world.context)) == []
    assert world.recover() == []
    world.load(DAY1, idempotency_key="run")
    assert {what for what, _ in named(world)} == {"stray object"}
