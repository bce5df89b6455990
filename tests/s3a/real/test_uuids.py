"""Which UUID a job gets, and what settings of one write override."""

from __future__ import annotations

import uuid

import pytest

from support.hadoop_committers import Application, Place, numbers
from zero_rename.committer.errors import VerificationError
from zero_rename.s3a.hadoop.settings import CONFLICT_KEY, UUID_KEY

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.of_the_jars]
S3A = pytest.mark.parametrize("committer", ["magic", "directory", "partitioned"])


@S3A
class TestUuid:
    def test_sparks_own(self, application: Application, place: Place, committer: str) -> None:
        # S3A conformance 2, 3, 19
        since = place.now_ms()
        with application.with_committer(committer):
            application.write(place, application.frame(0))
        marker = place.marker()
        assert marker["jobIdSource"] == "spark.sql.sources.writeJobUUID"
        assert place.verify(committer, None, since).uuid == marker["jobId"]
        with pytest.raises(VerificationError, match="not of this one"):
            place.verify(committer, str(uuid.uuid4()), since)

    def test_one_handed_in_wins(
        self, application: Application, place: Place, committer: str
    ) -> None:
        # S3A conformance 2, 3, 19
        job, since = str(uuid.uuid4()), place.now_ms()
        with application.with_committer(committer, uuid=job):
            application.write(place, application.frame(0))
        assert place.marker()["jobIdSource"] == UUID_KEY
        found = place.verify(committer, job, since)
        assert (found.uuid, found.files, found.warnings) == (job, 4, ())

    def test_two_writes_under_one_cannot_be_told_apart(
        self, application: Application, place: Place, committer: str
    ) -> None:
        job = str(uuid.uuid4())
        with application.with_committer(committer, uuid=job):
            application.write(place, application.frame(0))
            first = place.marker()
            application.write(place, application.frame(100))
        second = place.marker()
        assert first["jobId"] == second["jobId"] == job
        assert set(first["filenames"]).isdisjoint(second["filenames"])
        assert application.rows(place) == numbers(range(40), range(100, 140))

    def test_options_of_a_write_win_over_the_session(
        self, application: Application, place: Place, committer: str
    ) -> None:
        session, own = str(uuid.uuid4()), str(uuid.uuid4())
        with application.with_committer(committer, {CONFLICT_KEY: "append"}, uuid=session):
            application.write(place, application.frame(0))
            options = {UUID_KEY: own, CONFLICT_KEY: "replace"}
            frame = application.frame(100)
            frame.write.mode("append").partitionBy("day").options(**options).parquet(place.url)
            assert place.marker()["jobId"] == own
            application.write(place, application.frame(200))
            assert place.marker()["jobId"] == session
        replaced = [] if committer != "magic" else [range(40)]
        assert application.rows(place) == numbers(*replaced, range(100, 140), range(200, 240))
