"""Every committer times append, overwrite and fail, as the settings object configures it."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pyspark.errors import AnalysisException

from support.hadoop_committers import COMMITTERS, Application, Place, numbers
from support.recorded import check_recorded
from zero_rename.committer.format.records.success_marker import SuccessMarker
from zero_rename.s3a.hadoop.settings import Committer

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.of_the_jars]
every = pytest.mark.parametrize("committer", COMMITTERS)


def check_marker(place: Place, committer: Committer) -> None:
    marker = SuccessMarker.parse(place.body("_SUCCESS"), "_SUCCESS")
    assert marker.committer == committer.value
    written = {name.removeprefix(f"/{place.prefix}/") for name in marker.filenames}
    assert written
    assert written <= set(place.files())


def check_clean(place: Place) -> None:
    """Nothing but data, the marker and directory markers."""
    assert place.uploads() == []
    left = set(place.objects()) - set(place.files()) - {"_SUCCESS"}
    assert all(key == "" or key.endswith("/") for key in left), left
    assert not any("__magic" in key or "_temporary" in key for key in left)


@every
class TestModes:
    def test_append_adds(self, application: Application, place: Place, committer: Committer):
        # S3A conformance 17, 18, 19, 20, 24, 25, 26, 27, 39
        with application.with_committer(committer):
            application.write(place, application.frame(0))
            first = set(place.files())
            application.write(place, application.frame(100))
        assert application.rows(place) == numbers(range(40), range(100, 140))
        assert first < set(place.files())
        check_marker(place, committer)
        if committer.is_staging:
            staging = application.spark.conf.get("spark.hadoop.fs.s3a.committer.staging.tmp.path")
            folders = Path(urlsplit(staging).path).glob(f"*/{place.marker()['jobId']}")
            assert list(folders) == []
        check_recorded(f"{committer}.success", place.body("_SUCCESS"))
        check_clean(place)

    def test_overwrite_leaves_only_the_new_rows(
        self, application: Application, place: Place, committer: Committer
    ):
        with application.with_committer(committer):
            application.write(place, application.frame(0, days=3))
            application.write(place, application.frame(100), mode="overwrite")
        assert application.rows(place) == numbers(range(100, 140))
        check_marker(place, committer)
        check_clean(place)

    def test_fail_refuses_what_is_there(
        self, application: Application, place: Place, committer: Committer
    ):
        with application.with_committer(committer):
            application.write(place, application.frame(0), mode="errorifexists")
            before = place.objects()
            with pytest.raises(AnalysisException, match="PATH_ALREADY_EXISTS"):
                application.write(place, application.frame(100), mode="errorifexists")
        assert place.objects() == before
        assert application.rows(place) == numbers(range(40))
        check_marker(place, committer)

    def test_without_partitions(self, application: Application, place: Place, committer: Committer):
        # S3A conformance 17, 29
        frame = application.spark.range(0, 10, 1, 2)
        with application.with_committer(committer):
            application.write(place, frame, partition_by=())
        assert application.spark.read.parquet(place.url).count() == 10
        check_marker(place, committer)
        check_clean(place)
