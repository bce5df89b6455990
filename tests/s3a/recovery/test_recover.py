"""Recovery of S3A jobs on a store in memory: what is chosen, and what is left afterwards."""

from __future__ import annotations

import json
import logging
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from support.faults import Crash, beside, on
from support.memory_store import Behaviour, ManualClock, MemoryDriver, MemoryStore
from support.s3a_jobs import JOB, OTHER, ROOT, MagicJob, World, a_try
from zero_rename.committer import InvalidInputError
from zero_rename.committer.format.job_spec import Owner
from zero_rename.committer.format.records.success_marker import SuccessMarker
from zero_rename.committer.store.requests import (
    AbortUpload,
    CompleteUpload,
    CreateUpload,
    Delete,
    Deleted,
    DeleteMany,
    Done,
    Get,
    Head,
    ListObjects,
    ListUploads,
    Put,
    Refused,
    ServerName,
    Unknown,
)
from zero_rename.s3a.hadoop.commit_files import JobSummary
from zero_rename.s3a.hadoop.job_traces import DIRECTION_NAME
from zero_rename.s3a.recovery.leftovers import find_jobs
from zero_rename.s3a.recovery.liveness import Action, JobLiveness, RecoveryOptions
from zero_rename.s3a.recovery.recover import JobOutcome, RecoveredJob, recover_jobs
from zero_rename.s3a.runs.ledger import (
    change,
    closed_key,
    find,
    open_key,
    open_tries,
    open_try,
    settle_try,
    tries_of,
)
from zero_rename.s3a.runs.try_record import COMMITTED, FENCED, SUBMITTED, UNDONE, TryRecord

NATIVE = f"zr1-{'A' * 26}"
DEAD = RecoveryOptions(apply=True, dead={JOB})
ROLL_BACK = RecoveryOptions(apply=True, dead={JOB}, direction=Action.BACK)
WRITES = (Put, Delete, DeleteMany, CompleteUpload, AbortUpload)


def two_tasks(world: World, **given: Any) -> MagicJob:
    job = world.job(**given)
    job.task(0)
    job.task(1)
    world.clock.advance(10)
    return job


def halfway(world: World, **given: Any) -> MagicJob:
    """Died in its job commit: one of four files is written."""
    job = two_tasks(world, **given)
    job.complete(job.files[0])
    return job


def recover(world: World, options: RecoveryOptions = DEAD) -> RecoveredJob:
    (found,) = world.driver.run(recover_jobs(ROOT, options))
    return found


def complete_as(world: World, key: str, etag: str) -> None:
    """Give an object the ETag that a store gives it where ETags are no checksums."""
    whole = world.store.objects[key]
    world.store.objects[key] = type(whole)(whole.body, etag, whole.last_modified)


def marker(world: World, folder: str = "") -> SuccessMarker:
    key = "/".join(part for part in (ROOT.prefix, folder, "_SUCCESS") if part)
    return SuccessMarker.parse(world.store.objects[key].body, key)


def changing(world: World) -> list[Any]:
    return [request for request in world.driver.requests if isinstance(request, WRITES)]


@contextmanager
def dying_at(
    world: World, kind: type, first: Callable[[Any, Any], Any] | None = None
) -> Iterator[None]:
    """The recovery in the block ends at its first request of a kind, once it has done that."""

    def fault(request: Any, apply: Any) -> Any:
        if not isinstance(request, kind):
            return apply(request)
        if first is not None:
            first(request, apply)
        raise KeyboardInterrupt

    world.driver.fault = fault
    with pytest.raises(KeyboardInterrupt):
        yield
    world.driver.fault = None


def meanwhile(world: World, kind: type, do: Callable[[Any], object], key: str = "") -> None:
    """Before the next request of a kind, for a key that ends so, somebody else does something."""

    def fault(request: Any, apply: Any) -> Any:
        if isinstance(request, kind) and getattr(request, "key", "").endswith(key):
            world.driver.fault = None
            do(request)
        return apply(request)

    world.driver.fault = fault


