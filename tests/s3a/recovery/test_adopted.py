"""A dead job whose directory has become a Delta table: only the log says which files count."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.memory_store import MemoryDriver
from support.s3a_jobs import JOB, ROOT, MadeFile, MagicJob, StagingJob, World, a_try
from zero_rename.committer import Table
from zero_rename.committer.format.layout import TableRoot
from zero_rename.committer.store.requests import (
    Created,
    CreateUpload,
    ListObjects,
    PutFile,
    UploadPart,
)
from zero_rename.maintenance.destinations import destination_at
from zero_rename.maintenance.purging import PurgeOrder, purge_destination
from zero_rename.s3a.recovery.liveness import Action, RecoveryOptions
from zero_rename.s3a.recovery.recover import JobOutcome, RecoveredJob, recover_jobs
from zero_rename.s3a.runs.ledger import find, open_try
from zero_rename.s3a.runs.try_record import FENCED
from zero_rename.tables import DeltaTable
from zero_rename.tables.files_in_log import files_in_log

DEAD = RecoveryOptions(apply=True, dead={JOB}, in_log=files_in_log)


def parquet(value: int) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"value": pa.array([value], pa.int64())}), sink)
    return sink.getvalue().to_pybytes()


class ParquetJob(MagicJob):
    """A magic job whose files can be read."""

    def upload(self, path: str, parts: Sequence[bytes] = ()) -> MadeFile:
        key, body = f"{self.destination}/{path}", parquet(len(self.files))
        created = self.perform(CreateUpload(key))
        assert isinstance(created, Created)
        etag = self.perform(UploadPart(key, created.upload_id, 1, body)).etag
        return MadeFile(key, created.upload_id, [etag], body)


class ParquetStagingJob(StagingJob):
    upload = ParquetJob.upload


def table(world: World) -> DeltaTable:
    found = DeltaTable(ROOT.url)
    found.driver = MemoryDriver(world.store)  # type: ignore[assignment]
    return found


def job(world: World) -> MagicJob:
    """A job that died in its commit: one of four files is complete."""
    made = ParquetJob(world.store.apply).begin()
    made.task(0)
    made.task(1)
    made.complete(made.files[0])
    world.clock.advance(3600)
    return made


def adopted(world: World) -> DeltaTable:
    """A Delta table that an adoption has made of what is visible."""
    made = table(world)
    made.adopt(apply=True)
    return made


def older(world: World) -> None:
    world.store.apply(PutFile(f"{ROOT.prefix}/day=0/a.parquet", parquet(0)))


def values(world: World) -> int:
    return table(world).scan().count()


def recover(world: World, **options: Any) -> RecoveredJob:
    given = dataclasses.replace(DEAD, **options)
    (found,) = world.driver.run(recover_jobs(ROOT, given))
    return found


class TestFilesThatTheLogDoesNotName:
    @pytest.fixture
    def dead(self, world: World) -> MagicJob:
        """It began after the adoption."""
        older(world)
        adopted(world)
        return job(world)

    def test_job_is_rolled_back(self, world: World, dead: MagicJob) -> None:
        found = recover(world)
        assert found.outcome is JobOutcome.ROLLED_BACK
        assert f"has become the Delta table {ROOT.url}" in found.reason
        assert not set(world.visible()).intersection(dead.keys)
        world.assert_clean()
        assert values(world) == 1

    def test_its_attempt_does_not_count_as_committed(self, world: World) -> None:
        older(world)
        adopted(world)
        record = a_try(JOB)
        world.driver.run(open_try(ROOT, record))
        job(world)
        recover(world)
        known = world.driver.run(find(ROOT, record.idempotency_key, JOB))
        assert known is not None
        assert known.record.state == FENCED

    def test_maintenance_rolls_it_back(self, world: World, dead: MagicJob) -> None:
        found = table(world)
        here = Table(ROOT.url)
        here.driver = found.driver
        place = here.run(destination_at(ROOT))
        done = purge_destination(here, place, PurgeOrder(apply=True, s3a_patience=60.0))
        assert [it.outcome for it in done.jobs] == ["rolled-back"]
        assert values(world) == 1

    def test_job_is_not_rolled_forward_where_a_person_asks_for_it(
        self, world: World, dead: MagicJob
    ) -> None:
        found = recover(world, direction=Action.FORWARD)
        assert found.outcome is JobOutcome.NEEDS_DECISION
        assert "is to be rolled forward, and cannot be" in found.reason
        assert dead.files[1].key not in world.store.objects

    def test_job_is_left_to_a_person_where_the_log_is_not_read(
        self, world: World, dead: MagicJob
    ) -> None:
        found = recover(world, in_log=None)
        assert found.outcome is JobOutcome.NEEDS_DECISION
        assert dead.files[0].key in world.store.objects
        assert recover(world, in_log=None, direction=Action.BACK).outcome is JobOutcome.ROLLED_BACK


class TestFilesThatTheLogNames:
    def test_job_is_left_to_a_person_where_the_log_names_some(self, world: World) -> None:
        """The Python API adopts beside a dead job."""
        dead = job(world)
        adopted(world)
        found = recover(world)
        assert found.outcome is JobOutcome.NEEDS_DECISION
        assert "1 of its files is counted by a table" in found.reason
        assert values(world) == 1
        assert dead.files[1].key not in world.store.objects

    def test_job_is_rolled_back_once_its_partition_was_loaded_again(self, world: World) -> None:
        job(world)
        made = adopted(world)
        day = pa.table({"value": pa.array([7], pa.int64()), "day": pa.array([1], pa.int32())})
        with made.job(day.schema, mode="overwrite", replace_partitions=["day=1"]) as load:
            load.write(day)
        assert recover(world).outcome is JobOutcome.ROLLED_BACK
        assert values(world) == 1

    def test_job_is_finished_where_the_log_names_all(self, world: World) -> None:
        dead = job(world)
        dead.complete(*dead.files[1:])
        adopted(world)
        assert recover(world).outcome is JobOutcome.ROLLED_FORWARD
        assert values(world) == len(dead.files)
        world.assert_clean()

    def test_retry_spares_what_the_log_names(self, world: World) -> None:
        job(world)
        adopted(world)
        found = recover(world, direction=Action.BACK, spares_counted=True)
        assert found.outcome is JobOutcome.NEEDS_DECISION
        assert values(world) == 1


def test_adoption_between_plan_and_recovery_leaves_the_job(world: World) -> None:
    dead = job(world)
    came = False

    def fault(request: Any, apply: Any) -> Any:
        nonlocal came
        answer = apply(request)
        if isinstance(request, ListObjects) and "_delta_log" in request.prefix and not came:
            came = True
            adopted(world)
        return answer

    world.driver.fault = fault
    assert recover(world).outcome is JobOutcome.LEFT
    world.driver.fault = None
    assert dead.files[1].key not in world.store.objects
    assert recover(world).outcome is JobOutcome.NEEDS_DECISION


def test_committed_job_says_what_the_log_does_not_name(world: World) -> None:
    older(world)
    adopted(world)
    dead = job(world)
    dead.complete(*dead.files[1:])
    world.put_marker(JOB)
    found = recover(world)
    assert found.outcome is JobOutcome.ROLLED_FORWARD
    assert "whose log does not name 4 files of it" in found.reason


def test_uploads_of_a_staging_job_whose_folder_is_lost_are_aborted(
    world: World, tmp_path: Path
) -> None:
    older(world)
    adopted(world)
    dead = ParquetStagingJob(world.store.apply, staging=tmp_path / "lost").begin()
    dead.task(0)
    world.clock.advance(3600)
    found = recover(world)
    assert found.outcome is JobOutcome.ROLLED_BACK
    assert "cannot be completed into a table" in found.reason
    world.assert_clean()


@pytest.mark.parametrize(
    ("folder", "outcome"),
    [
        ("day=1", JobOutcome.ROLLED_BACK),
        # The log of a table around it says nothing of another destination.
        ("raw", JobOutcome.ROLLED_FORWARD),
    ],
)
def test_job_of_a_folder_below_a_delta_table(
    world: World, folder: str, outcome: JobOutcome
) -> None:
    older(world)
    adopted(world)
    dead = ParquetJob(world.store.apply, folder=folder).begin()
    dead.task(0, partitions=("h=1", "h=2"))
    dead.complete(dead.files[0])
    world.clock.advance(3600)
    place = TableRoot(ROOT.bucket, f"{ROOT.prefix}/{folder}")
    for root, folders in ((ROOT, (folder,)), (place, ())):
        report = dataclasses.replace(DEAD, apply=False, folders=folders)
        (planned,) = world.driver.run(recover_jobs(root, report))
        assert planned.outcome == f"would-{outcome.replace('ed-', '-')}".replace("rolled", "roll")
    (done,) = world.driver.run(recover_jobs(place, DEAD))
    assert done.outcome is outcome
