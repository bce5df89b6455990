"""A dead job whose partitions a later run has replaced, or is about to."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from support import protocol
from support.s3a_jobs import JOB, OTHER, ROOT, MagicJob, World, a_try
from zero_rename.committer import Mode
from zero_rename.committer.format.job_spec import Owner
from zero_rename.s3a.recovery.liveness import Action, JobLiveness, RecoveryOptions
from zero_rename.s3a.recovery.recover import JobOutcome, RecoveredJob, recover_jobs
from zero_rename.s3a.runs.ledger import close_try, open_try
from zero_rename.s3a.runs.try_record import (
    COMMITTED,
    FAILED,
    SETTLED,
    UNDONE,
    WRITING,
    WRITTEN,
    TryRecord,
    WriteRecord,
)

NEXT = Owner("flights", "scheduled__2013-02-03", "load", -1, 1)
HOUR = 3600.0


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def job(world: World) -> MagicJob:
    return begun(world, is_known=True)


def begun(world: World, is_known: bool) -> MagicJob:
    """A job of day=1 whose driver died when one of its two files was complete."""
    if is_known:
        world.driver.run(open_try(ROOT, a_try(mode="replace")))
    job = world.job()
    job.task(0, partitions=("day=1",))
    job.task(1, partitions=("day=1",))
    job.complete(job.files[0])
    world.clock.advance(HOUR)
    return job


def write(*among: str, mode: str = "replace", state: str = WRITTEN, **more: Any) -> WriteRecord:
    return WriteRecord(OTHER, 1, "magic", ROOT.url, mode, state=state, among=among, **more)


def later(world: World, *writes: WriteRecord, state: str = COMMITTED, **given: Any) -> TryRecord:
    """A run that began after the job's; closed unless its state says that it is open."""
    record = a_try(OTHER, NEXT, **{"mode": "replace", **given})
    if state in SETTLED:
        world.driver.run(open_try(ROOT, record))
        world.driver.run(close_try(ROOT, record, writes=writes, state=state))
    else:
        world.driver.run(open_try(ROOT, replace(record, writes=writes, state=state)))
    return record


def recover(world: World, **options: Any) -> RecoveredJob:
    found = world.driver.run(recover_jobs(ROOT, RecoveryOptions(apply=True, dead={JOB}, **options)))
    (mine,) = (it for it in found if it.job == JOB)
    return mine


def test_job_is_rolled_back_where_a_later_run_has_replaced_its_partition(
    world: World, job: MagicJob
) -> None:
    later(world, write("day=1"))
    world.clock.advance(HOUR)
    found = recover(world)
    assert found.outcome is JobOutcome.ROLLED_BACK
    assert found.reason.startswith(
        "a later run (flights.load of run scheduled__2013-02-03) has committed the same partitions"
    )
    assert world.visible() == []
    world.assert_clean()


@pytest.mark.parametrize(
    "theirs",
    [write("day=2"), write("day=10"), write("day=1", mode="append"), write(partition="day=2")],
)
def test_job_is_rolled_forward_beside_a_later_run_that_replaces_nothing_of_it(
    world: World, job: MagicJob, theirs: WriteRecord
) -> None:
    later(world, theirs)
    world.clock.advance(HOUR)
    assert recover(world).outcome is JobOutcome.ROLLED_FORWARD
    assert world.visible() == sorted(job.keys)


def test_job_is_rolled_forward_beside_a_later_append_that_has_committed(
    world: World, job: MagicJob
) -> None:
    """Its record names no write any more."""
    later(world, mode="append", partitions=("day=1",))
    world.clock.advance(HOUR)
    assert recover(world).outcome is JobOutcome.ROLLED_FORWARD
    assert world.visible() == sorted(job.keys)


@pytest.mark.parametrize(
    ("day", "files", "outcome"),
    [
        ("day=2", 1, JobOutcome.ROLLED_FORWARD),
        ("day=1", 1, JobOutcome.ROLLED_BACK),
        # Of one of its files nobody knows the partition.
        ("day=2", 2, JobOutcome.ROLLED_BACK),
        ("_unpartitioned", 1, JobOutcome.ROLLED_BACK),
    ],
)
def test_later_run_of_any_partition_replaces_those_that_its_report_names(
    world: World, job: MagicJob, day: str, files: int, outcome: JobOutcome
) -> None:
    report = {"files": files, "partitions": [{"partition": day, "files": 1}]}
    later(world, report=report)
    world.clock.advance(HOUR)
    assert recover(world).outcome is outcome


