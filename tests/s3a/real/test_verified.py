"""Verification of what the real committers left, and what other readers see of it."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyarrow.fs import S3FileSystem
from torture.servers import Store, serving

from support.hadoop_committers import COMMITTERS, Application, Place, numbers
from support.moto_server import ACCESS_KEY, SECRET_KEY
from zero_rename import Table
from zero_rename.committer.errors import VerificationError

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.thinned(committer=("magic", "partitioned")),
]
S3A = pytest.mark.parametrize("committer", ["magic", "directory", "partitioned"])
every = pytest.mark.parametrize("committer", COMMITTERS)


def by_pyarrow(store: Store, place: Place) -> list[tuple[int, int]]:
    """The rows as a reader sees them that knows nothing of Spark."""
    files = S3FileSystem(
        endpoint_override=store.endpoint,
        access_key=ACCESS_KEY,
        secret_key=SECRET_KEY,
        region="us-east-1",
    )
    path = f"{place.bucket}/{place.prefix}"
    table = ds.dataset(path, filesystem=files, partitioning="hive").to_table()
    rows = zip(table["id"].to_pylist(), table["day"].to_pylist(), strict=True)
    return sorted(rows)


@every
def test_pyarrow_reads_the_same_rows(
    application: Application, place: Place, committer: str
) -> None:
    # S3A conformance 17, 93
    since = place.now_ms()
    with application.with_committer(committer):
        application.write(place, application.frame(0))
        application.write(place, application.frame(100))
    expected = numbers(range(40), range(100, 140))
    assert application.rows(place) == expected
    assert by_pyarrow(application.store, place) == expected
    assert place.verify(committer, None, since).committer == committer


def test_spark_reads_a_native_table_through_s3a(native_application: Application) -> None:
    place = native_application.place()
    table = Table(place.root.url, client=place.client)
    for first in (0, 100):
        ids = list(range(first, first + 40))
        rows = pa.table({"id": ids, "day": pa.array([n % 2 + 1 for n in ids], pa.int32())})
        with table.job(rows.schema, mode="append", partition_by=["day"]) as job:
            job.write(rows)
    assert native_application.rows(place) == numbers(range(40), range(100, 140))
    assert by_pyarrow(native_application.store, place) == native_application.rows(place)


@pytest.mark.thinned(committer=("magic",))
@S3A
def test_over_a_hundred_files(application: Application, place: Place, committer: str) -> None:
    # S3A conformance 20, 29
    with application.with_committer(committer):
        application.write(place, application.frame(1000))
        since = place.later_ms()
        application.write(place, application.frame(0, rows=110, days=55, files=2))
    named = set(place.marker()["filenames"])
    assert len(named) == 100
    found = place.verify(committer, None, since)
    assert found.files == 110
    client, bucket = place.client, place.bucket
    listed = client.list_objects_v2(Bucket=bucket, Prefix=f"{place.prefix}/")["Contents"]
    assert {entry["Key"]: entry["Size"] for entry in listed}.items() >= dict(found.sizes).items()
    unnamed = next(key for key in found.keys if f"/{key}" not in named)
    client.delete_object(Bucket=bucket, Key=unnamed)
    with pytest.raises(VerificationError, match="committed 110 files, and 109"):
        place.verify(committer, None, since)


@pytest.mark.thinned(committer=("magic",))
@S3A
def test_one_partitions_folder_as_the_destination(
    application: Application, place: Place, committer: str
) -> None:
    since = place.now_ms()
    folder = place.below("day=3")
    frame = application.frame(0).drop("day")
    with application.with_committer(committer):
        application.write(folder, frame, partition_by=())
    assert folder.verify(committer, None, since).files == 2
    assert {day for _, day in application.rows(place)} == {3}


@S3A
def test_an_empty_frame(application: Application, place: Place, committer: str) -> None:
    # S3A conformance 30
    since = place.now_ms()
    with application.with_committer(committer):
        application.write(place, application.frame(0).where("id < 0"))
    assert place.verify(committer, None, since).files == 0


@pytest.mark.of_the_jars
@every
def test_smoke_on_moto(application: Application, committer: str) -> None:
    with serving("moto") as store:
        client = store.client()
        bucket = f"moto-{committer}"
        client.create_bucket(Bucket=bucket)
        place = replace(application.place(bucket), client=client)
        since = place.now_ms()
        through = {f"fs.s3a.bucket.{bucket}.endpoint": store.endpoint}
        with application.with_committer(committer, through):
            application.write(place, application.frame(0))
            assert application.rows(place) == numbers(range(40))
        assert place.verify(committer, None, since).committer == committer
        assert place.uploads() == []
