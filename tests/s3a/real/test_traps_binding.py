"""Half-configured committers: what happens where the checks of binding are passed over."""

from __future__ import annotations

import pytest

from support.hadoop_committers import RENAMING, Application, Place, numbers
from zero_rename.committer.errors import VerificationError
from zero_rename.s3a.hadoop.settings import SQL_PROTOCOL

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.of_the_jars]
shows = pytest.mark.shows
S3A = pytest.mark.parametrize("committer", ["magic", "directory", "partitioned"])

PROTOCOL = "spark.sql.sources.commitProtocolClass"
PARQUET = "spark.sql.parquet.output.committer.class"
NO_TRIPWIRES = {
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
    "pathoutputcommit.reject.fileoutput": "false",
}


def objection(place: Place, committer: str, since_ms: int) -> str:
    with pytest.raises(VerificationError) as caught:
        place.verify(committer, None, since_ms)
    return str(caught.value)


@shows("committer-name")
def test_a_setting_of_the_application_runs_another_committer(
    application: Application, place: Place
) -> None:
    # S3A conformance 12
    since = place.now_ms()
    with application.with_committer("magic", {"fs.s3a.committer.name": "directory"}):
        application.write(place, application.frame(0))
    assert place.marker()["committer"] == "directory"
    assert "'directory' ran, and 'magic' was asked for" in objection(place, "magic", since)


@S3A
@shows("commit-protocol-missing")
def test_parquet_is_renamed_without_a_word(
    application: Application, place: Place, committer: str
) -> None:
    since = place.now_ms()
    half = {name: RENAMING[name] for name in (PROTOCOL, PARQUET)} | NO_TRIPWIRES
    with application.with_committer(committer, half):
        application.write(place, application.frame(0))
    assert place.body("_SUCCESS") == b""
    assert "classic rename committer ran" in objection(place, committer, since)


@S3A
@shows("commit-protocol-missing")
@pytest.mark.parametrize("format", ["csv", "orc"])
def test_other_formats_go_past_the_committer(
    application: Application, place: Place, committer: str, format: str
) -> None:
    since = place.now_ms()
    frame = application.frame(0, rows=60, files=3)
    with application.with_committer(committer, {PROTOCOL: SQL_PROTOCOL}):
        application.write(place, frame, format=format)
        assert place.marker()["filenames"] == []
        assert "Tasks wrote directly into the table" in objection(place, committer, since)
        before = set(place.files())
        with pytest.raises(Exception, match="row 50"):
            application.write(place, application.failing(frame, 50), format=format)
    assert set(place.files()) > before, "a failed job leaves files of its tasks"


@S3A
@pytest.mark.parametrize("format", ["csv", "orc", "json"])
def test_other_formats_are_committed_as_configured(
    application: Application, place: Place, committer: str, format: str
) -> None:
    # S3A conformance 29
    since = place.now_ms()
    frame = application.frame(0, rows=60, files=3)
    with application.with_committer(committer):
        with pytest.raises(Exception, match="row 50"):
            application.write(place, application.failing(frame, 50), format=format)
        assert place.files() == []
        application.write(place, frame, format=format)
    assert place.verify(committer, None, since).files == 6


@shows("factory-overridden")
def test_another_factory_wins(application: Application, place: Place) -> None:
    # S3A conformance 11, 109
    since = place.now_ms()
    package = "org.apache.hadoop.mapreduce.lib.output"
    key = "mapreduce.outputcommitter.factory.class"
    renames = {key: f"{package}.FileOutputCommitterFactory"} | NO_TRIPWIRES
    with application.with_committer("magic", renames):
        application.write(place, application.frame(0))
    assert "classic rename committer ran" in objection(place, "magic", since)
    manifest = {key: f"{package}.committer.manifest.ManifestCommitterFactory"}
    with application.with_committer("magic", manifest), pytest.raises(Exception, match="s3a"):
        application.write(place, application.frame(100))


@shows("magic-disabled")
def test_magic_without_its_paths(application: Application, own_place: Place) -> None:
    # S3A conformance 14
    with (
        application.with_committer("magic", {"fs.s3a.committer.magic.enabled": "false"}),
        pytest.raises(Exception, match=r"PathCommitException|magic"),
    ):
        application.write(own_place, application.frame(0))
    assert own_place.files() == []


@shows("tripwire-off")
def test_the_rdd_api_goes_round_the_committer(application: Application, place: Place) -> None:
    since = place.now_ms()
    context = application.spark.sparkContext
    hadoop = context._jsc.hadoopConfiguration()
    algorithm = "mapreduce.fileoutputcommitter.algorithm.version"
    before = hadoop.get(algorithm)
    try:
        hadoop.set(algorithm, "1")
        context._jsc.parallelize(application.spark._jvm.java.util.ArrayList()).saveAsTextFile(
            place.url
        )
        assert "classic rename committer ran" in objection(place, "magic", since)
        hadoop.set(algorithm, "10")
        with pytest.raises(Exception, match="Only 1 or 2 algorithm version is supported"):
            context._jsc.parallelize(application.spark._jvm.java.util.ArrayList()).saveAsTextFile(
                place.below("more").url
            )
    finally:
        hadoop.set(algorithm, before)


@shows("marker-off")
@S3A
def test_without_markers_the_old_one_stays(
    application: Application, place: Place, committer: str
) -> None:
    # S3A conformance 21
    off = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}
    with application.with_committer(committer):
        application.write(place, application.frame(0))
    old = place.marker()["jobId"]
    with application.with_committer(committer, off):
        application.write(place, application.frame(100))
    assert place.marker()["jobId"] == old, "yesterday's, beside today's files"
    assert application.rows(place) == numbers(range(40), range(100, 140))
    fresh = place.below("day=1")
    with application.with_committer(committer, off):
        application.write(fresh, application.frame(200).drop("day"), partition_by=())
    assert "left no _SUCCESS marker" in objection(fresh, committer, 0)


@pytest.mark.parametrize(("folder", "partition_by"), [("", ()), ("/reports", ("day",))])
def test_reports_among_the_tables_files(
    application: Application, place: Place, folder: str, partition_by: tuple[str, ...]
) -> None:
    inside = {"fs.s3a.committer.summary.report.directory": f"{place.url}{folder}"}
    with application.with_committer("magic", inside):
        application.write(place, application.frame(0), partition_by=partition_by)
    assert [key for key in place.objects() if "summary-" in key]
    with pytest.raises(Exception, match=r"(?i)not a parquet file|conflicting|FAILED_READ"):
        application.spark.read.parquet(place.url).agg({"id": "sum"}).collect()


def test_a_failed_append_leaves_yesterdays_marker(application: Application, place: Place) -> None:
    """By a committer that renames: a job that ran it is not taken for one that committed."""
    with application.set(RENAMING):
        application.write(place, application.frame(0))
        since = place.later_ms()
        with pytest.raises(Exception, match="row 110"):
            application.write(place, application.failing(application.frame(100), 110))
    assert place.has("_SUCCESS")
    assert "older than this job" in objection(place, "magic", since)