@pytest.mark.parametrize("mode", ["append", "replace", None])
@pytest.mark.parametrize("theirs", [(), ("day=1",)])
def test_job_that_its_run_has_reported_keeps_its_files_whoever_came_later(
    world: World, mode: str | None, theirs: tuple[str, ...]
) -> None:
    """Its driver died between its marker and its clean-up."""
    mine = world.driver.run(open_try(ROOT, a_try(mode=mode)))
    job = world.job()
    job.task(0)
    job.complete(*job.files)
    report = {"job": JOB, "jobs": [JOB]}
    world.driver.run(close_try(ROOT, mine, state=COMMITTED, report=report))
    world.clock.advance(HOUR)
    later(world, mode=mode, partitions=theirs)
    world.put_marker(OTHER)
    before = world.store.objects[f"{ROOT.prefix}/_SUCCESS"]
    found = recover(world)
    assert found.outcome is JobOutcome.ROLLED_FORWARD
    assert found.reason.startswith("its run has reported it")
    assert world.visible() == sorted(job.keys)
    assert world.store.objects[f"{ROOT.prefix}/_SUCCESS"] == before
    world.assert_clean()


@pytest.mark.parametrize("theirs", [write(), write("day=1/hour=2"), write(partition="day=1")])
def test_job_is_rolled_back_where_a_later_run_may_have_replaced_its_partition(
    world: World, job: MagicJob, theirs: WriteRecord
) -> None:
    later(world, theirs)
    assert recover(world).outcome is JobOutcome.ROLLED_BACK


def test_job_waits_for_a_later_run_that_is_at_work_on_its_partition(
    world: World, job: MagicJob
) -> None:
    later(world, write("day=1", state=WRITING), state="submitted")
    before = world.store.upload_keys(), world.magic(), world.visible()
    found = recover(world)
    assert found.outcome is JobOutcome.LEFT
    assert "is at work on the same partitions" in found.reason
    assert (world.store.upload_keys(), world.magic(), world.visible()) == before


def test_job_waits_for_a_later_run_that_has_not_begun_to_write(world: World, job: MagicJob) -> None:
    later(world, state="submitted", partitions=("day=1",))
    assert recover(world).outcome is JobOutcome.LEFT


@pytest.mark.parametrize("state", [FAILED, UNDONE])
def test_job_is_rolled_forward_where_the_later_run_left_nothing(
    world: World, job: MagicJob, state: str
) -> None:
    state_of_write = WRITTEN if state == UNDONE else FAILED
    later(world, write("day=1", state=state_of_write), state=state)
    assert recover(world).outcome is JobOutcome.ROLLED_FORWARD


def test_job_is_rolled_forward_where_its_own_run_has_tried_again_and_been_undone(
    world: World, job: MagicJob
) -> None:
    later(world, write("day=1"), state=UNDONE, idempotency_key=f"load/{JOB}")
    assert recover(world).outcome is JobOutcome.ROLLED_FORWARD


@pytest.mark.parametrize("mode", ["append", "replace", None])
def test_job_is_rolled_back_where_its_own_run_has_loaded_again(
    world: World, job: MagicJob, mode: str | None
) -> None:
    """Its own record is open still, and nobody has asked Airflow."""
    later(world, mode=mode, idempotency_key=f"load/{JOB}")
    found = recover(world)
    assert found.outcome is JobOutcome.ROLLED_BACK
    assert f"a later attempt of its run ({OTHER}) has committed" in found.reason
    assert world.visible() == []


@pytest.mark.parametrize("mode", ["append", "replace", None])
def test_job_of_an_undone_attempt_is_rolled_back(world: World, mode: str | None) -> None:
    """Its application was silent, was taken for dead, and died in its late commit."""
    mine = world.driver.run(open_try(ROOT, a_try(mode=mode)))
    world.driver.run(close_try(ROOT, mine, state=UNDONE))
    begun(world, is_known=False)
    found = recover(world)
    assert found.outcome is JobOutcome.ROLLED_BACK
    assert "its run counts this attempt as undone" in found.reason
    assert world.visible() == []
    world.assert_clean()


def test_job_of_an_undone_attempt_is_rolled_forward_where_a_person_says_so(world: World) -> None:
    mine = world.driver.run(open_try(ROOT, a_try(mode="append")))
    world.driver.run(close_try(ROOT, mine, state=UNDONE))
    begun(world, is_known=False)
    assert recover(world, direction=Action.FORWARD).outcome is JobOutcome.ROLLED_FORWARD


def test_job_that_its_undone_attempt_counts_as_committed_keeps_its_files(world: World) -> None:
    """The run's next load replaces them, so that readers are never without."""
    mine = world.driver.run(open_try(ROOT, a_try(mode="replace")))
    job = world.job()
    job.task(0)
    job.complete(*job.files)
    world.driver.run(close_try(ROOT, mine, state=UNDONE, replaced=(JOB,)))
    world.clock.advance(HOUR)
    assert recover(world).outcome is JobOutcome.ROLLED_FORWARD
    assert world.visible() == sorted(job.keys)
    world.assert_clean()


def test_job_is_rolled_forward_over_a_later_run_where_a_person_says_so(
    world: World, job: MagicJob
) -> None:
    later(world, write("day=1"))
    assert recover(world, direction=Action.FORWARD).outcome is JobOutcome.ROLLED_FORWARD


