"""Partitions elsewhere, a UUID that is shared, folders without room or without renames."""

from __future__ import annotations

from typing import Any

import pytest

from support.hadoop_committers import Application, Place

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.of_the_jars]
shows = pytest.mark.shows
S3A = pytest.mark.parametrize("committer", ["magic", "directory", "partitioned"])
STAGING = pytest.mark.parametrize("committer", ["directory", "partitioned"])


def causes(error: Any) -> str:
    """What the JVM threw, with all that caused it."""
    found, java = [], getattr(error, "java_exception", None)
    while java is not None:
        found.append(java.toString())
        java = java.getCause()
    return "\n".join(found) or str(error)


@S3A
def test_a_partition_outside_the_tables_folder(
    application: Application, place: Place, committer: str
) -> None:
    table, spark = place.prefix.rpartition("/")[2], application.spark
    columns = "(id BIGINT, day INT) USING parquet PARTITIONED BY (day)"
    spark.sql(f"CREATE TABLE {table} {columns} LOCATION '{place.url}'")
    try:
        spark.sql(f"ALTER TABLE {table} ADD PARTITION (day=1) LOCATION '{place.url}-elsewhere'")
        with application.with_committer(committer), pytest.raises(Exception) as caught:  # noqa: PT011
            application.frame(0).write.insertInto(table)
    finally:
        spark.sql(f"DROP TABLE {table}")
    assert "UnsupportedOperationException" in causes(caught.value)
    assert place.files() == []
    assert place.uploads() == []


@S3A
@shows("uuid-shared")
def test_markers_that_cannot_be_told_apart(
    application: Application, place: Place, committer: str
) -> None:
    uuid = "0b1c2d3e-0000-4000-8000-0000000000aa"
    first, second = place.below("first"), place.below("second")
    with application.with_committer(committer, uuid=uuid):
        application.write(first, application.frame(0))
        application.write(second, application.frame(100))
    assert first.marker()["jobId"] == second.marker()["jobId"] == uuid
    with application.with_committer(committer):
        application.write(second, application.frame(200))
    assert second.marker()["jobIdSource"] == "spark.sql.sources.writeJobUUID"
    assert second.marker()["jobId"] != uuid


@STAGING
@shows("staging-on-s3")
def test_lists_of_uploads_are_renamed_on_s3(
    application: Application, own_place: Place, committer: str
) -> None:
    on_s3 = {
        "fs.defaultFS": f"s3a://{own_place.bucket}",
        "fs.s3a.committer.staging.tmp.path": "/staging",
    }
    with application.with_committer(committer, on_s3):
        application.write(own_place, application.frame(0, files=3))
    assert own_place.marker()["metrics"]["object_copy_requests"] == 3, "one for each task"