class TestForward:
    def test_a_half_committed_job_is_finished(self, world: World) -> None:
        # S3A conformance 50
        job = halfway(world)
        found = recover(world)
        assert found.outcome is JobOutcome.ROLLED_FORWARD
        assert (found.files, found.written, found.completed) == (4, 1, 3)
        assert "of 4 files 1 is written, so its commit had passed its tests" in found.reason
        assert world.visible() == job.keys
        for made in job.files:
            assert world.store.objects[made.key].body == made.body
        world.assert_clean()

    def test_its_marker_is_as_the_committer_would_have_written_it(self, world: World) -> None:
        # S3A conformance 19, 20
        job = halfway(world)
        recover(world)
        key = f"{ROOT.prefix}/_SUCCESS"
        summary = JobSummary.parse(world.store.objects[key].body, key)
        assert (summary.marker.job, summary.marker.committer) == (JOB, "magic")
        assert summary.marker.success
        assert sorted(summary.marker.filenames) == [f"/{key}" for key in job.keys]
        assert summary.files == 4
        assert summary.bytes == sum(len(made.body) for made in job.files)

    def test_at_most_a_hundred_names_are_in_it(self, world: World) -> None:
        # S3A conformance 20
        job = world.job()
        for task in range(120):
            job.task(task, ["day=1"])
        job.complete(job.files[7])
        world.clock.advance(10)
        recover(world)
        assert len(marker(world).filenames) == 100
        assert len(world.visible()) == 120

    def test_all_files_are_written_and_no_more(self, world: World) -> None:
        job = two_tasks(world)
        job.complete(*job.files)
        found = recover(world)
        assert (found.outcome, found.completed) == (JobOutcome.ROLLED_FORWARD, 0)
        assert marker(world).job == JOB
        world.assert_clean()

    def test_it_died_in_its_clean_up(self, world: World) -> None:
        # S3A conformance 27
        job = two_tasks(world)
        job.complete(*job.files)
        world.put_marker(JOB)
        # A file that was removed since, rightly, brings nothing back and takes nothing else.
        world.store.apply(Delete(job.keys[0]))
        found = recover(world)
        assert found.outcome is JobOutcome.ROLLED_FORWARD
        assert "_SUCCESS is there" in found.reason
        assert world.visible() == job.keys[1:]
        world.assert_clean()

    def test_uploads_of_attempts_that_lost_are_aborted(self, world: World) -> None:
        """The last committed attempt wins (HADOOP-17258): its set overwrote the earlier one."""
        # S3A conformance 8, 37
        job = world.job()
        job.task(0)
        lost = list(job.files)
        job.files.clear()
        job.task(0)
        job.running(1)
        job.complete(job.files[0])
        world.clock.advance(10)
        found = recover(world)
        assert (found.outcome, found.extra, found.aborted) == (JobOutcome.ROLLED_FORWARD, 3, 3)
        assert world.visible() == job.keys == sorted(made.key for made in lost)
        world.assert_clean()

    def test_an_overwrite_whose_destination_spark_had_emptied(self, world: World) -> None:
        """Nothing of the old is there any more: rolling forward gives the new rows."""
        job = halfway(world)
        world.driver.run(open_try(ROOT, a_try(mode="overwrite")))
        world.clock.advance(7200)
        found = recover(world, DEAD)
        assert found.outcome is JobOutcome.ROLLED_FORWARD
        assert world.visible() == job.keys

    def test_a_partitions_folder_as_destination(self, world: World) -> None:
        job = world.job(folder="day=1")
        job.task(0, ["hour=1"])
        job.task(1, ["hour=1"])
        job.complete(job.files[0])
        world.clock.advance(10)
        found = recover(world)
        assert found.destination == "s3://bucket/wh/flights/day=1"
        assert world.visible() == job.keys
        assert marker(world, "day=1").job == JOB

    @pytest.mark.parametrize(
        ("direction", "outcome"), [(Action.FORWARD, "rolled-forward"), (Action.BACK, "rolled-back")]
    )
    @pytest.mark.parametrize("etag", ["kms-2", "0" * 32 + "-2", "0" * 32])
    def test_a_file_whose_etag_is_no_checksum(
        self, world: World, etag: str, direction: Action, outcome: str
    ) -> None:
        """As under SSE-KMS, where they look like some: a person has to say whose it is."""
        job = halfway(world)
        complete_as(world, job.files[0].key, etag)
        before = world.store.copy()
        asked = recover(world)
        assert (asked.written, asked.unsure, asked.outstanding) == (0, 1, 3)
        assert asked.outcome is JobOutcome.NEEDS_DECISION
        assert "an ETag that is not made of the parts'" in asked.reason
        assert (world.store.objects, world.store.uploads) == (before.objects, before.uploads)
        done = recover(world, RecoveryOptions(apply=True, dead={JOB}, direction=direction))
        assert done.outcome == outcome
        assert world.visible() == (job.keys if direction is Action.FORWARD else [])
        world.assert_clean()

    def test_a_recovery_that_was_interrupted_where_etags_are_no_checksums(
        self, world: World
    ) -> None:
        """What it completed itself, nobody is asked about."""
        job = halfway(world)

        def fault(request: Any, apply: Any) -> Any:
            if isinstance(request, DeleteMany):
                raise KeyboardInterrupt
            answer = apply(request)
            if isinstance(request, CompleteUpload):
                complete_as(world, request.key, "kms-2")
            return answer

        world.driver.fault = fault
        with pytest.raises(KeyboardInterrupt):
            recover(world)
        world.driver.fault = None
        assert recover(world).outcome is JobOutcome.ROLLED_FORWARD
        assert world.visible() == job.keys
        world.assert_clean()


class TestBack:
    def test_nothing_is_written_and_the_mode_is_not_known(self, world: World) -> None:
        two_tasks(world)
        found = recover(world)
        assert (found.outcome, found.aborted) == (JobOutcome.ROLLED_BACK, 4)
        assert "nothing shows that its commit had begun" in found.reason
        assert world.visible() == []
        assert world.store.keys() == []
        world.assert_clean()

    @pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"version": 3}', b'{"version": 2}'])
    def test_a_pending_set_that_cannot_be_read(self, world: World, body: bytes) -> None:
        # S3A conformance 54, 58
        job = halfway(world)
        job.put(job.set_key(1), body)
        found = recover(world)
        assert found.outcome is JobOutcome.ROLLED_BACK
        assert "of 2 pending sets 1 cannot be read" in found.reason
        assert "task_202311142213_0001_m_000001.pendingset" in found.reason
        assert (found.removed, world.visible()) == (1, [])
        world.assert_clean()

    def test_files_that_only_an_unreadable_set_named_are_told(self, world: World) -> None:
        job = halfway(world)
        job.complete(job.files[2])
        job.put(job.set_key(1), b"{")
        found = recover(world)
        assert found.outcome is JobOutcome.NEEDS_DECISION
        assert (
            f"1 complete file carries its UUID in the name, such as {job.files[2].key!r}"
            in found.reason
        )
        assert changing(world) == []
        found = recover(world, ROLL_BACK)
        assert (found.outcome, found.kept) == (JobOutcome.FILES_LEFT, (job.files[2].key,))
        assert "a name does not prove whose it is" in found.reason
        assert world.visible() == [job.files[2].key]
        world.assert_clean()

    def test_an_upload_that_is_lost(self, world: World) -> None:
        job = halfway(world)
        world.store.apply(AbortUpload(job.files[3].key, job.files[3].upload_id))
        found = recover(world)
        assert (found.outcome, found.missing) == (JobOutcome.ROLLED_BACK, 1)
        assert "neither an upload nor its own object is there" in found.reason
        assert world.visible() == []
        world.assert_clean()

    def test_an_object_of_somebody_else_at_a_key_is_left(self, world: World) -> None:
        job = halfway(world)
        made = job.files[3]
        world.store.apply(AbortUpload(made.key, made.upload_id))
        world.store.apply(Put(made.key, b"x"))
        found = recover(world)
        assert (found.outcome, found.kept) == (JobOutcome.ROLLED_BACK, (made.key,))
        assert world.visible() == [made.key]

    def test_no_task_has_committed(self, world: World) -> None:
        # S3A conformance 49
        job = world.job()
        job.running(0)
        job.running(1)
        world.clock.advance(10)
        found = recover(world)
        assert found.reason == "no task of it has committed"
        assert (found.outcome, found.aborted) == (JobOutcome.ROLLED_BACK, 2)
        world.assert_clean()

    def test_a_tree_of_nothing_but_its_directory(self, world: World) -> None:
        # S3A conformance 44
        world.job()
        assert recover(world).outcome is JobOutcome.ROLLED_BACK
        assert world.store.keys() == []

    def test_because_the_caller_wants_it(self, world: World) -> None:
        halfway(world)
        found = recover(world, ROLL_BACK)
        assert (found.outcome, found.removed) == (JobOutcome.ROLLED_BACK, 1)
        assert world.visible() == []

    def test_a_retry_loads_again(self, world: World) -> None:
        halfway(world)
        for number in (1, 2):
            owner = Owner("dag", "run", "load", -1, number)
            record = a_try(JOB if number == 1 else OTHER, owner)
            world.driver.run(open_try(ROOT, record))
        world.clock.advance(7200)
        found = recover(world, RecoveryOptions(apply=True))
        assert (found.state, found.outcome) == (JobLiveness.SUPERSEDED, JobOutcome.ROLLED_BACK)
        assert "attempt 2 loads or loaded instead" in found.reason
        assert world.visible() == []

    def test_the_upload_of_an_attempt_that_lost(self, world: World) -> None:
        job = MagicJob(world.store.apply)
        done = job.upload(job.name(0))
        job.upload(job.name(0))
        job.complete(done)
        found = recover(world, RecoveryOptions(apply=True, patience=0))
        assert (found.outcome, found.aborted, found.kept) == (JobOutcome.ROLLED_BACK, 1, ())
        assert "complete file" not in found.reason
        assert world.visible() == [done.key]

    def test_an_attempt_that_lost_and_wrote_other_files_than_the_one_that_won(
        self, world: World
    ) -> None:
        """Only a person can tell them from a job that died in its commit."""
        job = MagicJob(world.store.apply)
        done = job.upload(job.name(0))
        job.upload(job.name(0, "day=2"))
        job.complete(done)
        job.upload(job.name(0, "day=1"))
        lost = RecoveryOptions(apply=True, patience=0)
        found = recover(world, lost)
        assert found.outcome is JobOutcome.NEEDS_DECISION
        assert f"1 complete file carries its UUID in the name, such as {done.key!r}" in found.reason
        assert changing(world) == []


