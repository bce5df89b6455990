"""Uploads under way below a path, by age; on a store in memory, whose clock is the test's."""

from __future__ import annotations

from typing import Any

import pytest

from support.s3a_jobs import MagicJob, World
from zero_rename.committer.errors import InvalidInputError
from zero_rename.committer.store.requests import AbortUpload, CreateUpload, Done
from zero_rename.committer.upkeep.upload_selection import UploadsPath
from zero_rename.s3a.outstanding_uploads import abort_outstanding, outstanding_uploads

PATH = UploadsPath.parse("s3://bucket/wh/flights")


@pytest.fixture
def world() -> World:
    """An upload two days old, and one an hour."""
    made = World()
    job = MagicJob(made.store.apply)
    job.upload(job.name(0))
    made.clock.advance(2 * 86400 - 3600)
    job.upload(job.name(1))
    made.clock.advance(3600)
    return made


@pytest.mark.parametrize(
    ("least", "count"), [(0, 2), (3600, 2), (3601, 1), (172800, 1), (172801, 0)]
)
def test_by_age_of_the_stores_clock(world: World, least: int, count: int) -> None:
    found = world.driver.run(outstanding_uploads(PATH, least))
    assert len(found) == count
    assert world.driver.run(abort_outstanding(PATH, found)) == 0
    assert len(world.store.uploads) == 2 - count


def test_those_of_zero_renames_own_jobs_are_not_among_them(world: World) -> None:
    world.store.apply(CreateUpload("wh/flights/part-0-zr1-0123456789ABCDEFGHJKMNPQRS.parquet"))
    assert len(world.driver.run(outstanding_uploads(PATH))) == 2


def test_one_that_stays_listed_is_told(world: World) -> None:
    def fault(request: Any, apply: Any) -> Any:
        return Done() if isinstance(request, AbortUpload) else apply(request)

    found = world.driver.run(outstanding_uploads(PATH))
    world.driver.fault = fault
    assert world.driver.run(abort_outstanding(PATH, found)) == 2


@pytest.mark.parametrize(
    ("url", "bucket", "prefix"),
    [
        ("s3://bucket", "bucket", ""),
        ("s3a://bucket/", "bucket", ""),
        ("s3n://bucket/a/b/", "bucket", "a/b/"),
    ],
)
def test_paths(url: str, bucket: str, prefix: str) -> None:
    assert UploadsPath.parse(url) == UploadsPath(bucket, prefix)


@pytest.mark.parametrize("url", ["bucket/a", "hdfs://nn/a", "s3:///a", "s3://bucket/a?b"])
def test_what_is_no_path(url: str) -> None:
    with pytest.raises(InvalidInputError, match="is no path on S3"):
        UploadsPath.parse(url)
