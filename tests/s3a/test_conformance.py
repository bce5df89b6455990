"""What Hadoop's own tests ask of a committer, asked of what checks, reads, verifies and recovers
the jobs of Hadoop's. ``docs/conformance.md`` lists the items and the other tests that ask them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from support.faults import on
from support.recorded import recorded
from support.s3a_jobs import JOB, OTHER, ROOT, MagicJob, World
from zero_rename.committer import SettingsRefusedError
from zero_rename.committer.errors import RecordDamagedError, VerificationError
from zero_rename.committer.store.requests import (
    AbortUpload,
    CompleteUpload,
    CreateUpload,
    Delete,
    DeleteMany,
    Get,
    Head,
    ListObjects,
    ListUploads,
    Put,
    Refused,
    UploadPart,
)
from zero_rename.s3a.checks import JobFacts, inspect, refuse
from zero_rename.s3a.hadoop import job_traces as layout
from zero_rename.s3a.hadoop.commit_files import JobSummary, PendingSet
from zero_rename.s3a.hadoop.effective_settings import DAG_CONF, effective
from zero_rename.s3a.hadoop.settings import (
    MARKER_KEY,
    PARTITION_OVERWRITE_KEY,
    Committer,
    S3ASettings,
)
from zero_rename.s3a.recovery.liveness import Action, JobLiveness, RecoveryOptions
from zero_rename.s3a.recovery.recover import JobOutcome, RecoveredJob, recover_jobs
from zero_rename.s3a.verification.verify import Expectation, Verified, verify_job

HADOOP = "spark.hadoop."
S3A = f"{HADOOP}fs.s3a."
COMMITTER = f"{S3A}committer."
FACTORY = f"{HADOOP}mapreduce.outputcommitter.factory."
FORWARD = RecoveryOptions(apply=True, dead={JOB})
BACK = RecoveryOptions(apply=True, dead={JOB}, direction=Action.BACK)
MARKER = f"{ROOT.prefix}/_SUCCESS"


class TestChecks:
    """Wrong combinations are refused, or warned of, before anything is submitted."""

    def facts(self, committer: str, conf: dict[str, str]) -> JobFacts:
        rendered = S3ASettings(Committer(committer)).spark_conf()
        settings = effective([(DAG_CONF, conf), ("settings", rendered)], "bucket")
        return JobFacts(committer, settings, "s3a://bucket/table")

    @pytest.mark.parametrize(
        ("committer", "conf", "check"),
        [
            # S3A conformance 11
            ("magic", {f"{FACTORY}scheme.s3a": "a.b.OtherFactory"}, "factory-overridden"),
            ("magic", {f"{FACTORY}class": "a.b.OtherFactory"}, "factory-overridden"),
            # S3A conformance 12
            ("magic", {f"{COMMITTER}name": "no-such-committer"}, "committer-name"),
            ("magic", {f"{COMMITTER}name": ""}, "committer-name"),
            ("directory", {f"{COMMITTER}name": "file"}, "committer-name"),
            # S3A conformance 14
            ("magic", {f"{COMMITTER}magic.enabled": "false"}, "magic-disabled"),
            # S3A conformance 21
            ("magic", {f"{HADOOP}{MARKER_KEY}": "false"}, "marker-off"),
            # S3A conformance 105
            ("magic", {f"{S3A}multipart.purge": "true"}, "multipart-purge"),
            # S3A conformance 108
            ("partitioned", {PARTITION_OVERWRITE_KEY: "dynamic"}, "dynamic-partition-overwrite"),
        ],
    )
    def test_refused(self, committer: str, conf: dict[str, str], check: str) -> None:
        with pytest.raises(SettingsRefusedError, match=check):
            refuse(inspect(self.facts(committer, conf)))
        assert check not in [finding.check.id for finding in inspect(self.facts(committer, {}))]

    def test_warned_of(self) -> None:
        """S3A conformance 78."""
        conf = {f"{COMMITTER}abort.pending.uploads": "true"}
        found = inspect(self.facts("directory", conf))
        assert "abort-uploads-on" in [finding.check.id for finding in found]
        refuse(found)


class TestPendingRecords:
    """On records of Hadoop 3.5.0, each changed in one member."""

    def pending_set(self, **changes: Any) -> bytes:
        return json.dumps(json.loads(recorded("magic.pendingset")) | changes).encode()

    def commits(self) -> list[dict[str, Any]]:
        return json.loads(recorded("magic.pendingset"))["commits"]

    def test_both_forms_of_etags_in_one_set(self) -> None:
        """S3A conformance 34."""
        first, second = self.commits()
        plain = [etag["etag"] for etag in second["etags"]]
        new = PendingSet.parse(self.pending_set(), "k")
        mixed = PendingSet.parse(
            self.pending_set(version=2, commits=[first, second | {"etags": plain}]), "k"
        )
        assert [c.etags for c in mixed.commits] == [c.etags for c in new.commits]
        assert all(etag and '"' not in etag for c in mixed.commits for etag in c.etags)

    @pytest.mark.parametrize("etag", ["", '""', '"', None, {"etag": ""}, {"etag": None}, {}, []])
    def test_an_empty_etag(self, etag: Any) -> None:
        """S3A conformance 54."""
        first, second = self.commits()
        with pytest.raises(RecordDamagedError) as caught:
            PendingSet.parse(
                self.pending_set(commits=[first | {"etags": ["5d41", etag]}, second]), "k"
            )
        assert (caught.value.field or "").startswith("commits[0].etags[1]")

    @pytest.mark.parametrize("version", [0, 1, 4, -1, "2", 2.5, True, None])
    def test_a_version_that_is_not_ours(self, version: Any) -> None:
        """S3A conformance 54."""
        with pytest.raises(RecordDamagedError) as caught:
            PendingSet.parse(self.pending_set(version=version), "k")
        assert caught.value.field == "version"

    def test_a_version_within_a_set_that_is_not_ours(self) -> None:
        """S3A conformance 54, 58."""
        first, second = self.commits()
        with pytest.raises(RecordDamagedError) as caught:
            PendingSet.parse(self.pending_set(commits=[first, second | {"version": 1}]), "k")
        assert caught.value.field == "commits[1].version"

    def test_one_destination_for_two_uploads(self) -> None:
        """S3A conformance 54, 58."""
        first, second = self.commits()
        double = second | {"destinationKey": first["destinationKey"], "uploadId": "another"}
        with pytest.raises(RecordDamagedError) as caught:
            PendingSet.parse(self.pending_set(commits=[first, double]), "k")
        assert first["destinationKey"] in str(caught.value)

    @pytest.mark.parametrize("body", [b"", b"[]", b"null", b"{", b"\xff\xfe", b'{"version": 2}'])
    def test_what_is_no_record(self, body: bytes) -> None:
        """S3A conformance 54."""
        with pytest.raises(RecordDamagedError):
            PendingSet.parse(body, "k")


class TestPaths:
    """Where a file of the magic committer appears, by the path it is written to."""

    @pytest.mark.parametrize(
        ("path", "final"),
        [
            # S3A conformance 81
            ("wh/t/__magic_job-{job}/job-{job}/00/tasks/a/__base/x/y.pending", "wh/t/x/y"),
            ("wh/t/__magic_job-{job}/job-{job}/00/tasks/a/x/y.pending", "wh/t/y"),
            ("t/__magic_job-{job}/job-{job}/00/tasks/a/__base/y.pending", "t/y"),
            # S3A conformance 82: a base above the marker is a folder like any other.
            ("wh/__base/t/__magic_job-{job}/job-{job}/00/tasks/a/b/y.pending", "wh/__base/t/y"),
            (
                "wh/__base/t/__magic_job-{job}/job-{job}/00/tasks/a/__base/b/y.pending",
                "wh/__base/t/b/y",
            ),
            # The last one below it counts.
            ("t/__magic_job-{job}/job-{job}/00/tasks/a/__base/__base/y.pending", "t/y"),
            # And with nothing below it there is no file.
            ("t/__magic_job-{job}/job-{job}/00/tasks/a/__base/.pending", None),
            # S3A conformance 83
            ("t/__magic_job-{job}/job-{job}/00/tasks/a/__base/y.pendingset", None),
            ("t/__magic_job-{job}/job-{job}/00/task_1_m_000000.pendingset", None),
        ],
    )
    def test_final_key(self, path: str, final: str | None) -> None:
        parsed = layout.parse(path.format(job=JOB))
        assert parsed is not None
        assert parsed.final_key == final

    @pytest.mark.parametrize("path", ["t/__magic_job-{job}", "t/__magic", "t/x", "t/__base/x"])
    def test_a_marker_without_a_child_is_no_magic_path(self, path: str) -> None:
        """S3A conformance 82, 84."""
        assert layout.parse(path.format(job=JOB)) is None


class TestSuccess:
    """``_SUCCESS``, on one that Hadoop wrote."""

    document: dict[str, Any] = json.loads(recorded("directory.success"))

    def made(self, **changes: Any) -> bytes:
        return json.dumps(self.document | changes).encode()

    @pytest.mark.parametrize(
        "name", ["org.apache.hadoop.fs.s3a.commit.files.SuccessData/2", "SuccessData", "", None, 1]
    )
    def test_another_name(self, name: Any) -> None:
        """S3A conformance 19."""
        with pytest.raises(RecordDamagedError) as caught:
            JobSummary.parse(self.made(name=name), MARKER)
        assert (caught.value.field, caught.value.key) == ("name", MARKER)

    def test_members_nobody_knows(self) -> None:
        """S3A conformance 19."""
        unknown = {"later": {"nested": [1]}, "state": "x", "stage": None, "extraData": [None]}
        assert JobSummary.parse(self.made(**unknown), "k") == JobSummary.parse(self.made(), "k")

    @pytest.mark.parametrize("body", [b"", b"\0", b"{}", b"[]", b"{", b"\xff"])
    def test_what_is_none(self, body: bytes) -> None:
        """S3A conformance 19."""
        with pytest.raises(RecordDamagedError) as caught:
            JobSummary.parse(body, MARKER)
        assert caught.value.key == MARKER
        assert ("classic rename committer" in str(caught.value)) is (body == b"")

    @pytest.mark.parametrize(
        ("changes", "why"),
        [
            ({"name": "other/1"}, "not what an S3A committer writes"),
            ({"success": False}, "says that the job failed"),
            ({"jobId": ""}, "names no job"),
            ({"jobId": "another"}, "not of this one"),
        ],
    )
    def test_the_job_fails_by_such_a_one(
        self, world: World, changes: dict[str, Any], why: str
    ) -> None:
        """S3A conformance 19."""
        world.store.apply(Put(MARKER, self.made(**changes)))
        expected = Expectation("directory", self.document["jobId"], 0)
        with pytest.raises(VerificationError, match=why) as caught:
            world.driver.run(verify_job(ROOT, expected))
        assert caught.value.remedy


def test_a_chain_of_jobs_each_by_the_marker_of_the_one_before(world: World) -> None:
    """S3A conformance 93: the later job's marker is not taken for the earlier one's."""

    def verify(job: str, since: int) -> Verified:
        return world.driver.run(verify_job(ROOT, Expectation("magic", job, since)))

    for number in range(3):
        since, job = int(world.clock.now * 1000), f"{JOB[:-1]}{number}"
        written = world.job(uuid=job, write=job)
        written.task(0)
        written.complete(written.files[0])
        options = replace(FORWARD, dead={job})
        world.driver.run(recover_jobs(ROOT, options))
        found = verify(job, since)
        assert found.keys == tuple(written.keys)
        assert set(found.keys) <= set(world.visible())
        world.clock.advance(60)
        with pytest.raises(VerificationError, match="not of this one"):
            verify(f"{JOB[:-1]}{number + 1}", since)
        with pytest.raises(VerificationError, match="older than this job"):
            verify(job, int(world.clock.now * 1000))


class TestRecovery:
    """What is done for a driver that died."""

    def recover(self, world: World, options: RecoveryOptions = FORWARD) -> RecoveredJob:
        (found,) = world.driver.run(recover_jobs(ROOT, options))
        return found

    def job(self, world: World, tasks: int = 2) -> MagicJob:
        job = world.job()
        for task in range(tasks):
            job.task(task)
        world.clock.advance(10)
        return job

    @pytest.mark.parametrize("parts", [[b""], [b"x"], [b"x" * 1000] * 100])
    def test_files_of_every_size(self, world: World, parts: list[bytes]) -> None:
        """S3A conformance 31, 32, 94."""
        job = world.job()
        name = job.name(0)
        empty = parts == [b""]
        made = job.upload(name, parts)
        if empty:  # The stand-in writes a file's name into each part.
            created: Any = world.store.apply(CreateUpload(made.key))
            etag = job.perform(UploadPart(made.key, created.upload_id, 1, b"")).etag
            world.store.apply(AbortUpload(made.key, made.upload_id))
            made = replace(made, upload_id=created.upload_id, etags=[etag], body=b"")
        attempt = "attempt_202311142213_0001_m_000000_0"
        job.pending_set(0, [made.commit(ROOT.bucket, JOB, attempt)], attempt)
        job.task(1)
        job.complete(job.files[0])
        assert self.recover(world).outcome is JobOutcome.ROLLED_FORWARD
        assert world.store.objects[made.key].body == made.body
        world.assert_clean()

    def test_a_list_without_etags_is_no_empty_file(self, world: World) -> None:
        """S3A conformance 54, 58: no store completes it, so that no other is completed."""
        job = world.job()
        job.task(0, etags=[])
        job.task(1)
        world.clock.advance(10)
        found = self.recover(world)
        assert found.outcome is JobOutcome.ROLLED_BACK
        assert "names no part of its upload" in found.reason
        assert not [r for r in world.driver.requests if isinstance(r, CompleteUpload)]
        assert world.visible() == []
        world.assert_clean()

    def test_abort_again_finds_nothing(self, world: World) -> None:
        """S3A conformance 43, 45, 47, 60."""
        self.job(world)
        world.store.apply(Put(f"{ROOT.prefix}/day=1/another.parquet", b"x"))
        found = self.recover(world, BACK)
        assert (found.outcome, found.aborted) == (JobOutcome.ROLLED_BACK, 4)
        before = dict(world.store.objects)
        assert world.driver.run(recover_jobs(ROOT, BACK)) == ()
        assert world.store.objects == before
        assert MARKER not in before
        world.assert_clean()

    def test_abort_completes_nothing_and_keeps_what_others_committed(self, world: World) -> None:
        """S3A conformance 57, 77."""
        self.job(world)
        other = world.job(uuid=OTHER, write=OTHER)
        other.task(5)
        other.complete(*other.files)
        self.recover(world, replace(BACK, jobs=frozenset({JOB})))
        assert world.visible() == other.keys
        assert not [r for r in world.driver.requests if isinstance(r, CompleteUpload)]

    def test_an_upload_that_is_gone_meanwhile(self, world: World) -> None:
        """S3A conformance 60."""
        job = self.job(world)

        world.driver.fault = on(AbortUpload, Refused("NoSuchUpload"), applied=True)
        assert self.recover(world, BACK).outcome is JobOutcome.ROLLED_BACK
        assert world.visible() == []
        assert job.tree not in world.store.objects
        world.assert_clean()

    def test_a_tasks_set_costs_one_get(self, world: World) -> None:
        """S3A conformance 88."""
        job = self.job(world, tasks=5)
        world.driver.requests.clear()
        world.driver.run(recover_jobs(ROOT, RecoveryOptions()))
        sets = {job.set_key(task) for task in range(5)}
        read = [r.key for r in world.driver.requests if isinstance(r, Get) and r.key in sets]
        assert sorted(read) == sorted(sets)
        assert not [r for r in world.driver.requests if isinstance(r, Head) and r.key in sets]

    def test_to_complete_costs_the_completions_alone(self, world: World) -> None:
        """S3A conformance 89."""
        job = self.job(world, tasks=5)
        job.complete(job.files[0])
        world.driver.requests.clear()
        self.recover(world)
        asked = [r for r in world.driver.requests if isinstance(r, Head) and r.key in job.keys]
        assert [request.key for request in asked] == [job.files[0].key]
        at = [i for i, r in enumerate(world.driver.requests) if isinstance(r, CompleteUpload)]
        assert len(at) == 9
        between = world.driver.requests[at[0] : at[-1] + 1]
        costly = (ListObjects, ListUploads, Delete, DeleteMany)
        assert not [request for request in between if isinstance(request, costly)]

    @pytest.mark.parametrize("there", [b"", b"another's"])
    def test_an_object_that_took_a_files_place_is_kept(self, world: World, there: bytes) -> None:
        """S3A conformance 102, 103: an empty one, too, is somebody's."""
        job = self.job(world)
        job.complete(job.files[0])
        key = job.files[0].key

        def fault(request: Any, apply: Any) -> Any:
            if isinstance(request, Delete) and request.key == key:
                assert request.if_match, "never without the condition"
                world.driver.fault = None
                apply(Put(key, there))
            return apply(request)

        world.driver.fault = fault
        self.recover(world, BACK)
        assert world.driver.fault is None
        assert world.store.objects[key].body == there
        assert world.visible() == [key]

    @pytest.mark.parametrize("uploads", [0, 1, 3])
    def test_uploads_are_listed_and_aborted_by_age(self, world: World, uploads: int) -> None:
        """S3A conformance 104, 105."""
        job = MagicJob(world.store.apply)
        for task in range(uploads):
            job.upload(job.name(task))
        world.clock.advance(100)
        younger = MagicJob(world.store.apply, write=OTHER).upload("day=1/part-00000-b.parquet")
        world.clock.advance(50)
        old = RecoveryOptions(apply=True, force=True, patience=120.0)
        found = world.driver.run(recover_jobs(ROOT, old))
        assert sum(one.aborted for one in found) == uploads
        assert {one.state for one in found if not one.aborted} <= {JobLiveness.LIVE}
        assert world.store.upload_keys(ROOT.prefix) == [younger.key]