class TestMarker:
    def test_an_older_one_is_replaced(self, world: World) -> None:
        world.put_marker(OTHER)
        world.clock.advance(5)
        halfway(world)
        assert recover(world).marker == "written"
        assert marker(world).job == JOB

    def test_a_newer_one_is_kept(self, world: World) -> None:
        job = halfway(world)
        world.put_marker(OTHER)
        options = RecoveryOptions(apply=True, dead={JOB}, direction=Action.FORWARD)
        found = recover(world, options)
        assert (found.outcome, found.marker) == (
            JobOutcome.ROLLED_FORWARD,
            "another job's was kept",
        )
        assert marker(world).job == OTHER
        assert world.visible() == job.keys

    @pytest.mark.parametrize("body", [b"", b"?"])
    def test_one_that_says_nothing_counts_by_its_time(self, world: World, body: bytes) -> None:
        world.store.apply(Put(f"{ROOT.prefix}/_SUCCESS", body))
        world.clock.advance(5)
        halfway(world)
        assert recover(world).marker == "written"

    def test_somebody_has_to_choose_where_another_job_committed_since(self, world: World) -> None:
        """Was it a retry of the same load, or another load? Nothing in the store says."""
        halfway(world)
        world.put_marker(OTHER)
        before = dict(world.store.objects)
        found = recover(world)
        assert found.outcome is JobOutcome.NEEDS_DECISION
        assert "only you can tell" in found.reason
        assert world.store.objects == before

    def test_a_job_that_lives_and_began_since(self, world: World) -> None:
        """The retry, perhaps: its set-up removed whatever marker there was."""
        job = halfway(world)
        two_tasks(world, uuid=OTHER, write=OTHER)
        found = recover(world, RecoveryOptions(apply=True, dead={JOB}, jobs={JOB}))
        assert found.outcome is JobOutcome.NEEDS_DECISION
        assert f"another job ({OTHER}) has begun here since" in found.reason
        assert len(world.visible()) == 1
        assert world.store.keys(job.tree) != []

    def test_a_job_that_lives_and_began_in_the_second_of_the_last_task(self, world: World) -> None:
        """The store's times have whole seconds: which came first, nobody can tell."""
        job = world.job()
        job.task(0)
        job.task(1)
        job.complete(job.files[0])
        world.job(uuid=OTHER, write=OTHER).task(0)
        world.clock.advance(10)
        found = recover(world, RecoveryOptions(apply=True, dead={JOB}, jobs={JOB}))
        assert found.outcome is JobOutcome.NEEDS_DECISION
        assert f"another job ({OTHER}) has begun here since" in found.reason
        assert world.visible() == [job.files[0].key]

    @pytest.mark.parametrize(("mine", "others"), [("day=1", ""), ("", "day=1")])
    def test_a_job_that_began_around_its_destination_or_within(
        self, world: World, mine: str, others: str
    ) -> None:
        job = halfway(world, folder=mine)
        two_tasks(world, uuid=OTHER, write=OTHER, folder=others)
        options = RecoveryOptions(apply=True, dead={JOB}, jobs={JOB}, folders=("day=1",))
        found = recover(world, options)
        assert found.outcome is JobOutcome.NEEDS_DECISION
        assert f"another job ({OTHER}) has begun here since" in found.reason
        assert world.visible() == [job.files[0].key]

    def test_a_job_that_began_elsewhere_in_the_table(self, world: World) -> None:
        halfway(world, folder="day=1")
        two_tasks(world, uuid=OTHER, write=OTHER, folder="day=2")
        options = RecoveryOptions(apply=True, dead={JOB}, jobs={JOB}, folders=("day=1",))
        assert recover(world, options).outcome is JobOutcome.ROLLED_FORWARD

    def test_files_that_a_later_job_removed(self, world: World) -> None:
        job = two_tasks(world)
        job.complete(*job.files)
        world.put_marker(OTHER)
        world.store.apply(Delete(job.keys[0]))
        assert recover(world).outcome is JobOutcome.NEEDS_DECISION
        assert world.visible() == job.keys[1:]

    def test_it_is_not_written_over_one_that_comes_meanwhile(self, world: World) -> None:
        halfway(world)
        meanwhile(world, Put, lambda _: world.put_marker(OTHER), "_SUCCESS")
        assert recover(world).marker == "another job's was kept"
        assert marker(world).job == OTHER


