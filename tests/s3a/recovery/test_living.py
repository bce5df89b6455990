"""Uploads that a purge leaves because a living job of Hadoop's committers needs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.s3a_jobs import JOB, OTHER, ROOT, MadeFile, World, a_try
from zero_rename.committer.upkeep.upload_selection import Selection, UploadsPath
from zero_rename.committer.upkeep.upload_sweep import SeenUpload, UploadSweep
from zero_rename.s3a.recovery.liveness import RecoveryOptions
from zero_rename.s3a.recovery.living import LivingJobs
from zero_rename.s3a.runs.ledger import open_try

DAY = 86400.0


@pytest.fixture
def world() -> World:
    return World()


def sweep(world: World, options: RecoveryOptions | None = None) -> dict[str, SeenUpload]:
    """Abort what is older than a day and no living job needs; the uploads seen, by key."""
    seen: dict[str, SeenUpload] = {}
    living = LivingJobs(ROOT.bucket, options or RecoveryOptions())
    world.driver.run(
        UploadSweep(
            UploadsPath(ROOT.bucket, f"{ROOT.prefix}/"),
            Selection(older_than=DAY),
            lambda page: seen.update({it.key: it for it in page}),
            apply=True,
            spared=living,
        ).run()
    )
    return seen


def keys(files: list[MadeFile]) -> set[str]:
    return {file.key for file in files}


def test_old_uploads_of_a_magic_job_that_still_commits_tasks_are_left(world: World) -> None:
    job = world.job()
    first = job.task(1)
    running = job.running(2)
    world.clock.advance(2 * DAY)
    job.task(3)
    seen = sweep(world)
    assert keys(first) | {running.key} <= set(world.store.upload_keys())
    assert f"of the S3A job {JOB}: " in seen[first[0].key].reason
    assert "it wrote nothing for 0 s" in seen[first[0].key].reason


def test_old_uploads_of_a_magic_job_that_is_silent_are_aborted(world: World) -> None:
    world.job().task(1)
    world.clock.advance(2 * DAY)
    sweep(world)
    assert world.store.upload_keys() == []


def test_uploads_of_another_write_beside_a_living_job_are_aborted(world: World) -> None:
    other = world.job(uuid=OTHER, write=OTHER).upload(f"day=1/part-00000-{OTHER}.parquet")
    world.store.objects.clear()
    world.clock.advance(2 * DAY)
    living = world.job().task(1)
    seen = sweep(world)
    assert seen.keys() == {other.key}
    assert set(world.store.upload_keys()) == keys(living)


def test_uploads_of_a_staging_job_whose_folder_is_named_are_left(
    world: World, tmp_path: Path
) -> None:
    made = world.staging_job(tmp_path).task(1)
    world.clock.advance(2 * DAY)
    sweep(world, RecoveryOptions(staging=str(tmp_path)))
    assert set(world.store.upload_keys()) == keys(made)
    sweep(world)
    assert world.store.upload_keys() == []


def test_uploads_of_a_table_whose_run_sends_heartbeats_are_left(world: World) -> None:
    made = world.job().upload("day=1/part-0.parquet")
    world.store.objects.clear()
    world.clock.advance(2 * DAY)
    world.driver.run(open_try(ROOT, a_try()))
    seen = sweep(world)
    assert world.store.upload_keys() == [made.key]
    assert seen[made.key].reason == f"an S3A run is at work on {ROOT.url}"
