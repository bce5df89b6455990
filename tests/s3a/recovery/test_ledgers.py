"""Jobs whose try is on record beside another destination than the one that is recovered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.s3a_jobs import JOB, OTHER, ROOT, MagicJob, World, a_try
from zero_rename.committer.errors import StoreRefusedError
from zero_rename.committer.format.job_spec import Owner
from zero_rename.committer.format.layout import TableRoot
from zero_rename.committer.store.requests import ListUploads, Put
from zero_rename.s3a.recovery.liveness import JobLiveness, RecoveryOptions
from zero_rename.s3a.recovery.recover import JobOutcome, RecoveredJob, recover_jobs
from zero_rename.s3a.runs import ledger
from zero_rename.s3a.runs.try_record import FENCED, WRITTEN, TryRecord, WriteRecord, write_uuid

DAY = TableRoot("bucket", "wh/flights/day=1")
FIRST, SECOND = write_uuid(JOB, 1), write_uuid(JOB, 2)
OWNER = Owner("flights", "scheduled__2013-02-01", "load", -1, 1)
HOUR = 3600.0
SILENT = RecoveryOptions(apply=True, patience=HOUR)


@pytest.fixture
def world() -> World:
    return World()


def begun(world: World, folder: str = "day=1", uuid: str = FIRST, **given: Any) -> MagicJob:
    """A job that writes a partition's folder; one of its two files is complete."""
    root = TableRoot("bucket", f"{ROOT.prefix}/{folder}")
    job = MagicJob(world.store.apply, root, uuid=uuid, **given).begin()
    job.task(0, partitions=("hour=1",))
    job.task(1, partitions=("hour=1",))
    job.complete(job.files[0])
    return job


def on_record(world: World, beside: TableRoot = ROOT, silent: bool = False) -> TryRecord:
    """Put a try on record that sends a heartbeat two hours after its jobs wrote last."""
    record = a_try(owner=OWNER)
    world.driver.run(ledger.open_try(beside, record))
    world.clock.advance(2 * HOUR)
    write = WriteRecord(FIRST, 1, "magic", DAY.url, "replace", partition="day=1")

    def entered(found: TryRecord, now: float) -> TryRecord:
        return replace(found.with_write(write), beat_at=found.beat_at if silent else now)

    world.driver.run(ledger.change(beside, record, entered))
    return record


def recover(world: World, root: TableRoot, **options: Any) -> RecoveredJob:
    (found,) = world.driver.run(recover_jobs(root, replace(SILENT, **options)))
    return found


def test_job_of_a_try_beside_the_table_lives_where_its_partitions_folder_is_named(
    world: World,
) -> None:
    begun(world)
    on_record(world)
    found = recover(world, DAY)
    assert (found.state, found.outcome) == (JobLiveness.LIVE, JobOutcome.LEFT)
    assert found.owner.dag_id == "flights"
    assert len(world.store.upload_keys()) == 1


def test_job_of_a_try_beside_a_partitions_folder_lives_where_the_table_is_named(
    world: World,
) -> None:
    """Somebody loads one partition's folder by a save() of its own."""
    begun(world)
    on_record(world, DAY)
    found = recover(world, ROOT)
    assert (found.state, found.outcome) == (JobLiveness.LIVE, JobOutcome.LEFT)


def test_jobs_of_tries_beside_their_tables_live_where_the_folder_above_is_named(
    world: World,
) -> None:
    begun(world)
    on_record(world)
    found = recover(world, TableRoot("bucket", "wh"))
    assert (found.state, found.outcome) == (JobLiveness.LIVE, JobOutcome.LEFT)


def test_staging_job_of_a_try_beside_a_partitions_folder_lives_where_the_table_is_named(
    world: World, tmp_path: Path
) -> None:
    job = world.staging_job(tmp_path, uuid=FIRST)
    job.task(0, partitions=("day=1",))
    on_record(world, DAY)
    found = recover(world, ROOT, patience=0.0, staging=str(tmp_path))
    assert (found.state, found.outcome) == (JobLiveness.LIVE, JobOutcome.LEFT)


@pytest.mark.parametrize("done", [1, 2])
def test_staging_job_in_a_partitions_folder_leaves_its_marker_there(
    world: World, tmp_path: Path, done: int
) -> None:
    """Nobody has named the partition, and the files alone do not show it."""
    job = world.staging_job(tmp_path, uuid=FIRST)
    job.task(0, partitions=("day=1",))
    job.task(1, partitions=("day=1",))
    job.complete(*job.files[:done])
    writes = (WriteRecord(FIRST, 1, "directory", DAY.url, "replace", "day=1"),)
    record = a_try(JOB, OWNER, committer="directory", mode="replace", writes=writes)
    world.driver.run(ledger.open_try(ROOT, record))
    world.clock.advance(HOUR)
    found = recover(world, ROOT, staging=str(tmp_path), dead={FIRST})
    assert (found.outcome, found.destination) == (JobOutcome.ROLLED_FORWARD, DAY.url)
    assert f"{DAY.prefix}/_SUCCESS" in world.store.objects
    assert f"{ROOT.prefix}/_SUCCESS" not in world.store.objects
    assert world.visible() == job.keys


