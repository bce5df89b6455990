"""What the servers that tests run on answer where they differ, as the driver understands it."""

from __future__ import annotations

import contextlib
import time
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError
from torture.servers import Store, of_server

from support.shared_servers import shared_server
from zero_rename.committer.commit.state.probe import probe
from zero_rename.committer.errors import StoreUnfitError
from zero_rename.committer.format.layout import TableRoot, new_write_id
from zero_rename.committer.store.clients import StoreClock
from zero_rename.committer.store.driver import BotoDriver, connect
from zero_rename.committer.store.requests import (
    AbortUpload,
    Absent,
    All,
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
    Unknown,
    UploadPart,
)


@pytest.fixture(scope="session", params=["s3mock", "ceph"])
def store(request: pytest.FixtureRequest) -> Store:
    return of_server(shared_server(request.config, request.param))


@pytest.fixture
def driver(store: Store) -> BotoDriver:
    client = store.client()
    bucket = f"answers-{uuid.uuid4().hex}"
    client.create_bucket(Bucket=bucket)
    return connect(bucket, client)


def test_an_upload_is_settled_once(driver: BotoDriver) -> None:
    """Whatever comes after the end of an upload finds none, or is in doubt; it changes nothing."""
    ask: Any = driver.perform
    aborted = ask(CreateUpload("p/one")).upload_id
    etag = ask(UploadPart("p/one", aborted, 1, b"abc")).etag
    assert isinstance(ask(AbortUpload("p/one", aborted)), Done)
    assert ask(AbortUpload("p/one", aborted)) == Refused("NoSuchUpload")
    late = ask(CompleteUpload("p/one", aborted, (etag,)))
    assert late in (Refused("NoSuchUpload"), Unknown("500 InternalError"))
    assert isinstance(ask(Head("p/one")), Absent)

    upload = ask(CreateUpload("p/two")).upload_id
    etag = ask(UploadPart("p/two", upload, 1, b"abc")).etag
    (listed,) = ask(ListUploads("p/")).uploads
    assert listed.upload_id == upload
    assert isinstance(ask(CompleteUpload("p/two", upload, (etag,))), Done)
    assert isinstance(ask(CompleteUpload("p/two", upload, (etag,))), Done), "while it is there"
    assert ask(AbortUpload("p/two", upload)) == Refused("NoSuchUpload")
    assert ask(Get("p/two")).body == b"abc"
    ask(Delete("p/two"))
    assert isinstance(ask(CompleteUpload("p/two", upload, (etag,))), Unknown)
    assert isinstance(ask(Head("p/two")), Absent), "not brought back"


def test_keys_of_any_characters_are_listed_and_aborted(driver: BotoDriver) -> None:
    """A key with a control character in clear makes the listing no XML. Ceph's answer to its
    creation is none either, and Ceph encodes keys without saying so."""
    ask: Any = driver.perform
    keys = ["p/a b+c%20", "p/\x01\x1b[31m", "p/\u00e9", "p/day=1/x"]
    for key in keys:
        with contextlib.suppress(ClientError):
            driver.clients.client.create_multipart_upload(Bucket=driver.bucket, Key=key)
    uploads = ask(ListUploads("p/")).uploads
    assert sorted({upload.key for upload in uploads}) == sorted(keys)
    for upload in uploads:
        assert isinstance(ask(AbortUpload(upload.key, upload.upload_id)), Done)
    assert ask(ListUploads("p/")).uploads == ()


def test_conditions_are_kept_where_nobody_races(driver: BotoDriver) -> None:
    ask: Any = driver.perform
    first = ask(Put("key", b"1", if_none_match=True))
    assert ask(Put("key", b"2", if_none_match=True)) == Refused("PreconditionFailed")
    assert isinstance(ask(Put("key", b"2", if_match=first.etag)), Done)
    assert ask(Put("key", b"3", if_match=first.etag)) == Refused("PreconditionFailed")
    assert ask(Get("key")).body == b"2"
    ask(Delete("key"))
    absent = ask(Put("key", b"3", if_match=first.etag))
    assert absent in (Refused("NoSuchKey"), Refused("PreconditionFailed"))


@pytest.mark.parametrize("off", [3600.0, -3600.0], ids=["ahead", "behind"])
def test_a_host_whose_clock_is_off_signs_by_the_stores(
    off: float, store: Store, driver: BotoDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ceph refuses what is dated 15 minutes off, and signatures that do not fit their date."""
    if not store.atomic:
        pytest.skip("S3Mock looks at neither")

    def now(remove_tzinfo: bool = True) -> datetime:
        found = datetime.fromtimestamp(time.time() + off, UTC)
        return found.replace(tzinfo=None) if remove_tzinfo else found

    monkeypatch.setattr("botocore.auth.get_current_datetime", now)
    clock = StoreClock(host=lambda: time.time() + off)
    wrong = BotoDriver(driver.bucket, replace(driver.clients, clock=clock))
    (first,) = wrong.run(All((Put("key", b"1", if_none_match=True),)))
    assert isinstance(first, Done)
    assert abs(clock.ahead + off) < 60
    assert isinstance(wrong.perform(Put("key", b"2 %", if_match=first.etag)), Done)
    upload = wrong.perform(CreateUpload("p/a b+c")).upload_id
    part = wrong.perform(UploadPart("p/a b+c", upload, 1, b"x" * 2_000_000))
    assert isinstance(part, Done)
    assert isinstance(wrong.perform(CompleteUpload("p/a b+c", upload, (part.etag,))), Done)
    assert [found.key for found in wrong.perform(ListObjects("p/a b")).objects] == ["p/a b+c"]
    assert wrong.perform(DeleteMany((("key", None),))) == Deleted()


def test_ceph_is_fit_for_writers_that_race(store: Store, driver: BotoDriver) -> None:
    if not store.atomic:
        pytest.skip("S3Mock is refused, see below")
    facts = driver.run(probe(TableRoot(driver.bucket, "table"), new_write_id))
    assert (facts.atomic, facts.conditional_put, facts.uploads_by_prefix) == (True, True, True)
    assert not facts.complete_resurrects
    assert driver.perform(ListUploads("")).uploads == ()


def test_s3mock_is_refused_since_its_abort_removes_objects(
    store: Store, driver: BotoDriver
) -> None:
    """Else the sweep after a killed attempt of a task would remove what its successor wrote."""
    if store.atomic:
        pytest.skip("Ceph keeps them, see above")
    ask: Any = driver.perform
    ask(Put("key", b"rows"))
    ask(AbortUpload("key", ask(CreateUpload("key")).upload_id))
    assert isinstance(ask(Head("key")), Absent), "mended: let tables be written there"
    root = TableRoot(driver.bucket, "table")
    with pytest.raises(StoreUnfitError, match=r"\(s3-mock-file-store\) aborting an upload"):
        driver.run(probe(root, new_write_id))
    assert ask(ListObjects("")).objects == ()
    assert ask(ListUploads("")).uploads == ()
