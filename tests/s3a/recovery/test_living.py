"""Uploads that a purge leaves because a living job of Hadoop's committers needs them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.s3a_jobs import JOB, OTHER, ROOT, WRITE, MadeFile, World, a_try
from zero_rename.committer.errors import StoreRefusedError
from zero_rename.committer.store.requests import CreateUpload, ListObjects, Put
from zero_rename.committer.upkeep.purging.upload_selection import Selection, UploadsPath
from zero_rename.committer.upkeep.purging.upload_sweep import SeenUpload, UploadSweep
from zero_rename.s3a.recovery.liveness import RecoveryOptions
from zero_rename.s3a.recovery.living import LivingJobs
from zero_rename.s3a.runs.ledger import open_try, runs_prefix

DAY = 86400.0


@pytest.fixture
def world() -> World:
    return World()


def sweep(
    world: World, options: RecoveryOptions | None = None, path: str = f"{ROOT.prefix}/"
) -> dict[str, SeenUpload]:
    """Abort what is older than a day and no living job needs; the uploads seen, by key."""
    seen: dict[str, SeenUpload] = {}
    living = LivingJobs(ROOT.bucket, options or RecoveryOptions(), path.rstrip("/"))
    world.driver.run(
        UploadSweep(
            UploadsPath(ROOT.bucket, path),
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


@pytest.mark.parametrize("folder", ["", "_raw/flights/", "wh/.new/flights/"])
def test_old_uploads_of_a_living_magic_job_are_left_where_no_table_can_be(
    world: World, folder: str
) -> None:
    """The root of a bucket, and folders that readers skip, are destinations for Hadoop."""
    key = f"{folder}day=1/part-00000-{WRITE}.c000.snappy.parquet"
    tree = f"{folder}__magic_job-{JOB}/"
    running = f"{tree}job-{JOB}/00/tasks/attempt_202311142213_0001_m_000000_0/__base/"
    opened = f"{folder}day=1/part-00001-{WRITE}.c000.snappy.parquet"
    for one in (tree, f"{tree}job-{JOB}/00/"):
        world.store.apply(Put(one, b""))
    for one in (key, opened):
        world.store.apply(CreateUpload(one))
    world.clock.advance(2 * DAY)
    world.store.apply(Put(f"{running}{key.removeprefix(folder)}.pending", b"{}"))
    seen = sweep(world, path="")
    assert world.store.upload_keys() == [key, opened]
    assert [it.reason.partition(JOB)[0] for it in seen.values()] == ["of the S3A job "] * 2
    world.clock.advance(2 * DAY)
    sweep(world, path="")
    assert world.store.upload_keys() == []


def test_upload_without_uuid_may_be_of_a_living_magic_job_of_the_whole_bucket(world: World) -> None:
    tree = f"__magic_job-{JOB}/"
    world.store.apply(Put(tree, b""))
    world.store.apply(CreateUpload("wh/part-r-00000"))
    world.clock.advance(2 * DAY)
    world.store.apply(Put(f"{tree}job-{JOB}/00/x", b""))
    seen = sweep(world, path="")
    assert seen["wh/part-r-00000"].reason.startswith(f"it may be of the S3A job {JOB}: ")


def test_living_jobs_are_found_without_the_right_to_list_the_bucket(world: World) -> None:
    """As of a policy whose s3:prefix allows a folder alone."""

    def only_below(request: Any, carry_out: Callable[[Any], Any]) -> Any:
        if isinstance(request, ListObjects) and not request.prefix.startswith(
            ("wh/", "_zero_rename/s3a-runs/wh/")
        ):
            raise StoreRefusedError("Access denied.", lacks_right=True)
        return carry_out(request)

    first = world.job().task(1)
    world.clock.advance(2 * DAY)
    world.job().task(2)
    world.driver.fault = only_below
    sweep(world)
    assert keys(first) <= set(world.store.upload_keys())


def test_folder_is_swept_with_rights_for_it_and_its_runs_alone(world: World) -> None:
    """As ``zero-rename policy writer`` gives them: nothing of the folder around it is listed."""
    allowed = (f"{ROOT.prefix}/", runs_prefix(ROOT))

    def only_below(request: Any, carry_out: Callable[[Any], Any]) -> Any:
        if isinstance(request, ListObjects) and not request.prefix.startswith(allowed):
            raise StoreRefusedError("Access denied.", lacks_right=True)
        return carry_out(request)

    old = f"{ROOT.prefix}/day=1/part-00000-{OTHER}.parquet"
    world.store.apply(CreateUpload(old))
    world.clock.advance(2 * DAY)
    first = world.job().task(1)
    world.clock.advance(2 * DAY)
    world.job().task(2)
    world.driver.fault = only_below
    seen = sweep(world)
    assert keys(first) <= set(world.store.upload_keys())
    assert seen[old].action == "aborted"


def test_folder_that_is_swept_has_to_be_listed(world: World) -> None:
    world.job().task(1)
    world.clock.advance(2 * DAY)
    for refused in (runs_prefix(ROOT), f"{ROOT.prefix}/__magic"):

        def fault(request: Any, carry_out: Callable[[Any], Any], refused: str = refused) -> Any:
            if isinstance(request, ListObjects) and request.prefix.startswith(refused):
                raise StoreRefusedError("Access denied.", lacks_right=True)
            return carry_out(request)

        world.driver.fault = fault
        with pytest.raises(StoreRefusedError):
            sweep(world)


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