def test_staging_job_without_save_leaves_its_marker_in_its_table(
    world: World, tmp_path: Path
) -> None:
    """The folder above the table is named."""
    job = world.staging_job(tmp_path, uuid=JOB)
    job.task(0)
    job.complete(job.files[0])
    record = a_try(JOB, OWNER, committer="directory", mode="append")
    world.driver.run(ledger.open_try(ROOT, record))
    world.clock.advance(HOUR)
    found = recover(world, TableRoot("bucket", "wh"), staging=str(tmp_path), dead={JOB})
    assert (found.outcome, found.destination) == (JobOutcome.ROLLED_FORWARD, ROOT.url)
    assert f"{ROOT.prefix}/_SUCCESS" in world.store.objects
    assert "wh/_SUCCESS" not in world.store.objects


def test_staging_job_of_the_whole_table_is_left_where_a_partitions_folder_is_named(
    world: World, tmp_path: Path
) -> None:
    job = world.staging_job(tmp_path, uuid=FIRST)
    job.task(0)
    job.complete(job.files[0])
    writes = (WriteRecord(FIRST, 1, "directory", ROOT.url, "append"),)
    record = a_try(JOB, OWNER, committer="directory", mode="append", writes=writes)
    world.driver.run(ledger.open_try(ROOT, record))
    world.clock.advance(HOUR)
    before = world.store.copy().objects, world.store.copy().uploads
    found = recover(world, DAY, staging=str(tmp_path), dead={FIRST})
    assert found.outcome is JobOutcome.LEFT
    assert found.reason == f"its destination is {ROOT.url}: recover it there"
    assert (world.store.copy().objects, world.store.copy().uploads) == before


def test_try_beside_the_table_is_fenced_before_a_job_in_a_partitions_folder_is_rolled_back(
    world: World,
) -> None:
    begun(world)
    begun(world, "day=2", SECOND, write=OTHER)
    record = on_record(world, silent=True)
    found = recover(world, DAY)
    assert (found.state, found.outcome) == (JobLiveness.DEAD, JobOutcome.ROLLED_FORWARD)
    known = world.driver.run(ledger.find(ROOT, record.idempotency_key, record.uuid))
    assert known is not None
    assert known.record.state == FENCED
    assert known.record.recovered == (FIRST,)
    # It has a job in another partition, which was not looked at.
    assert world.driver.run(ledger.open_tries(ROOT)).known == (known,)


def test_job_in_a_partitions_folder_is_rolled_back_where_a_later_run_beside_the_table_replaced_it(
    world: World,
) -> None:
    begun(world)
    world.clock.advance(HOUR)
    later = a_try(OTHER, OWNER, mode="replace", partitions=("day=1",))
    write = WriteRecord(OTHER, 1, "magic", ROOT.url, "replace", "day=1", state=WRITTEN)
    world.driver.run(ledger.open_try(ROOT, later))
    world.driver.run(ledger.close_try(ROOT, later, writes=(write,), state="committed"))
    world.clock.advance(2 * HOUR)
    found = recover(world, DAY)
    assert (found.state, found.outcome) == (JobLiveness.DEAD, JobOutcome.ROLLED_BACK)


def test_uploads_of_a_job_of_the_whole_table_are_left_where_a_partitions_folder_is_named(
    world: World,
) -> None:
    """Its pending files name them: without them it could not be rolled forward any more."""
    job = world.job()
    job.task(0)
    job.task(1)
    job.complete(job.files[0])
    world.clock.advance(2 * HOUR)
    found = recover(world, DAY)
    assert (found.job, found.outcome) == (JOB, JobOutcome.LEFT)
    assert found.reason == f"its destination is {ROOT.url}: recover it there"
    assert len(world.store.upload_keys()) == 3
    assert recover(world, ROOT).outcome is JobOutcome.ROLLED_FORWARD


def test_record_that_cannot_be_read_beside_a_table_around_leaves_a_job(world: World) -> None:
    begun(world)
    record = on_record(world, silent=True)
    world.store.apply(Put(ledger.open_key(ROOT, record.idempotency_key, record.uuid), b"{"))
    found = recover(world, DAY)
    assert (found.state, found.outcome) == (JobLiveness.UNKNOWN, JobOutcome.REFUSED)


def test_job_is_recovered_by_who_may_ask_nothing_around_its_table(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rights end at the table, and at the ledger of its runs."""
    job = begun(world)
    world.clock.advance(2 * HOUR)
    listed = world.store.apply

    def limited(request: Any) -> Any:
        prefix = getattr(request, "prefix", f"{DAY.prefix}/")
        may = prefix.startswith((f"{DAY.prefix}/", "wh/flights/_zero_rename/s3a-"))
        if not may and not isinstance(request, ListUploads):
            raise StoreRefusedError("Access denied.", lacks_right=True)
        return listed(request)

    monkeypatch.setattr(world.store, "apply", limited)
    found = recover(world, DAY)
    assert (found.job, found.outcome) == (FIRST, JobOutcome.ROLLED_FORWARD)
    assert job.keys == [key for key in world.visible() if "part-" in key]
