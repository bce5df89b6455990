"""The two clients: what they send, how often, and how they are made."""

from __future__ import annotations

import base64
import hashlib
import os
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.exceptions import ClientError, ProfileNotFound

from support.faulty_server import FaultyServer, Reply, always, s3_error
from support.moto_server import S3Server
from zero_rename.committer.errors import InvalidInputError, StoreRefusedError, StoreUnreachableError
from zero_rename.committer.store.clients import (
    ANONYMOUS,
    Keys,
    S3Clients,
    client_at,
    making_clients,
)
from zero_rename.committer.store.driver import connect
from zero_rename.committer.store.requests import DeleteMany, Get, ListUploads, Put, UploadPart

WRITTEN = Reply(200, headers={"ETag": '"1"'})


def test_attempts_from_the_environment_do_not_bring_the_retries_back(
    at: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "7")
    with FaultyServer(always(s3_error(503, "SlowDown"))) as server:
        at(server.endpoint).perform(Put("key", b"x", if_none_match=True))
        assert len(server.received) == 1


def test_small_bodies_do_not_wait_for_continue(at: Any) -> None:
    with FaultyServer(always(WRITTEN)) as server:
        driver = at(server.endpoint)
        driver.perform(Put("key", b"x"))
        driver.perform(UploadPart("key", "upload", 1, b"x" * 1000))
        driver.perform(UploadPart("key", "upload", 2, b"x" * 2_000_000))
    expects = ["expect" in received.headers for received in server.received]
    assert expects == [False, False, True]


def test_parts_go_without_checksum_trailers(at: Any) -> None:
    """Ceph and older MinIO refuse the trailers that boto3 adds by default."""
    with FaultyServer(always(WRITTEN)) as server:
        at(server.endpoint).perform(UploadPart("key", "upload", 1, memoryview(b"abcdef")[2:4]))
    (received,) = server.received
    assert received.body == b"cd"
    assert not [name for name in received.headers if "trailer" in name or "crc" in name]
    assert received.headers["x-amz-content-sha256"] == hashlib.sha256(b"cd").hexdigest()


def test_if_match_goes_without_quotes(at: Any) -> None:
    """Ceph RGW refuses the quoted form; the others take both."""
    with FaultyServer(always(WRITTEN)) as server:
        at(server.endpoint).perform(Put("key", b"x", if_match="abc"))
    assert server.received[0].headers["if-match"] == "abc"


def test_delete_many_carries_an_md5(at: Any) -> None:
    """Stores older than the CRC checksums want it."""
    answer = Reply(200, b"<DeleteResult/>")
    with FaultyServer(always(answer)) as server:
        at(server.endpoint).perform(DeleteMany((("a&b", "etag"), ("c", None))))
    (received,) = server.received
    md5 = base64.b64encode(hashlib.md5(received.body).digest()).decode()
    assert received.headers["content-md5"] == md5
    assert b"<Key>a&amp;b</Key><ETag>etag</ETag>" in received.body


