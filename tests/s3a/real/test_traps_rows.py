"""Overwrites, conflict modes and uploads: rows that are lost or doubled where checks are passed
over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from torture.proxy import Proxy, Trap, When

from support.dead_drivers import completion
from support.hadoop_committers import COMMITTERS, RENAMING, Application, Place, numbers
from support.recorded import check_recorded
from zero_rename.committer.errors import VerificationError
from zero_rename.s3a.hadoop.commit_files import JobSummary
from zero_rename.s3a.hadoop.settings import ABORT_UPLOADS_KEY, BINDING_PARQUET, PATH_PROTOCOL

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.of_the_jars]
shows = pytest.mark.shows
S3A = pytest.mark.parametrize("committer", ["magic", "directory", "partitioned"])
EVERY = pytest.mark.parametrize("committer", COMMITTERS)
DYNAMIC = {"spark.sql.sources.partitionOverwriteMode": "dynamic"}
UUID = "0b1c2d3e-0000-4000-8000-00000000000a"
CONFLICT = "fs.s3a.committer.staging.conflict-mode"


class TestConflictModes:
    """Spark's append over partitions 1 and 2 of a table that has 1, 2 and 3."""

    def load(self, application: Application, place: Place, committer: str) -> None:
        with application.with_committer(committer):
            application.write(place, application.frame(0, rows=60, days=3))

    def test_partitioned_appends(self, application: Application, place: Place) -> None:
        # S3A conformance 71
        self.load(application, place, "partitioned")
        with application.with_committer("partitioned", conflict_mode="append"):
            application.write(place, application.frame(100))
        assert application.rows(place) == sorted(
            numbers(range(60), days=3) + numbers(range(100, 140))
        )

    def test_partitioned_replaces_what_it_writes(
        self, application: Application, place: Place
    ) -> None:
        # S3A conformance 69
        self.load(application, place, "partitioned")
        since = place.now_ms()
        with application.with_committer("partitioned", conflict_mode="replace"):
            application.write(place, application.frame(100))
        third = [row for row in numbers(range(60), days=3) if row[1] == 3]
        assert application.rows(place) == sorted(third + numbers(range(100, 140)))
        assert place.verify("partitioned", None, since).files == 4

    def test_partitioned_fails(self, application: Application, place: Place) -> None:
        # S3A conformance 70
        self.load(application, place, "partitioned")
        before = place.files()
        with (
            application.with_committer("partitioned", conflict_mode="fail"),
            pytest.raises(Exception, match=r"(?i)exist"),
        ):
            application.write(place, application.frame(100))
        assert place.files() == before
        assert place.uploads() == []
        with application.with_committer("partitioned", conflict_mode="fail"):
            fourth = application.frame(200, days=1).selectExpr("id", "4 as day")
            application.write(place, fourth)
        assert len(application.rows(place)) == 100

    def test_directory_fails_for_other_partitions_too(
        self, application: Application, place: Place
    ) -> None:
        # S3A conformance 67
        self.load(application, place, "directory")
        fourth = application.frame(200).selectExpr("id", "4 as day")
        with (
            application.with_committer("directory", conflict_mode="fail"),
            pytest.raises(Exception, match=r"(?i)exist"),
        ):
            application.write(place, fourth)
        assert len(application.rows(place)) == 60

    def test_directory_replaces_the_whole_table(
        self, application: Application, place: Place
    ) -> None:
        # S3A conformance 69
        self.load(application, place, "directory")
        with application.with_committer("directory", conflict_mode="replace"):
            application.write(place, application.frame(100))
        assert application.rows(place) == numbers(range(100, 140)), "day 3 is gone"


class TestOverwrites:
    @shows("overwrite-removes-table")
    @EVERY
    def test_it_removes_days_it_does_not_write(
        self, application: Application, place: Place, committer: str
    ) -> None:
        with application.with_committer(committer):
            application.write(place, application.frame(0, days=3))
            application.write(place, application.frame(100, days=1), mode="overwrite")
        assert {day for _, day in application.rows(place)} == {1}

    @shows("overwrite-removes-first")
    @EVERY
    def test_a_failed_one_leaves_nothing(
        self, application: Application, place: Place, committer: str
    ) -> None:
        with application.with_committer(committer):
            application.write(place, application.frame(0))
            bad = application.failing(application.frame(100), 110)
            with pytest.raises(Exception, match="row 110"):
                application.write(place, bad, mode="overwrite")
        assert place.files() == []

    @shows("dynamic-partition-overwrite")
    @S3A
    def test_dynamic_is_refused(
        self, application: Application, place: Place, committer: str
    ) -> None:
        # S3A conformance 108
        with application.with_committer(committer):
            application.write(place, application.frame(0))
        with (
            application.with_committer(committer, DYNAMIC),
            pytest.raises(Exception, match=r"(?i)dynamic"),
        ):
            application.write(place, application.frame(100), mode="overwrite")
        assert application.rows(place) == numbers(range(40))

    def test_dynamic_appends_with_the_binding_protocol(
        self, application: Application, place: Place
    ) -> None:
        """SPARK-56588."""
        bound = {
            "spark.sql.sources.commitProtocolClass": PATH_PROTOCOL,
            "spark.sql.parquet.output.committer.class": BINDING_PARQUET,
        }
        with application.set(RENAMING | bound | DYNAMIC):
            application.write(place, application.frame(0), mode="overwrite")
            application.write(place, application.frame(100), mode="overwrite")
        assert application.rows(place) == numbers(range(40), range(100, 140)), "not replaced"


