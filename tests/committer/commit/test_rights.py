"""A job that could be committed and not be finished does not begin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from support.faulty_server import FaultyServer, Received, Reply, s3_error
from zero_rename import JobSpec, Table
from zero_rename.committer import (
    StoreFullError,
    StoreRefusedError,
    StoreUnreachableError,
    UnsupportedTypeError,
)

DATA = pa.table({"value": [1, 2]})
DENIED: dict[str, Callable[[Received], bool]] = {
    "s3:DeleteObject (": lambda got: got.method == "DELETE" and "uploadId" not in got.path,
    "by DeleteObjects": lambda got: got.method == "POST" and got.path.endswith("?delete"),
    "s3:ListBucketMultipartUploads": lambda got: got.method == "GET" and "uploads" in got.path,
    "s3:AbortMultipartUpload": lambda got: got.method == "DELETE" and "uploadId" in got.path,
}


@pytest.fixture
def through(
    s3_bucket: Any, s3_env: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Table]]:
    """A table behind a server that refuses some requests."""
    servers: list[FaultyServer] = []

    def make(refused: Callable[[Received], bool], reply: Reply) -> Table:
        def answer(got: Received, pass_on: Callable[[], Reply]) -> Reply:
            return reply if refused(got) else pass_on()

        servers.append(FaultyServer(answer, s3_env.endpoint))
        monkeypatch.setenv("AWS_ENDPOINT_URL", servers[-1].__enter__().endpoint)
        return Table(f"s3://{s3_bucket.name}/flights")

    yield make
    for server in servers:
        server.__exit__()


@pytest.mark.parametrize("right", DENIED)
def test_a_right_that_is_missing_is_named_before_anything_is_written(
    right: str, through: Callable[..., Table], s3_bucket: Any
) -> None:
    table = through(DENIED[right], s3_error(403, "AccessDenied"))
    with pytest.raises(StoreRefusedError) as caught, table.job(DATA.schema) as job:
        job.write(DATA)
    assert right in str(caught.value)
    assert "Nothing was written" in str(caught.value)
    with pytest.raises(StoreRefusedError, match="s3:"):
        table.open_job(JobSpec(DATA.schema))
    assert s3_bucket.keys() == []


def test_they_are_asked_for_once(s3_bucket: Any) -> None:
    table = Table(f"s3://{s3_bucket.name}/flights")
    for _ in range(2):
        with table.job(DATA.schema) as job:
            job.write(DATA)
    asked = [key for _, key in s3_bucket.counter.log() if key.endswith("-rights")]
    assert len(asked) == 2, "a delete and an abort"


def test_what_cannot_be_right_is_refused_before_they_are_asked_for(s3_bucket: Any) -> None:
    table = Table(f"s3://{s3_bucket.name}/flights")
    with pytest.raises(UnsupportedTypeError):
        table.open_job(JobSpec(pa.schema([("a", pa.month_day_nano_interval())])))
    assert s3_bucket.counter.total() == 0


@pytest.mark.usefixtures("impatient")
def test_a_store_that_does_not_answer_is_not_one_that_refuses(
    through: Callable[..., Table], s3_bucket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = through(DENIED["s3:ListBucketMultipartUploads"], s3_error(503, "SlowDown"))
    with pytest.raises(StoreUnreachableError), table.job(DATA.schema) as job:
        job.write(DATA)
    assert s3_bucket.keys() == []


@pytest.mark.parametrize("code", ["QuotaExceeded", "XMinioStorageFull"])
def test_a_full_store_is_no_missing_right(
    code: str, through: Callable[..., Table], s3_bucket: Any
) -> None:
    status = 403 if code == "QuotaExceeded" else 507
    table = through(lambda got: got.method == "PUT", s3_error(status, code))
    with pytest.raises(StoreFullError, match="quota") as caught, table.job(DATA.schema) as job:
        job.write(DATA)
    assert "lack" not in str(caught.value)
    assert "purge" in str(caught.value)