def test_endpoint_in_messages_has_no_password(at: Any) -> None:
    driver = at("http://user:password@127.0.0.1:9/")
    assert driver.clients.endpoint == "http://127.0.0.1:9"
    with pytest.raises(StoreUnreachableError) as raised:
        driver.perform(Get("key"))
    assert "password" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "value"), [("AWS_PROFILE", "nobody"), ("AWS_ENDPOINT_URL", "not a url")]
)
def test_an_environment_that_cannot_be_right_is_refused_by_name(
    name: str, value: str, s3_env: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(StoreRefusedError, match=name):
        connect("bucket")


def test_derived_clients_reach_what_the_own_client_reaches(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    client = s3_server.client()
    before = client.meta.config
    clients = S3Clients.derived_from(client)
    derived = clients.client
    assert derived.meta.endpoint_url == s3_server.endpoint
    assert derived.meta.region_name == client.meta.region_name
    assert derived._get_credentials() is client._get_credentials()
    assert derived.meta.config.request_checksum_calculation == "when_required"
    assert derived.meta.config.max_pool_connections >= clients.parallel
    assert derived.meta.config.retries["total_max_attempts"] == 1
    assert client.meta.config is before


@pytest.mark.parametrize(
    "endpoint", [None, "https://bucket.vpce-1a2b.s3.eu-west-3.vpce.amazonaws.com"]
)
def test_derived_clients_keep_settings_of_the_own_client(
    endpoint: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    config = Config(
        s3={"addressing_style": "path"},
        proxies={"https": "http://proxy"},
        read_timeout=7,
        retries={"total_max_attempts": 9, "mode": "adaptive"},
        max_pool_connections=50,
    )
    client = boto3.session.Session().client(
        "s3",
        region_name="eu-west-3",
        endpoint_url=endpoint,
        config=config,
        verify=False,
        aws_access_key_id="a",
        aws_secret_access_key="b",
    )
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    clients = S3Clients.derived_from(client)
    kept = clients.client.meta.config
    assert kept.s3 == {"addressing_style": "path"}
    assert kept.proxies == {"https": "http://proxy"}
    assert kept.read_timeout == 7
    assert kept.max_pool_connections == 50
    assert clients.client.meta.endpoint_url == client.meta.endpoint_url
    assert clients.client._endpoint.http_session._verify is False
    assert kept.retries["total_max_attempts"] == 1, "the driver repeats, and counts"


def test_connect_keeps_one_driver_per_bucket_and_environment(
    s3_env: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = S3Clients.from_environment().client
    assert connect("one", client).clients is connect("two", client).clients
    first = connect("one")
    assert connect("one") is first
    assert connect("two") is not first
    assert connect("two").clients is first.clients
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "another")
    assert connect("one") is not first


@pytest.mark.parametrize(
    ("owner", "name"), [("s3-mock-file-store", "s3-mock-file-store"), ("somebody", "")]
)
def test_a_store_without_the_header_is_known_by_what_it_owns(
    at: Any, owner: str, name: str
) -> None:
    """S3Mock; elsewhere the owner is a person."""
    listing = (
        "<ListMultipartUploadsResult><Upload><Key>key</Key><UploadId>1</UploadId>"
        f"<Owner><DisplayName>{owner}</DisplayName></Owner>"
        "<Initiated>2026-11-21T00:00:00.000Z</Initiated></Upload></ListMultipartUploadsResult>"
    )
    uploads = Reply(200, listing.encode(), {"Server": ""})
    answers = iter([uploads, Reply(200, headers={"ETag": '"1"', "Server": ""})])
    with FaultyServer(lambda *_: next(answers)) as server:
        driver = at(server.endpoint)
        driver.perform(ListUploads(""))
        assert driver.clients.server_name == name
        driver.perform(Put("key", b"x"))
        assert driver.clients.server_name == name, "by an earlier answer"


def test_the_server_is_known_by_its_last_answer(at: Any) -> None:
    with FaultyServer(always(WRITTEN)) as server:
        driver = at(server.endpoint)
        assert driver.clients.server_name == ""
        driver.perform(Put("key", b"x"))
        assert driver.clients.server_name.startswith("BaseHTTP")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ProfileNotFound(profile="none"), "ProfileNotFound: there is no profile 'none'"),
        (
            ClientError({"Error": {"Code": "AccessDenied", "Message": "SECRET"}}, "AssumeRole"),
            "Acc",
        ),
        (
            ValueError("Invalid endpoint: SECRET"),
            "endpoint does not begin with http:// or https://",
        ),
    ],
)
def test_errors_of_making_clients_are_refusals_without_secrets(
    error: Exception, words: str
) -> None:
    with pytest.raises(StoreRefusedError, match=words) as raised, making_clients():
        raise error
    assert "SECRET" not in str(raised.value)
    assert "AWS_PROFILE" in str(raised.value)


def test_our_own_errors_pass_where_clients_are_made() -> None:
    with pytest.raises(InvalidInputError), making_clients():
        raise InvalidInputError("not a table root")


@pytest.mark.usefixtures("s3_env")
def test_a_client_at_an_endpoint_keeps_the_standard_chain_otherwise() -> None:
    client = client_at("http://127.0.0.1:9", "eu-x")
    assert (client.meta.endpoint_url, client.meta.region_name) == ("http://127.0.0.1:9", "eu-x")
    with pytest.raises(StoreRefusedError):
        client_at("no endpoint", None)


@pytest.mark.usefixtures("s3_env")
def test_a_client_with_keys_of_its_own_shows_them_nowhere() -> None:
    keys = Keys("A-K", "S-K", "T-K")
    client = client_at("http://127.0.0.1:9", None, path_style=True, keys=keys)
    made = S3Clients.derived_from(client).client
    found = made._get_credentials()
    assert (found.access_key, found.secret_key, found.token) == ("A-K", "S-K", "T-K")
    assert made.meta.config.s3["addressing_style"] == "path"
    assert "-K" not in repr(keys)


def test_a_client_that_signs_nothing(s3_bucket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = s3_bucket.client.meta.endpoint_url
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    client = client_at(endpoint, "us-east-1", keys=ANONYMOUS)
    sent: list[Any] = []
    client.meta.events.register("before-send.s3", lambda request, **_: sent.append(request))
    client.list_objects_v2(Bucket=s3_bucket.name)
    assert "Authorization" not in sent[0].headers


def test_requests_of_a_session_of_s3_express_keep_its_signature(s3_env: Any) -> None:
    """They are signed with keys of the session, which the client's own cannot stand for."""
    clients = S3Clients.from_environment()
    clients.clock.ahead = 3600.0
    signed = {"Authorization": "AWS4-HMAC-SHA256 Credential=session", "x-amz-date": "then"}
    plain, express = (
        AWSRequest("GET", f"{clients.endpoint}/bucket/key", {**signed, **more})
        for more in ({}, {"x-amz-s3session-token": "t"})
    )
    for request in (plain, express):
        clients._sign(request)
    assert plain.headers["Authorization"] != signed["Authorization"]
    assert express.headers["Authorization"] == signed["Authorization"]