class TestUploadsOfOthers:
    @pytest.fixture(autouse=True)
    def _store_that_lists_uploads(self, application: Application) -> None:
        if application.store.name == "minio":
            pytest.skip("MinIO lists no uploads by prefix: S3A finds none to abort there")

    @shows("abort-uploads-on")
    @S3A
    def test_a_job_aborts_what_others_have_not_committed(
        self, application: Application, place: Place, committer: str
    ) -> None:
        # S3A conformance 77, 78
        place.upload("day=9/another-job.parquet")
        with application.with_committer(committer):
            application.write(place, application.frame(0))
            assert len(place.uploads()) == 1, "off: left alone"
        with application.with_committer(committer, {ABORT_UPLOADS_KEY: "true"}):
            application.write(place, application.frame(100))
        assert place.uploads() == []

    @shows("multipart-purge")
    def test_a_file_system_purges_the_bucket(
        self, application: Application, own_place: Place
    ) -> None:
        own_place.upload("day=9/another-job.parquet")
        began = own_place.now_ms()
        while own_place.now_ms() < began + 4000:
            pass
        purge = {"fs.s3a.multipart.purge": "true", "fs.s3a.multipart.purge.age": "1"}
        with application.with_committer("directory", purge):
            application.write(replace(own_place, prefix="elsewhere"), application.frame(0))
        assert own_place.uploads() == []

    @shows("directory-purge")
    def test_deleting_a_folder_takes_uploads(
        self, application: Application, own_place: Place
    ) -> None:
        purge = {"fs.s3a.directory.operations.purge.uploads": "true"}
        with application.with_committer("magic", purge):
            application.write(own_place, application.frame(0))
            own_place.upload("day=1/another-job.parquet")
            application.write(own_place, application.frame(100), mode="overwrite")
        assert own_place.uploads() == []


class TestReports:
    def folder(self, place: Place) -> str:
        return f"s3a://{place.bucket}/reports-{place.prefix.replace('/', '-')}"

    def reports(self, place: Place) -> Sequence[tuple[str, bytes]]:
        prefix = self.folder(place).partition(f"{place.bucket}/")[2]
        there = replace(place, prefix=prefix)
        return [(key, there.body(key)) for key in there.objects() if "summary-" in key]

    def test_of_a_job_that_committed(self, application: Application, place: Place) -> None:
        # S3A conformance 107
        folder, since = self.folder(place), place.now_ms()
        with application.with_committer("magic", summary_report_dir=folder):
            application.write(place, application.frame(0))
        ((key, body),) = self.reports(place)
        job = JobSummary.parse(body, key).marker.job
        assert place.verify("magic", job, since, report_dir=folder).warnings == ()
        check_recorded("magic.summary", body)
        read = JobSummary.parse(body, key)
        assert (read.marker.success, read.stage, read.files) == (True, "cleanup", 4)

    def test_of_one_whose_uploads_were_aborted(
        self, application: Application, own_place: Place
    ) -> None:
        """As a lifecycle rule does: no store here carries one out within a test."""
        # S3A conformance 47, 107
        folder = self.folder(own_place)
        with Proxy(application.store.endpoint) as proxy:
            first = completion(0)
            proxy.watch(Trap(lambda _, seen: first(seen), When.BEFORE, own_place.abort_uploads))
            through = {f"fs.s3a.bucket.{own_place.bucket}.endpoint": proxy.endpoint}
            with (
                # One thread, or other files would be completed while this one's upload is aborted.
                application.with_committer(
                    "magic", through, uuid=UUID, summary_report_dir=folder, threads=1
                ),
                pytest.raises(Exception, match=r"(?i)upload|not found|404"),
            ):
                application.write(own_place, application.frame(0))
        assert own_place.files() == []
        ((key, body),) = self.reports(own_place)
        check_recorded("magic-failed.summary", body)
        read = JobSummary.parse(body, key)
        assert not read.marker.success
        assert (read.marker.job, read.stage) == (UUID, "commit")
        assert read.exception
        with pytest.raises(VerificationError, match="failed at stage 'commit'"):
            own_place.verify("magic", UUID, 0, report_dir=folder)