def test_run_that_began_before_the_jobs_is_not_newer(world: World) -> None:
    later(world, write("day=1"))
    world.clock.advance(HOUR)
    world.driver.run(open_try(ROOT, a_try(mode="replace")))
    job = world.job()
    job.task(0, partitions=("day=1",))
    job.complete(job.files[0])
    world.clock.advance(HOUR)
    assert recover(world).outcome is JobOutcome.ROLLED_FORWARD


def test_job_is_left_where_a_later_record_cannot_be_read(world: World, job: MagicJob) -> None:
    record = later(world, write("day=1"))
    (key,) = (it for it in world.store.keys("wh/_zero_rename/s3a-runs/") if record.uuid in it)
    stored = world.store.objects[key]
    world.store.objects[key] = replace(stored, body=json.dumps({"kind": "no"}).encode())
    before = world.store.upload_keys(), world.magic(), world.visible()
    found = recover(world)
    assert found.outcome is JobOutcome.REFUSED
    assert (world.store.upload_keys(), world.magic(), world.visible()) == before


class TestRunOfThisPackage:
    """A run with this package's own committer has replaced the day since."""

    @pytest.fixture
    def native(self, world: World) -> protocol.World:
        native = protocol.World(world.store)
        native.context = replace(native.context, root=ROOT)
        return native

    @pytest.mark.parametrize("is_known", [True, False], ids=["on record", "on no record"])
    def test_job_is_rolled_back(self, world: World, native: protocol.World, is_known: bool) -> None:
        native.load("day=2")
        world.clock.advance(HOUR)
        job = begun(world, is_known)
        native.load("day=1", mode=Mode.REPLACE)
        there = native.snapshot().files
        world.clock.advance(HOUR)
        found = recover(world)
        # The file that it had written is gone: that alone is reason enough.
        assert found.outcome is JobOutcome.ROLLED_BACK
        assert not set(job.keys).intersection(world.visible())
        assert native.snapshot().files == there

    def test_job_is_rolled_forward_beside_one_of_another_day(
        self, world: World, job: MagicJob, native: protocol.World
    ) -> None:
        native.load("day=2", mode=Mode.REPLACE)
        assert recover(world).outcome is JobOutcome.ROLLED_FORWARD

    @pytest.mark.parametrize("apply", [False, True])
    def test_files_that_the_table_counts_are_not_taken_away(
        self, world: World, native: protocol.World, apply: bool
    ) -> None:
        """The next try was made with this package's committer: it took the day as it was, with the
        file that the dead job had made visible."""
        native.load("day=2")
        record = a_try(owner=Owner("flights", "scheduled__2013-02-02", "load", -1, 1))
        world.driver.run(open_try(ROOT, record))
        job = world.job()
        job.task(0, partitions=("day=1",))
        job.task(1, partitions=("day=1",))
        job.complete(job.files[0])
        world.clock.advance(HOUR)
        native.load("day=1")
        assert job.files[0].key in {it.key for it in native.snapshot().files}
        there = native.snapshot().files
        options = RecoveryOptions(apply=apply, ask=lambda _: JobLiveness.SUPERSEDED)
        (found,) = world.driver.run(recover_jobs(ROOT, options))
        assert found.outcome is JobOutcome.NEEDS_DECISION
        assert "1 of its files is counted by a table of this package" in found.reason
        assert native.snapshot().files == there
        assert len(world.store.upload_keys()) == 1
        # Somebody who knows the load says so.
        back = replace(options, apply=True, direction=Action.BACK)
        (found,) = world.driver.run(recover_jobs(ROOT, back))
        assert found.outcome is JobOutcome.ROLLED_BACK

    def test_job_is_rolled_forward_over_one_that_it_was_to_replace(
        self, world: World, native: protocol.World
    ) -> None:
        native.load("day=1", mode=Mode.REPLACE)
        world.clock.advance(HOUR)
        begun(world, is_known=True)
        native.load("day=1")  # It adds, and takes nobody's place.
        assert recover(world).outcome is JobOutcome.ROLLED_FORWARD


class TestOnNoRecord:
    """A dead job that the ledger does not name: no operator submitted it."""

    def test_job_is_rolled_back_where_a_later_run_has_replaced_its_partition(
        self, world: World
    ) -> None:
        begun(world, is_known=False)
        later(world, write(partition="day=1"))
        world.clock.advance(HOUR)
        found = recover(world)
        assert found.outcome is JobOutcome.ROLLED_BACK
        assert "a later run (flights.load of run scheduled__2013-02-03)" in found.reason

    def test_job_is_rolled_forward_beside_a_run_that_began_before(self, world: World) -> None:
        later(world, write("day=1"))
        world.clock.advance(HOUR)
        begun(world, is_known=False)
        assert recover(world).outcome is JobOutcome.ROLLED_FORWARD
