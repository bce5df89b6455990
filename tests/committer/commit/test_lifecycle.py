"""What Hadoop's own tests ask of any committer, where no other test of ours asks it."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from support.faults import on
from support.protocol import DAY1, DAY2, ROOT, SCHEMA, World, write_task
from zero_rename import JobSpec, Table
from zero_rename.committer import (
    InvalidInputError,
    JobFencedError,
    Mode,
    OnConflict,
    StoreRefusedError,
    TableRoot,
    TaskResult,
    TaskResultsError,
    UnfinishedCommitError,
    Verdict,
)
from zero_rename.committer.commit.state.decide import read_decision
from zero_rename.committer.store.requests import (
    AbortUpload,
    CompleteUpload,
    CreateUpload,
    Head,
    ListObjects,
    ListUploads,
    Put,
    Unknown,
    UploadPart,
)

pytestmark = pytest.mark.memory_s3


@pytest.fixture
def world() -> World:
    return World()


def verdict(world: World, job: str) -> Verdict | None:
    decided = world.driver.run(read_decision(world.context, job))
    return decided.decision.verdict if decided else None


refuse_markers = on(Put, Unknown("no answer"), "_SUCCESS")


class TestIdentity:
    def test_the_job_s_id_travels_to_its_tasks(self, world: World) -> None:
        """Conformance 2: what a task needs to know crosses processes."""
        opened = pickle.loads(pickle.dumps(world.open()))
        world.commit(opened, world.write(opened, DAY1))
        assert world.jobs_of(DAY1) == [opened.job]

    def test_every_file_is_named_by_its_job_and_task(self, world: World) -> None:
        """Conformance 9, 35, 75: jobs that share a directory cannot collide."""
        first, second = world.open(), world.open()
        for opened in (first, second):
            for task in range(2):
                (file,) = world.write(opened, DAY1, task=task).files
                assert f"part-{task:05d}-{opened.job}-" in file.key

    def test_two_attempts_of_a_task_do_not_disturb_each_other(self, world: World) -> None:
        """Conformance 8: the same key, two uploads; the one that is reported counts."""
        opened = world.open()
        loser = world.driver.run(write_task(opened, [DAY1], rows=7))
        winner = world.driver.run(write_task(opened, [DAY1], rows=8))
        assert loser.files[0].key == winner.files[0].key
        report = world.commit(opened, winner)
        assert report.rows == 8
        assert b"8 rows" in world.store.objects[winner.files[0].key].body
        world.assert_clean()

    @pytest.mark.parametrize("url", ["hdfs://host/table", "file:///tmp/x", "/tmp/x", "s3:///x"])
    def test_other_schemes_are_refused(self, url: str) -> None:
        """Conformance 14, 109."""
        with pytest.raises(InvalidInputError, match="nothing was read or written"):
            TableRoot.parse(url)


class TestTasks:
    def test_a_task_only_creates_and_uploads(self, world: World) -> None:
        """Conformance 74: neither an append nor a replace looks or deletes before the commit."""
        world.load(DAY1)
        for mode in (Mode.APPEND, Mode.REPLACE, Mode.FAIL_IF_EXISTS):
            opened = world.open(mode)
            before = len(world.driver.requests)
            world.write(opened, DAY1, DAY2)
            kinds = {type(request) for request in world.driver.requests[before:]}
            assert kinds == {CreateUpload, UploadPart}
            world.abort(opened)

    def test_two_tasks_into_one_directory_both_land(self, world: World) -> None:
        """Conformance 39."""
        opened = world.open()
        results = [world.write(opened, DAY1, task=task) for task in range(2)]
        world.commit(opened, *results)
        assert len(world.listed(DAY1)) == 2

    def test_a_task_without_output_needs_no_upload(self, world: World) -> None:
        """Conformance 30, 36."""
        opened = world.open()
        report = world.commit(opened, world.write(opened, DAY1), TaskResult(opened.job, 1, 0, ()))
        assert report.files == 1

    def test_one_damaged_message_spoils_the_whole_commit(self, world: World) -> None:
        """Conformance 54, 58: all are checked before anything is completed, and all go."""
        opened = world.open()
        before = len(world.driver.requests)
        good, bad = world.write(opened, DAY1), world.write(opened, DAY2, task=1)
        broken = TaskResult("zr1-" + "0" * 26, bad.task, bad.attempt, bad.files)
        with pytest.raises(TaskResultsError):
            world.commit(opened, good, broken)
        requests = world.driver.requests[before:]
        assert not [request for request in requests if isinstance(request, CompleteUpload)]
        assert world.listed(DAY1) == []
        world.assert_clean()

    def test_abort_without_work_sends_nothing(self, s3_bucket: Any) -> None:
        """Conformance 43."""
        table = Table(f"s3://{s3_bucket.name}/flights")
        opened = table.open_job(JobSpec(SCHEMA, partition_by=("day",)))
        s3_bucket.counter.reset()
        assert table.task_writer(opened, 0, 0).abort() == ()
        assert s3_bucket.counter.total() == 0


class TestCommitAgain:
    @pytest.mark.parametrize("mode", [Mode.APPEND, Mode.REPLACE], ids=lambda mode: mode.value)
    def test_doubles_nothing(self, world: World, mode: Mode) -> None:
        """Conformance 37: it finds the job committed and says the same."""
        world.load(DAY1)
        opened, result = world.written(DAY1, mode=mode)
        report = world.commit(opened, result)
        files = world.snapshot().files
        assert world.commit(opened, result) == report
        assert world.snapshot().files == files
        world.assert_clean()

    def test_takes_nothing_from_a_later_job(self, world: World) -> None:
        """Conformance 37, for a job that would serialise after anything."""
        opened, result = world.written(DAY1, mode=Mode.REPLACE, on_conflict=OnConflict.LAST_WINS)
        world.commit(opened, result)
        later = world.load(DAY1)
        world.commit(opened, result)
        assert world.jobs_of(DAY1) == [opened.job, later.job]

    def test_after_one_that_failed_half_way_finishes_it(self, world: World) -> None:
        """Conformance 50."""
        opened, result = world.written(DAY1)
        world.driver.fault = refuse_markers
        with pytest.raises(UnfinishedCommitError):
            world.commit(opened, result)
        world.driver.fault = None
        world.commit(opened, result)
        world.commit(opened, result)
        assert world.jobs_of(DAY1) == [opened.job]
        world.assert_clean()

    def test_after_one_that_failed_before_it_decided_is_refused(self, world: World) -> None:
        """Conformance 50: that one aborted the job."""
        opened, result = world.written(DAY1)
        world.driver.fault = on(Put, StoreRefusedError("no right"), "/heads/")
        with pytest.raises(StoreRefusedError):
            world.commit(opened, result)
        world.driver.fault = None
        with pytest.raises(JobFencedError):
            world.commit(opened, result)
        world.assert_clean()


class TestCleanUp:
    def test_an_upload_that_is_gone_already_is_no_error(self, world: World) -> None:
        """Conformance 60."""
        opened, result = world.written(DAY1, DAY2)
        gone = result.files[0]

        def fault(request: Any, apply: Callable[[Any], Any]) -> Any:
            if isinstance(request, AbortUpload) and request.key == gone.key:
                apply(request)  # Somebody else was first.
            return apply(request)

        world.driver.fault = fault
        world.abort(opened, result)
        world.assert_clean()

    def test_a_listing_that_fails_keeps_the_job_open(self, world: World) -> None:
        """Conformance 59, the other way round: what was not looked at is not called clean."""
        opened, result = world.written(DAY1)
        world.driver.fault = on(ListUploads, StoreRefusedError("no right to list"))
        with pytest.raises(UnfinishedCommitError, match="is committed"):
            world.commit(opened, result)
        assert world.listed(DAY1) == [result.files[0].key]
        world.driver.fault = None
        assert [str(r.outcome) for r in world.recover()] == ["committed"]
        world.assert_clean()

    def test_one_job_s_clean_up_leaves_the_other_s_uploads_and_records(self, world: World) -> None:
        """Conformance 80."""
        other, pending = world.written(DAY1)
        world.load(DAY1)
        aborted = world.open()
        world.write(aborted, DAY1)
        world.abort(aborted)
        world.recover()
        assert world.store.upload_keys() == [pending.files[0].key]
        world.commit(other, pending)
        world.assert_clean()

    @pytest.mark.parametrize("count", [0, 1, 3])
    def test_purge_counts_what_it_aborts(self, world: World, count: int) -> None:
        """Conformance 104."""
        world.load(DAY1)
        opened = world.open()
        world.abort(opened)
        for task in range(count):
            world.write(opened, DAY1, task=task)
        assert len(world.purge(apply=False).entries) == count
        assert len(world.purge().entries) == count
        assert world.purge().entries == ()
        world.assert_clean()


class TestCost:
    def test_completing_costs_the_completions_alone(self, world: World) -> None:
        """Conformance 89: no HEAD, LIST or DELETE of data files."""
        world.load(DAY1)
        opened = world.open()
        results = [world.write(opened, DAY1, task=task) for task in range(5)]
        before = len(world.driver.requests)
        world.commit(opened, *results)
        requests = world.driver.requests[before:]
        assert sum(isinstance(r, CompleteUpload) for r in requests) == 5
        assert not [r for r in requests if isinstance(r, Head | ListObjects)]


class TestReports:
    def test_of_a_commit_and_of_an_abort(self, world: World) -> None:
        """Conformance 107: the decision is the report; a marker stands for success alone."""
        done = world.load(DAY1).job
        opened = world.open()
        world.abort(opened, world.write(opened, DAY1))
        assert verdict(world, done) is Verdict.COMMIT
        assert verdict(world, opened.job) is Verdict.ABORT
        marker = json.loads(world.store.objects[ROOT.marker_key(DAY1)].body)
        assert (marker["jobId"], marker["success"]) == (done, True)

    def test_the_counters_reach_the_marker(self, world: World) -> None:
        """Conformance 29."""
        opened = world.open()
        results = [world.write(opened, DAY1, task=task) for task in range(3)]
        world.commit(opened, *results)
        metrics = json.loads(world.store.objects[ROOT.marker_key(DAY1)].body)["metrics"]
        assert metrics["committer_commits_completed"] == 3
        size = sum(len(world.store.objects[key].body) for key in world.listed(DAY1))
        assert metrics["committer_bytes_committed"] == size

    def test_a_chain_of_jobs_finds_each_marker_of_the_one_before(self, s3_bucket: Any) -> None:
        """Conformance 93."""
        before: Table | None = None
        data = pa.table({"value": range(10), "day": [1, 2] * 5})
        expected = None
        for name in ("generated", "sorted", "validated"):
            if before is not None:
                marker = before.marker()
                assert marker is not None
                assert (marker.success, marker.committer) == (True, "zero_rename")
                assert marker.job == expected
                assert marker.manifest is not None
                data = before.to_arrow().sort_by("value")
                assert marker.manifest.rows == data.num_rows == 10
            table = Table(f"s3://{s3_bucket.name}/{name}")
            with table.job(data.schema, partition_by=["day"]) as job:
                job.write(data)
            before, expected = table, job.job
        assert before is not None
        assert before.to_arrow().sort_by("value").column("value").to_pylist() == list(range(10))


class TestDirectories:
    def test_nested_ones_are_kept(self, s3_bucket: Any) -> None:
        """Conformance 24: each file where its values say, and no directory twice."""
        table = Table(f"s3://{s3_bucket.name}/flights")
        data = pa.table({"value": [1, 2], "year": [2013, 2013], "month": [1, 2]})
        with table.job(data.schema, partition_by=["year", "month"]) as job:
            job.write(data)
        files = [key for key in s3_bucket.keys("flights/year=") if key.endswith(".parquet")]
        assert [key.rsplit("/", 1)[0] for key in files] == [
            "flights/year=2013/month=1",
            "flights/year=2013/month=2",
        ]
        assert table.partitions() == ["year=2013/month=1", "year=2013/month=2"]