class TestUntrusted:
    """What a pending set may not name is refused before anything is asked of the store for it."""

    @pytest.mark.parametrize(
        ("changes", "why"),
        [
            ({"bucket": "elsewhere"}, "names the bucket 'elsewhere'"),
            ({"destinationKey": "wh/secret"}, "outside the job's destination"),
            ({"destinationKey": "wh/flights/../secret"}, "component"),
            ({"destinationKey": "wh/flights/_zero_rename/table.json"}, "records of committers"),
            ({"destinationKey": "wh/flights/_SUCCESS"}, "a marker"),
            ({"destinationKey": f"wh/flights/day=1/part-0-{NATIVE}-0000.parquet"}, "own committer"),
            ({"destinationKey": "wh/flights/\x1b[2Jx"}, "'wh/flights/\\x1b[2Jx'"),
            ({"jobId": OTHER}, f"of another job, '{OTHER}'"),
        ],
    )
    def test_a_commit(self, world: World, changes: dict[str, Any], why: str) -> None:
        job = world.job()
        job.task(0, **changes)
        job.task(1)
        job.complete(job.files[2])
        self.check(world, why)

    def test_a_set_of_another_job(self, world: World) -> None:
        job = halfway(world)
        job.pending_set(5, [], job=OTHER)
        self.check(world, f"is of another job, '{OTHER}'")

    def test_two_sets_that_name_one_destination(self, world: World) -> None:
        job = halfway(world)
        job.pending_set(5, [job.files[1].commit("bucket", JOB, "")])
        self.check(world, "both name")

    def test_two_attempts_of_the_application(self, world: World) -> None:
        job = halfway(world)
        job.put(job.set_key(0).replace("/00/", "/01/"), b'{"version": 2, "commits": []}')
        self.check(world, "2 application attempts (00, 01)")

    def check(self, world: World, why: str) -> None:
        world.clock.advance(10)
        before = world.store.copy()
        found = recover(world)
        assert found.outcome is JobOutcome.REFUSED
        assert why in found.reason
        assert found.reason.isprintable()
        asked = [r for r in world.driver.requests if not isinstance(r, ListObjects | ListUploads)]
        assert all(isinstance(r, Get) and r.key.endswith(".pendingset") for r in asked)
        assert world.store.objects == before.objects
        assert world.store.uploads == before.uploads

    def test_a_decision_that_cannot_be_read(self, world: World) -> None:
        job = halfway(world)
        job.put(f"{job.tree}zero_rename_recovery.json", b"{}")
        assert recover(world).outcome is JobOutcome.REFUSED

    def test_a_decision_for_another_job(self, world: World) -> None:
        job = two_tasks(world)
        fields = {"format": 1, "kind": "s3a-recovery", "write_id": "w", "forward": True}
        body = json.dumps({**fields, "job": OTHER}).encode()
        job.put(f"{job.tree}zero_rename_recovery.json", body)
        found = recover(world)
        assert found.outcome is JobOutcome.REFUSED
        assert f"for another job, '{OTHER}'" in found.reason

    def test_a_set_that_is_damaged_since_the_decision(self, world: World) -> None:
        job = halfway(world)
        with dying_at(world, CompleteUpload):
            recover(world)
        job.put(job.set_key(1), b"{")
        found = recover(world)
        assert found.outcome is JobOutcome.ROLLED_BACK
        assert "to roll it forward, but of 2 pending sets 1 cannot be read" in found.reason
        assert world.visible() == []

    def test_control_characters_are_neutralised(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        world.job(uuid="x\x1b[2J\r\nrolled-forward")
        MagicJob(world.store.apply).upload("day=1/a\nb\x07.parquet")
        world.clock.advance(7200)
        with caplog.at_level(logging.INFO, "zero_rename.s3a"):
            found = world.driver.run(recover_jobs(ROOT, RecoveryOptions(patience=0)))
        for job in found:
            for text in (job.job, job.reason, job.state_reason, job.destination):
                assert text.isprintable()
        assert len(caplog.records) == 2
        assert all(record.getMessage().isprintable() for record in caplog.records)


class TestLeft:
    def test_the_default_only_reports(self, world: World) -> None:
        # S3A conformance 104
        halfway(world)
        two_tasks(world, uuid=OTHER, write=OTHER)
        options = RecoveryOptions(dead={JOB, OTHER})
        found = world.driver.run(recover_jobs(ROOT, options))
        assert {job.job: job.outcome for job in found} == {
            JOB: JobOutcome.WOULD_ROLL_FORWARD,
            OTHER: JobOutcome.WOULD_ROLL_BACK,
        }
        assert changing(world) == []

    def test_one_that_wrote_lately(self, world: World) -> None:
        # S3A conformance 105
        halfway(world)
        found = recover(world, RecoveryOptions(apply=True, force=True))
        assert (found.state, found.outcome) == (JobLiveness.LIVE, JobOutcome.LEFT)
        assert changing(world) == []

    def test_one_of_which_nothing_is_known(self, world: World) -> None:
        halfway(world)
        world.clock.advance(7200)
        found = recover(world, RecoveryOptions(apply=True))
        assert (found.state, found.outcome) == (JobLiveness.UNKNOWN, JobOutcome.NEEDS_DECISION)
        assert "which would roll it forward: all of 2 pending sets can be read" in found.reason
        assert changing(world) == []
        assert (
            recover(world, RecoveryOptions(apply=True, force=True)).outcome
            is JobOutcome.ROLLED_FORWARD
        )

    def test_one_that_goes_on_while_it_is_looked_at(self, world: World) -> None:
        job = halfway(world)
        world.clock.advance(7200)
        meanwhile(world, Put, lambda _: job.task(2))
        found = recover(world, RecoveryOptions(apply=True, force=True))
        assert found.outcome is JobOutcome.LEFT
        assert "changed while it was looked at" in found.reason
        assert world.visible() == [job.files[0].key]
        assert not any(key.endswith("recovery.json") for key in world.store.objects)

    def test_a_directorys_time_is_no_sign_of_life(self, world: World) -> None:
        """On versitygw it is that of the last change below: of our own decision, that is."""
        job = halfway(world)
        world.clock.advance(7200)

        def change_below(request: Any, apply: Any) -> None:
            world.clock.advance(1)
            world.store.apply(Put(job.tree, b""))
            apply(request)

        options = RecoveryOptions(apply=True, patience=3600)
        with dying_at(world, Put, change_below):
            recover(world, options)
        assert recover(world, options).outcome is JobOutcome.ROLLED_FORWARD

    def test_other_jobs_are_not_touched(self, world: World) -> None:
        # S3A conformance 77, 80
        other = two_tasks(world, uuid=OTHER, write=OTHER)
        world.clock.advance(1)
        halfway(world)
        native = f"{ROOT.prefix}/day=1/part-00000-zr1-{'0' * 26}-0000.parquet"
        world.store.apply(CreateUpload(native))
        before = world.store.keys(other.tree)
        options = RecoveryOptions(apply=True, dead={JOB}, force=True)
        first, second = world.driver.run(recover_jobs(ROOT, options))
        assert {first.outcome, second.outcome} == {JobOutcome.ROLLED_FORWARD, JobOutcome.LEFT}
        assert world.store.keys(other.tree) == before
        assert world.store.upload_keys() == sorted([*other.keys, native])

    def test_only_the_jobs_named(self, world: World) -> None:
        halfway(world)
        halfway(world, uuid=OTHER, write=OTHER)
        options = RecoveryOptions(apply=True, dead={JOB, OTHER}, jobs={OTHER})
        assert recover(world, options).job == OTHER
        named = RecoveryOptions(apply=True, dead={JOB}, direction=Action.FORWARD, jobs={JOB})
        assert recover(world, named).outcome is JobOutcome.ROLLED_FORWARD
        assert world.driver.run(recover_jobs(ROOT, named)) == ()

    @pytest.mark.parametrize(
        "options",
        [
            RecoveryOptions(patience=-1),
            RecoveryOptions(patience=float("nan")),
            RecoveryOptions(direction=Action.ASK),
            RecoveryOptions(folders=("../x",)),
        ],
    )
    def test_options_that_cannot_be_right(self, world: World, options: RecoveryOptions) -> None:
        with pytest.raises(InvalidInputError):
            world.driver.run(recover_jobs(ROOT, options))
        assert world.driver.requests == []


class TestPlaces:
    def test_a_store_that_lists_no_uploads_by_prefix(self) -> None:
        # S3A conformance 59
        clock = ManualClock()
        world = World(MemoryStore(clock, Behaviour(lists_uploads=False)))
        world.clock = clock
        job = halfway(world)
        found = recover(world)
        assert (found.outcome, found.outstanding) == (JobOutcome.ROLLED_FORWARD, 3)
        assert world.visible() == job.keys

    def test_amazon_is_believed_where_it_lists_none(self) -> None:
        clock = ManualClock()
        world = World(MemoryStore(clock, Behaviour(server_name="AmazonS3")))
        world.driver.run(recover_jobs(ROOT))
        listed = [r.prefix for r in world.driver.requests if isinstance(r, ListUploads)]
        assert listed == [f"{ROOT.prefix}/"]
        assert world.driver.perform(ServerName()) == "AmazonS3"

    @pytest.mark.parametrize(
        "options", [RecoveryOptions(folders=("day=1",)), RecoveryOptions(deep=True)]
    )
    def test_a_folder_without_uploads(self, world: World, options: RecoveryOptions) -> None:
        job = world.job(folder="day=1")
        job.task(0, ["hour=1"])
        job.complete(*job.files)
        world.clock.advance(10)
        assert world.driver.run(recover_jobs(ROOT)) == ()
        assert recover(world, replace(options, dead={JOB})).written == 1

    def test_upload_that_a_living_job_may_be_writing_is_left_where_names_have_no_uuid(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Jobs of MapReduce and of the RDD API give their files the same names."""
        name = "day=1/part-m-{:05d}"
        monkeypatch.setattr(MagicJob, "name", lambda _, task, *rest, **more: name.format(task))
        dead = world.job()
        dead.task(0, ["day=1"])
        world.clock.advance(7200)
        living = world.job(uuid=OTHER)
        kept = living.upload(living.name(0))
        found = world.driver.run(recover_jobs(ROOT, DEAD))
        assert {it.job: it.outcome for it in found} == {
            JOB: JobOutcome.ROLLED_BACK,
            OTHER: JobOutcome.LEFT,
            "": JobOutcome.LEFT,
        }
        assert world.store.upload_keys() == [kept.key]

    @pytest.mark.parametrize("uploads", [1, 101])
    def test_job_in_another_destination_is_left_out(self, world: World, uploads: int) -> None:
        """Above so many folders the whole table is listed, that destination included."""
        job = world.job(folder="nested")
        job.task(0)
        job.complete(job.files[0])
        for number in range(uploads):
            world.store.apply(CreateUpload(f"{ROOT.prefix}/other/n={number}/x"))
        world.clock.advance(10)
        before = world.store.upload_keys(), world.magic(), world.visible()
        options = replace(DEAD, strangers=False, without=(f"{ROOT.prefix}/nested/",))
        assert world.driver.run(recover_jobs(ROOT, options)) == ()
        assert (world.store.upload_keys(), world.magic(), world.visible()) == before

    def test_pages(self) -> None:
        clock = ManualClock()
        world = World(MemoryStore(clock, Behaviour(page=2)))
        world.clock = clock
        job = halfway(world)
        assert recover(world).outcome is JobOutcome.ROLLED_FORWARD
        assert world.visible() == job.keys
        world.assert_clean()


class TestAnswers:
    """What the store says to CompleteUpload, AbortUpload and DeleteMany."""

    @pytest.mark.parametrize("applied", [True, False])
    def test_the_answer_to_a_complete_is_lost(self, world: World, applied: bool) -> None:
        # S3A conformance 65
        job = halfway(world)

        def fault(request: Any, apply: Any) -> Any:
            if not isinstance(request, CompleteUpload):
                return apply(request)
            world.driver.fault = None
            if applied:
                apply(request)
            return Unknown("timeout")

        world.driver.fault = fault
        found = recover(world)
        assert found.outcome is JobOutcome.ROLLED_FORWARD
        assert found.completed == (2 if applied else 3)
        assert world.visible() == job.keys
        world.assert_clean()

    def test_the_upload_was_completed_by_another(self, world: World) -> None:
        # S3A conformance 60
        job = halfway(world)
        world.driver.fault = on(CompleteUpload, Refused("NoSuchUpload"), applied=True)
        assert recover(world).outcome is JobOutcome.ROLLED_FORWARD
        assert world.visible() == job.keys

    def test_it_never_answers(self, world: World) -> None:
        job = halfway(world)
        world.driver.fault = on(CompleteUpload, Unknown("timeout"))
        found = recover(world)
        assert found.outcome is JobOutcome.UNKNOWN
        assert "3 files are unknown" in found.reason
        assert world.store.keys(job.attempt) != []
        world.driver.fault = None
        assert recover(world).outcome is JobOutcome.ROLLED_FORWARD
        assert world.visible() == job.keys
        world.assert_clean()

    def test_an_upload_is_lost_on_the_way(self, world: World) -> None:
        """Its repeat finds that it cannot be whole, and takes it back."""
        halfway(world)

        def lose(request: Any) -> None:
            world.store.apply(AbortUpload(request.key, request.upload_id))

        meanwhile(world, CompleteUpload, lose)
        found = recover(world)
        assert found.outcome is JobOutcome.FAILED
        assert "1 file is lost" in found.reason
        again = recover(world)
        assert again.outcome is JobOutcome.ROLLED_BACK
        assert "an earlier recovery has begun to roll it forward, but neither" in again.reason
        assert world.visible() == []
        world.assert_clean()

    def test_it_refuses_a_complete(self, world: World) -> None:
        halfway(world)
        world.driver.fault = on(CompleteUpload, Refused("InvalidPart"))
        found = recover(world)
        assert found.outcome is JobOutcome.FAILED
        assert "InvalidPart" in found.reason

    def test_it_never_answers_an_abort(self, world: World) -> None:
        two_tasks(world)
        world.driver.fault = on(AbortUpload, Unknown("timeout"))
        assert recover(world).outcome is JobOutcome.UNKNOWN
        world.driver.fault = None
        assert recover(world).outcome is JobOutcome.ROLLED_BACK
        world.assert_clean()

    def test_it_says_that_it_aborted_an_upload_that_was_complete(self, world: World) -> None:
        """A store may call an upload that is gone aborted: the file is removed all the same."""
        halfway(world)
        world.driver.fault = on(AbortUpload, Done(), applied=True)
        found = recover(world, ROLL_BACK)
        assert (found.outcome, found.removed, found.aborted) == (JobOutcome.ROLLED_BACK, 1, 3)
        assert world.visible() == []
        world.assert_clean()

    def test_an_upload_that_comes_back_is_swept(self, world: World) -> None:
        """A part that arrives while its upload is aborted can leave it listed."""
        job = two_tasks(world)
        upload = world.store.uploads[job.files[0].upload_id]

        def fault(request: Any, apply: Any) -> Any:
            answer = apply(request)
            if isinstance(request, AbortUpload) and request.upload_id == job.files[0].upload_id:
                world.driver.fault = None
                world.store.uploads[request.upload_id] = upload
            return answer

        world.driver.fault = fault
        assert recover(world).outcome is JobOutcome.ROLLED_BACK
        world.assert_clean()

    def test_no_right_to_delete(self, world: World) -> None:
        job = halfway(world)

        def fault(request: Any, apply: Any) -> Any:
            if isinstance(request, DeleteMany):
                return Deleted({key: "AccessDenied" for key, _ in request.items})
            return apply(request)

        world.driver.fault = fault
        found = recover(world)
        assert "cannot be deleted: AccessDenied" in found.reason
        assert world.visible() == job.keys
        world.driver.fault = None
        assert recover(world).outcome is JobOutcome.ROLLED_FORWARD
        world.assert_clean()


class TestRecords:
    def test_a_run_learns_that_its_job_was_rolled_forward(self, world: World) -> None:
        halfway(world)
        world.driver.run(open_try(ROOT, a_try()))
        recover(world)
        (known,) = world.driver.run(open_tries(ROOT)).known
        assert known.record.recovered == (JOB,)

    def test_a_run_whose_job_was_rolled_back_is_forgotten(self, world: World) -> None:
        two_tasks(world)
        world.driver.run(open_try(ROOT, a_try()))
        recover(world)
        assert world.driver.run(open_tries(ROOT)).known == ()
        (known,) = world.driver.run(tries_of(ROOT, a_try().idempotency_key))
        assert known.record.state == FENCED  # What came of it, its run's next try says.
        assert world.store.keys() == [closed_key(ROOT, a_try().idempotency_key, JOB)]

    @pytest.mark.parametrize("forward", [True, False])
    def test_of_one_that_nobody_submitted_nothing_stays(self, world: World, forward: bool) -> None:
        """Nobody tries again: nobody asks what came of it."""
        (halfway if forward else two_tasks)(world)
        world.driver.run(open_try(ROOT, a_try(idempotency_key=JOB)))
        recover(world)
        assert not [key for key in world.store.objects if "s3a-runs" in key]

    def test_one_that_nobody_submitted_may_have_been_loaded_again(self, world: World) -> None:
        """By hand, or by a scheduler that says nothing of it."""
        halfway(world)
        world.put_marker(OTHER)
        world.driver.run(open_try(ROOT, a_try(idempotency_key=JOB)))
        assert recover(world).outcome is JobOutcome.NEEDS_DECISION

    def test_a_try_that_cannot_be_closed_stays_open(self, world: World) -> None:
        """Its jobs are settled, and its run's next try says what came of it."""
        two_tasks(world)
        world.driver.run(open_try(ROOT, a_try()))
        closed = closed_key(ROOT, a_try().idempotency_key, JOB)
        world.driver.fault = on(Put, Unknown("timeout"), closed)
        assert recover(world).outcome is JobOutcome.ROLLED_BACK
        assert len(world.driver.run(open_tries(ROOT)).known) == 1

    @pytest.mark.parametrize("alone", [True, False])
    def test_try_with_two_jobs_of_one_uuid_is_closed_when_both_are_settled(
        self, world: World, alone: bool
    ) -> None:
        """An application that writes two folders by df.write does so under one UUID."""
        record = a_try(idempotency_key=JOB) if alone else a_try()
        world.driver.run(open_try(ROOT, record))
        first = world.job(folder="day=1", write=OTHER)
        outside = first.task(0, ["hour=1"])[0].commit("another-bucket", JOB, "")
        first.pending_set(1, [outside])
        world.clock.advance(10)
        second = world.job(folder="day=2")
        second.running(0, "hour=1")
        options = RecoveryOptions(apply=True, dead={JOB}, folders=("day=1", "day=2"))
        found = world.driver.run(recover_jobs(ROOT, options))
        assert [it.outcome for it in found] == [JobOutcome.REFUSED, JobOutcome.ROLLED_BACK]
        assert len(world.driver.run(open_tries(ROOT)).known) == 1

    @pytest.mark.parametrize("number", range(4))
    def test_a_run_that_begins_while_jobs_are_looked_for(self, world: World, number: int) -> None:
        """It writes its record before its job leaves anything: who sees the job sees the record."""
        asked: list[Any] = []

        def fault(request: Any, apply: Any) -> Any:
            answer = apply(request)
            asked.append(request)
            if len(asked) == number + 1:
                world.driver.run(open_try(ROOT, a_try()))
                two_tasks(world)
            return answer

        world.driver.fault = fault
        found = world.driver.run(recover_jobs(ROOT, RecoveryOptions(apply=True, patience=0)))
        assert [job.state for job in found] in ([], [JobLiveness.LIVE])
        assert len(world.store.upload_keys()) == 4
        assert len(world.magic()) == 3

    def test_a_runs_numbered_writes(self, world: World) -> None:
        """One stays: so does the record."""
        two_tasks(world, uuid=f"{JOB[:-4]}0001")
        two_tasks(world, uuid=f"{JOB[:-4]}0002", write=OTHER)
        world.driver.run(open_try(ROOT, a_try()))
        world.clock.advance(7200)
        options = RecoveryOptions(apply=True, dead={JOB}, jobs={f"{JOB[:-4]}0001"})
        assert recover(world, options).outcome is JobOutcome.ROLLED_BACK
        assert len(world.driver.run(open_tries(ROOT)).known) == 1
        assert recover(world).outcome is JobOutcome.ROLLED_BACK
        assert world.driver.run(open_tries(ROOT)).known == ()


class TestResultOnRecord:
    """The process that recorded an attempt's result died before it closed the record."""

    def settled(self, world: World, **changes: Any) -> TryRecord:
        made = world.driver.run(open_try(ROOT, a_try(mode="append")))
        known = world.driver.run(find(ROOT, made.idempotency_key, made.uuid))
        assert known is not None
        closed = closed_key(ROOT, made.idempotency_key, made.uuid)
        dying = MemoryDriver(world.store, on(Put, Crash, closed))
        with pytest.raises(Crash):
            dying.run(settle_try(ROOT, known, writes=(), **changes))
        return replace(known.record, writes=(), **changes)

    @pytest.mark.parametrize("done", [0, 4])
    def test_stays_and_keeps_the_files_of_a_job_that_it_reports(
        self, world: World, done: int
    ) -> None:
        """Else a retry would load the rows again."""
        job = two_tasks(world)
        job.complete(*job.files)
        record = self.settled(world, state=COMMITTED, report={"job": JOB, "jobs": [JOB]})
        if not done:
            # Only an upload of a task attempt that lost is left.
            for key in world.magic():
                world.store.apply(Delete(key))
            job.upload(job.name(0))
        else:
            world.put_marker(OTHER)
        world.clock.advance(7200)
        found = recover(world, RecoveryOptions(apply=True, patience=600.0))
        assert found.outcome in (JobOutcome.ROLLED_FORWARD, JobOutcome.ROLLED_BACK)
        known = world.driver.run(find(ROOT, record.idempotency_key, record.uuid))
        assert known is not None
        assert known.record == record
        assert world.visible() == job.keys

    def test_job_of_an_undone_attempt_is_rolled_back(self, world: World) -> None:
        record = self.settled(world, state=UNDONE)
        halfway(world)
        world.clock.advance(7200)
        found = recover(world, RecoveryOptions(apply=True, patience=600.0))
        assert found.outcome is JobOutcome.ROLLED_BACK
        known = world.driver.run(find(ROOT, record.idempotency_key, record.uuid))
        assert known is not None
        assert known.record == record
        assert world.visible() == []


class TestFence:
    """An application that was silent for an hour, and wakes while its job is recovered."""

    SILENT = RecoveryOptions(apply=True, patience=1800)

    @pytest.fixture
    def job(self, world: World) -> MagicJob:
        world.driver.run(open_try(ROOT, a_try()))
        job = halfway(world)
        world.clock.advance(7200)
        return job

    def record(self, world: World) -> TryRecord:
        known = world.driver.run(find(ROOT, a_try().idempotency_key, JOB))
        assert known is not None
        return known.record

    def wake(self, world: World) -> None:
        """Its application sends a heartbeat."""
        beat = change(ROOT, a_try(), lambda found, now: replace(found, beat_at=now))
        MemoryDriver(world.store).run(beat)

    def test_recovery_fences_the_attempt_before_it_touches_the_job(
        self, world: World, job: MagicJob
    ) -> None:
        seen: list[str] = []

        def fault(request: Any, apply: Any) -> Any:
            if isinstance(request, CompleteUpload | AbortUpload | Delete | DeleteMany):
                seen.append(self.record(world).state)
            return apply(request)

        world.driver.fault = fault
        assert recover(world, self.SILENT).outcome is JobOutcome.ROLLED_FORWARD
        assert seen
        assert set(seen) == {FENCED}

    @pytest.mark.parametrize("kind", [Get, Put])
    def test_heartbeat_after_the_judgement_leaves_the_job_alone(
        self, world: World, job: MagicJob, kind: type
    ) -> None:
        """Before the record is read once more, and between that and the fence."""
        own, passed = open_key(ROOT, a_try().idempotency_key, JOB), iter((kind is Put,))

        def fault(request: Any, apply: Any) -> Any:
            if isinstance(request, kind) and request.key == own and next(passed, True):
                world.driver.fault = None
                self.wake(world)
            return apply(request)

        world.driver.fault = fault
        before = world.store.upload_keys(), world.magic(), world.visible()
        found = recover(world, self.SILENT)
        assert world.driver.fault is None
        assert found.outcome is JobOutcome.LEFT
        assert (world.store.upload_keys(), world.magic(), world.visible()) == before
        assert self.record(world).state == SUBMITTED

    def test_heartbeat_after_the_fence_leaves_the_job_to_its_application(
        self, world: World, job: MagicJob
    ) -> None:
        """Which has found the fence, and ends its write by itself."""
        meanwhile(world, Put, lambda _: self.wake(world), DIRECTION_NAME)
        before = world.store.upload_keys(), world.magic(), world.visible()
        found = recover(world, self.SILENT)
        assert found.outcome is JobOutcome.LEFT
        assert (world.store.upload_keys(), world.magic(), world.visible()) == before
        assert self.record(world).state == FENCED

    def test_job_that_goes_on_after_the_fence_gets_its_record_back(
        self, world: World, job: MagicJob
    ) -> None:
        """A task of it commits; its driver has not looked at the record yet."""
        meanwhile(world, Put, lambda _: job.task(3), DIRECTION_NAME)
        assert recover(world, self.SILENT).outcome is JobOutcome.LEFT
        assert self.record(world).state == SUBMITTED

    def test_task_that_commits_in_the_same_second_leaves_the_job_alone(self, world: World) -> None:
        """Rolled forward, the job would lose its rows."""
        world.driver.run(open_try(ROOT, a_try()))
        job = world.job()
        job.task(0)
        job.complete(job.files[0])
        meanwhile(world, Put, lambda _: job.task(3), DIRECTION_NAME)
        found = recover(world)
        assert found.outcome is JobOutcome.LEFT
        assert job.set_key(3) in world.store.objects

    def test_job_that_another_recovery_finishes_after_the_fence_stays_on_record(
        self, world: World, job: MagicJob
    ) -> None:
        """A retry of its run reads there that the rows are loaded."""
        second = MemoryDriver(world.store)
        own = open_key(ROOT, a_try().idempotency_key, JOB)
        found: list[RecoveredJob] = []

        def recover_too() -> None:
            found.extend(second.run(recover_jobs(ROOT, self.SILENT)))

        world.driver.fault = beside(Put, recover_too, own, applied=True, times=1)
        assert recover(world, self.SILENT).outcome is JobOutcome.LEFT
        assert [it.outcome for it in found] == [JobOutcome.ROLLED_FORWARD]
        assert self.record(world).recovered == (JOB,)
        assert self.record(world).state == FENCED
        assert world.visible() == job.keys

    def test_fence_stays_where_another_recovery_has_rolled_the_job_back(self, world: World) -> None:
        world.driver.run(open_try(ROOT, a_try()))
        two_tasks(world)
        world.clock.advance(7200)
        second = MemoryDriver(world.store)
        own = open_key(ROOT, a_try().idempotency_key, JOB)
        world.driver.fault = beside(
            Put, lambda: second.run(recover_jobs(ROOT, self.SILENT)), own, applied=True, times=1
        )
        assert recover(world, self.SILENT).outcome is JobOutcome.LEFT
        assert self.record(world).state == FENCED
        assert world.driver.run(open_tries(ROOT)).known == ()
        world.assert_clean()

    def test_fence_stays_where_another_recovery_has_begun_and_died(self, world: World) -> None:
        """Its application would publish what is left of its pending sets."""
        world.driver.run(open_try(ROOT, a_try()))
        two_tasks(world)
        world.clock.advance(7200)
        second = MemoryDriver(world.store)
        second.fault = on(DeleteMany, Crash, applied=True)
        own = open_key(ROOT, a_try().idempotency_key, JOB)

        def die() -> None:
            with pytest.raises(Crash):
                second.run(recover_jobs(ROOT, self.SILENT))

        world.driver.fault = beside(Put, die, own, applied=True, times=1)
        assert recover(world, self.SILENT).outcome is JobOutcome.LEFT
        assert self.record(world).state == FENCED

    def test_report_fences_nothing(self, world: World, job: MagicJob) -> None:
        recover(world, replace(self.SILENT, apply=False))
        assert changing(world)[1:] == []
        assert self.record(world).state == SUBMITTED

    def test_jobs_of_one_attempt_are_recovered_in_one_go(self, world: World) -> None:
        two_tasks(world, uuid=f"{JOB[:-4]}0001")
        two_tasks(world, uuid=f"{JOB[:-4]}0002", write=OTHER)
        world.driver.run(open_try(ROOT, a_try()))
        world.clock.advance(7200)
        found = world.driver.run(recover_jobs(ROOT, self.SILENT))
        assert [job.outcome for job in found] == [JobOutcome.ROLLED_BACK] * 2
        world.assert_clean()


def test_nothing_is_found_with_few_requests(world: World) -> None:
    assert world.driver.run(recover_jobs(ROOT)) == ()
    assert isinstance(world.driver, MemoryDriver)
    kinds = world.driver.counts()
    assert kinds == {"ListUploads": 2, "ListObjects": 2}
    assert not any(isinstance(request, Head) for request in world.driver.requests)


class TestDoubt:
    """Where the store alone could mislead."""

    def test_a_whole_job_whose_run_has_loaded_again(self, world: World) -> None:
        """It may be the very job that the run's success stands for, its clean-up undone."""
        job = two_tasks(world)
        job.complete(*job.files)
        world.put_marker(OTHER)
        world.driver.run(open_try(ROOT, a_try()))
        world.clock.advance(7200)
        options = RecoveryOptions(apply=True, ask=lambda _: JobLiveness.SUPERSEDED)
        found = recover(world, options)
        assert (found.state, found.outcome) == (JobLiveness.SUPERSEDED, JobOutcome.NEEDS_DECISION)
        assert world.visible() == job.keys

    def test_a_known_run_some_of_whose_files_went_after_a_later_commit(self, world: World) -> None:
        job = two_tasks(world)
        job.complete(*job.files)
        world.put_marker(OTHER)
        world.store.apply(Delete(job.keys[0]))
        world.driver.run(open_try(ROOT, a_try()))
        assert recover(world).outcome is JobOutcome.NEEDS_DECISION
        assert world.visible() == job.keys[1:]

    def test_a_recovery_that_was_interrupted_before_a_later_commit(self, world: World) -> None:
        """It had published the job; a file that went since takes the others along only if asked."""
        job = halfway(world)
        with dying_at(world, DeleteMany):
            recover(world)
        world.put_marker(OTHER)
        world.store.apply(Delete(job.keys[0]))
        assert recover(world).outcome is JobOutcome.NEEDS_DECISION
        assert world.visible() == job.keys[1:]
        assert recover(world, ROLL_BACK).removed == 3
        world.assert_clean()

    @pytest.mark.parametrize("lost", [True, False])
    def test_a_marker_of_an_earlier_write_under_the_same_uuid(
        self, world: World, lost: bool
    ) -> None:
        world.put_marker(JOB)
        world.clock.advance(5)
        job = two_tasks(world)
        if lost:
            job.complete(*job.files[1:])
            world.store.apply(AbortUpload(job.files[0].key, job.files[0].upload_id))
        assert recover(world).outcome is JobOutcome.ROLLED_BACK
        assert world.visible() == []

    def test_a_later_write_under_the_same_uuid_committed_first(self, world: World) -> None:
        two_tasks(world)
        world.put_marker(JOB)
        assert recover(world).outcome is JobOutcome.ROLLED_BACK

    def test_an_older_object_of_the_same_size_where_etags_are_no_checksums(
        self, world: World
    ) -> None:
        job = world.job()
        made = job.upload("day=1/x.parquet")
        objects = world.store.objects
        world.store.apply(Put(made.key, b"y" * len(made.body)))
        objects[made.key] = type(objects[made.key])(b"y" * len(made.body), "k-2", world.clock())
        world.clock.advance(5)
        commit = made.commit("bucket", JOB, "", etags=["kms/1", "kms/2"])
        job.pending_set(0, [commit])
        world.store.apply(AbortUpload(made.key, made.upload_id))
        found = recover(world)
        assert (found.outcome, found.kept) == (JobOutcome.ROLLED_BACK, (made.key,))
        assert made.key in objects

    def test_an_upload_that_two_jobs_claim_is_neithers(self, world: World) -> None:
        two_tasks(world)
        two_tasks(world, uuid=OTHER)
        job = MagicJob(world.store.apply)
        stray = job.upload(job.name(9))
        found = world.driver.run(recover_jobs(ROOT, DEAD))
        assert [(one.job, one.outcome) for one in found if one.left == "uploads"] == [
            (job.write, JobOutcome.LEFT)
        ]
        assert stray.key in world.store.upload_keys()


def test_a_job_of_many_files_takes_little_memory(world: World) -> None:
    """Of each file there is kept what is needed to complete its upload, once."""
    job, files = world.job(), 4000
    for task in range(40):
        job.task(task, [f"day={n}" for n in range(files // 40)])
    # What repeats is interned now: whether Python's own table has to grow is not asked.
    known = world.driver.run(find_jobs(ROOT))
    tracemalloc.start()
    try:
        found = world.driver.run(find_jobs(ROOT))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == known
    jobs, _ = found
    assert len(jobs[0].commits) == files
    assert peak / files < 1300, "bytes a file, those of its listed upload among them"
