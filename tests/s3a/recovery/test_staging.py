"""Recovery of staging committers' jobs, whose pending sets are in a folder elsewhere."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest

from support.faults import Crash, at
from support.memory_store import MemoryDriver
from support.s3a_jobs import JOB, OTHER, ROOT, StagingJob, World
from zero_rename.committer.errors import InvalidInputError
from zero_rename.committer.format.records.success_marker import SuccessMarker
from zero_rename.committer.store.requests import Done, Put
from zero_rename.s3a.recovery.liveness import Action, RecoveryOptions
from zero_rename.s3a.recovery.recover import JobOutcome, RecoveredJob, recover_jobs

DEAD = RecoveryOptions(apply=True, dead={JOB})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "staging"
    made.mkdir()
    return made


def two_tasks(world: World, folder: Path, **given: Any) -> StagingJob:
    job = world.staging_job(folder, **given)
    job.task(0)
    job.task(1)
    world.clock.advance(10)
    return job


def halfway(world: World, folder: Path) -> StagingJob:
    """Killed in its job commit, with both pending sets on disk."""
    job = two_tasks(world, folder)
    job.complete(job.files[0])
    return job


def recover(world: World, folder: Path | str | None, **given: Any) -> RecoveredJob:
    staging = str(folder) if folder is not None else None
    options = dataclasses.replace(DEAD, staging=staging, **given)
    (found,) = world.driver.run(recover_jobs(ROOT, options))
    return found


def untouched(world: World, folder: Path) -> Any:
    files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return world.store.copy().objects, world.store.copy().uploads, files


class TestWithItsFolder:
    @pytest.mark.parametrize("done", [1, 3, 4])
    def test_a_half_committed_job_is_finished(self, world: World, folder: Path, done: int) -> None:
        # S3A conformance 48, 50
        job = two_tasks(world, folder)
        job.complete(*job.files[:done])
        found = recover(world, folder)
        assert (found.job, found.left, found.outcome) == (JOB, "staging", JobOutcome.ROLLED_FORWARD)
        assert (found.tasks, found.files, found.written, found.completed) == (2, 4, done, 4 - done)
        assert world.visible() == job.keys
        for made in job.files:
            assert world.store.objects[made.key].body == made.body
        world.assert_clean()
        key = f"{ROOT.prefix}/_SUCCESS"
        marker = SuccessMarker.parse(world.store.objects[key].body, key)
        assert (marker.job, marker.committer) == (JOB, "staging")
        assert list(folder.rglob("*task_*")) == []
        assert not (folder / "somebody" / JOB).exists()
        assert set(world.store.objects) == {*job.keys, key}, "its notes are gone"

    @pytest.mark.parametrize("below", ["", "somebody", f"somebody/{JOB}"])
    @pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}"])
    def test_the_folder_of_all_of_one_user_or_of_one_job(
        self, world: World, folder: Path, form: str, below: str
    ) -> None:
        job = halfway(world, folder)
        options = dataclasses.replace(DEAD, staging=form.format(folder / below))
        (found,) = world.driver.run(recover_jobs(ROOT, options))
        assert found.outcome is JobOutcome.ROLLED_FORWARD
        assert world.visible() == job.keys

    def test_a_report_changes_nothing(self, world: World, folder: Path) -> None:
        halfway(world, folder)
        before = untouched(world, folder)
        assert recover(world, folder, apply=False).outcome is JobOutcome.WOULD_ROLL_FORWARD
        assert untouched(world, folder) == before

    def test_one_of_which_nothing_is_written(self, world: World, folder: Path) -> None:
        two_tasks(world, folder)
        found = recover(world, folder)
        assert (found.outcome, found.aborted) == (JobOutcome.ROLLED_BACK, 4)
        assert "nothing shows that its commit had begun" in found.reason
        assert world.store.keys() == []
        world.assert_clean()
        assert not (folder / "somebody" / JOB).exists()

    def test_a_task_that_was_committing(self, world: World, folder: Path) -> None:
        job = two_tasks(world, folder)
        job.running(2)
        assert recover(world, folder).outcome is JobOutcome.ROLLED_BACK
        assert world.visible() == []

    def test_no_task_has_committed(self, world: World, folder: Path) -> None:
        world.staging_job(folder).running(0)
        world.clock.advance(10)
        assert recover(world, folder).reason == "no task of it has committed"
        world.assert_clean()

    def test_a_damaged_set(self, world: World, folder: Path) -> None:
        job = two_tasks(world, folder)
        job.complete(job.files[2])
        Path(job.set_key(1)).write_bytes(b"{")
        before = untouched(world, folder)
        found = recover(world, folder)
        assert found.outcome is JobOutcome.NEEDS_DECISION
        assert "of 2 pending sets 1 cannot be read" in found.reason
        assert untouched(world, folder) == before
        found = recover(world, folder, direction=Action.BACK)
        assert (found.outcome, found.kept) == (JobOutcome.FILES_LEFT, (job.files[2].key,))

    def test_a_folder_that_is_not_whole(self, world: World, folder: Path) -> None:
        """As a copy of which a part is missing: uploads that no set names may be a task's."""
        job = halfway(world, folder)
        Path(job.set_key(1)).unlink()
        before = untouched(world, folder)
        found = recover(world, folder)
        assert found.outcome is JobOutcome.NEEDS_DECISION
        assert "no pending set names 2 uploads of it" in found.reason
        assert untouched(world, folder) == before
        found = recover(world, folder, direction=Action.FORWARD)
        assert (found.outcome, found.completed, found.aborted) == (JobOutcome.ROLLED_FORWARD, 1, 2)

    def test_a_partitions_folder_as_destination(self, world: World, folder: Path) -> None:
        job = world.staging_job(folder)
        for task in range(2):
            job.task(task, ["day=1"])
        job.complete(job.files[0])
        world.clock.advance(10)
        found = recover(world, folder, folders=("day=1",))
        assert found.destination == f"{ROOT.url}/day=1"
        assert f"{ROOT.prefix}/day=1/_SUCCESS" in world.store.objects

    def test_another_job_committed_since(self, world: World, folder: Path) -> None:
        """By the store's clock, whatever that of the folder's disk says."""
        job = halfway(world, folder)
        assert isinstance(world.store.apply(Put(f"{ROOT.prefix}/_SUCCESS", b"?")), Done)
        before = untouched(world, folder)
        found = recover(world, folder)
        assert found.outcome is JobOutcome.NEEDS_DECISION
        assert "another job" in found.reason
        assert untouched(world, folder) == before
        assert recover(world, folder, direction=Action.FORWARD).completed == 3
        assert world.visible() == job.keys

    def test_other_tables_jobs_are_none_of_its(self, world: World, folder: Path) -> None:
        elsewhere = dataclasses.replace(ROOT, prefix="wh/other")
        two_tasks(world, folder, root=elsewhere)
        options = dataclasses.replace(DEAD, staging=str(folder))
        assert world.driver.run(recover_jobs(ROOT, options)) == ()
        assert len(world.store.uploads) == 4

    def test_a_set_that_names_another_jobs_files(self, world: World, folder: Path) -> None:
        """More people may write to a staging folder than to the table."""
        job = halfway(world, folder)
        job.place.parents[2].rename(folder / "somebody" / OTHER)
        before = untouched(world, folder)
        found = recover(world, folder, dead={OTHER, JOB})
        assert found.outcome is JobOutcome.REFUSED
        assert f"names a file of another job, '{JOB}'" in found.reason
        assert untouched(world, folder) == before

    def test_a_job_that_changed_meanwhile(self, world: World, folder: Path) -> None:
        job = halfway(world, folder)

        def fault(request: Any, apply: Any) -> Any:
            if isinstance(request, Put):
                job.pending_set(7, [])
            return apply(request)

        world.driver.fault = fault
        found = recover(world, folder)
        assert found.outcome is JobOutcome.LEFT
        assert "it changed while it was looked at" in found.reason
        assert len(world.store.uploads) == 3

    def test_a_folder_that_cannot_be_deleted(
        self, world: World, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        job = halfway(world, folder)
        module = "zero_rename.s3a.hadoop.staging_dir.StagingFolder.remove"

        def refuse(*_: Any) -> None:
            raise PermissionError("not yours")

        with monkeypatch.context() as patch:
            patch.setattr(module, refuse)
            found = recover(world, folder)
        assert found.outcome is JobOutcome.FAILED
        assert "cannot be deleted: not yours" in found.reason
        assert world.visible() == job.keys
        assert recover(world, folder).outcome is JobOutcome.ROLLED_FORWARD
        assert not (folder / "somebody" / JOB).exists()


class TestWithoutItsFolder:
    @pytest.mark.parametrize("done", [0, 1, 3])
    def test_its_only_copy_is_left(self, world: World, folder: Path, done: int) -> None:
        # S3A conformance 48
        job = two_tasks(world, folder)
        job.complete(*job.files[:done])
        before = untouched(world, folder)
        found = recover(world, None)
        assert (found.left, found.outcome) == ("uploads", JobOutcome.NEEDS_DECISION)
        assert "fs.s3a.committer.staging.tmp.path" in found.reason
        assert untouched(world, folder) == before

    def test_a_folder_in_which_it_is_not(self, world: World, folder: Path) -> None:
        """It ended, or it is another folder."""
        halfway(world, folder)
        shutil.rmtree(folder / "somebody" / JOB)
        assert recover(world, folder).outcome is JobOutcome.NEEDS_DECISION
        assert len(world.store.uploads) == 3

    def test_what_is_to_be_given_up(self, world: World, folder: Path) -> None:
        two_tasks(world, folder)
        found = recover(world, None, direction=Action.BACK)
        assert (found.outcome, found.aborted) == (JobOutcome.ROLLED_BACK, 4)
        world.assert_clean()

    def test_what_is_visible_is_told(self, world: World, folder: Path) -> None:
        job = halfway(world, folder)
        found = recover(world, None, direction=Action.BACK)
        assert (found.outcome, found.aborted) == (JobOutcome.FILES_LEFT, 3)
        assert found.kept == (job.files[0].key,)
        assert world.visible() == [job.files[0].key]

    def test_a_file_in_another_folder_than_its_uploads(self, world: World, folder: Path) -> None:
        job = world.staging_job(folder)
        job.task(0)
        job.complete(job.files[1])
        world.clock.advance(10)
        found = recover(world, None)
        assert found.outcome is JobOutcome.NEEDS_DECISION
        assert "1 complete file carries its UUID in the name" in found.reason

    def test_an_attempt_that_lost(self, world: World, folder: Path) -> None:
        """Its file is there by another attempt, whose job has ended."""
        job = world.staging_job(folder)
        won = job.upload(job.name(0))
        job.upload(job.name(0))
        job.complete(won)
        world.clock.advance(10)
        found = recover(world, None)
        assert (found.outcome, found.aborted) == (JobOutcome.ROLLED_BACK, 1)
        assert world.visible() == [won.key]


def test_a_job_whose_marker_stands(world: World, folder: Path) -> None:
    """It is committed, and its folder gone: what is left are uploads of attempts that lost."""
    job = halfway(world, folder)
    recover(world, folder)
    job.upload(job.name(7))
    found = recover(world, None)
    assert (found.outcome, found.aborted, found.kept) == (JobOutcome.ROLLED_BACK, 1, ())
    assert world.visible() == job.keys


def test_a_folder_with_others_in_it(
    world: World, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    halfway(world, folder)

    def refuse(*_: Any) -> None:
        raise PermissionError("staging/somebody-else: not yours")

    monkeypatch.setattr("zero_rename.s3a.hadoop.staging_dir.StagingFolder.below", refuse)
    with pytest.raises(InvalidInputError, match="not yours"):
        recover(world, folder)
    assert len(world.store.uploads) == 3


@pytest.mark.parametrize("given", ["/nowhere/staging", "tmp/staging"])
def test_a_folder_that_cannot_be_looked_at(world: World, given: str) -> None:
    with pytest.raises(InvalidInputError, match="cannot be looked at from here"):
        recover(world, given)


@pytest.mark.parametrize("given", ["s3://bucket/tmp", "s3a://bucket/tmp", "S3N://bucket/tmp"])
def test_a_folder_in_s3_is_refused(world: World, given: str) -> None:
    with pytest.raises(InvalidInputError, match="it is in S3, where staging committers keep no"):
        recover(world, given)


@pytest.mark.parametrize("after", [False, True])
def test_a_recovery_that_dies_is_finished(world: World, folder: Path, after: bool) -> None:
    """At any request, also between the folder's deletion and that of its notes."""
    whole = halfway(world, folder)
    store, kept = world.store.copy(), folder.with_name("kept")
    shutil.copytree(folder, kept)
    recover(world, folder)
    for number in range(len(world.driver.requests)):
        copy = store.copy()
        shutil.rmtree(folder)
        shutil.copytree(kept, folder)
        options = dataclasses.replace(DEAD, staging=str(folder))
        dies = at(number + 1, Crash, applied=after)
        with pytest.raises(Crash):
            MemoryDriver(copy, fault=dies).run(recover_jobs(ROOT, options))
        MemoryDriver(copy).run(recover_jobs(ROOT, options))
        assert list(copy.keys(f"{ROOT.prefix}/day=")) == whole.keys
        assert copy.uploads == {}
        assert not (folder / "somebody" / JOB).exists()
        assert f"{ROOT.prefix}/_SUCCESS" in copy.objects
