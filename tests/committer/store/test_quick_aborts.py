"""Aborts of uploads past botocore: the same requests, and the same answers."""

from __future__ import annotations

from typing import Any

import pytest

from support.faulty_server import FaultyServer, Reply, always, s3_error
from zero_rename.committer.errors import StoreRefusedError
from zero_rename.committer.store.clients import ANONYMOUS, client_at
from zero_rename.committer.store.driver import BotoDriver, connect
from zero_rename.committer.store.requests import AbortUpload, Done, Refused, Unknown

KEYS = ("t/day=1/part-0", "t/a b", "t/ä+%2F~(1)*'!=&?#;:@$,", "t//x/", "t/中\n", "t/\u00a0")
UPLOAD = "2~Ab+/=.-_ é"
GONE = Reply(204)


def driver_at(server: FaultyServer, **given: Any) -> BotoDriver:
    client = client_at(server.endpoint, "us-east-1", path_style=True, **given)
    by_botocore: list[str] = []
    driver = connect("bucket", client)
    events = driver.clients.client.meta.events
    events.register("before-call.s3.AbortMultipartUpload", lambda **_: by_botocore.append(""))
    driver.by_botocore = by_botocore  # pyrefly: ignore[missing-attribute]
    return driver


def calls(driver: Any) -> int:
    """How many of its requests went by botocore's own method."""
    return len(driver.by_botocore)


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "access")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "session")


def test_botocore_is_asked_once() -> None:
    with FaultyServer(always(GONE)) as server:
        driver = driver_at(server)
        for number in range(5):
            assert driver.run(AbortUpload(f"t/{number}", "u")) == Done()
    assert (calls(driver), len(server.received)) == (1, 5)
    assert len({received.port for received in server.received}) == 1
    assert {received.headers["user-agent"] for received in server.received} == {
        server.received[0].headers["user-agent"]
    }


@pytest.mark.parametrize("key", KEYS)
def test_it_sends_what_botocore_would(key: str) -> None:
    with FaultyServer(always(GONE)) as server:
        driver = driver_at(server)
        for _ in range(2):
            driver.run(AbortUpload(key, UPLOAD))
    assert calls(driver) == 1
    first, second = server.received
    assert (second.method, second.path) == (first.method, first.path)
    for name in ("host", "x-amz-content-sha256", "x-amz-security-token"):
        assert second.headers[name] == first.headers[name]
    (one, two) = (it.headers["authorization"].split("Signature=") for it in (first, second))
    assert one[0] == two[0]
    if first.headers["x-amz-date"] == second.headers["x-amz-date"]:
        assert one[1] == two[1]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [(s3_error(404, "NoSuchUpload"), Refused("NoSuchUpload")), (Reply(200), Done())],
)
def test_what_else_the_store_says_is_botocores_to_read(reply: Reply, expected: Any) -> None:
    replies = [GONE]
    with FaultyServer(lambda *_: replies.pop() if replies else reply) as server:
        driver = driver_at(server)
        assert driver.run(AbortUpload("t/1", "u")) == Done()
        assert driver.run(AbortUpload("t/2", "u")) == expected


def test_a_right_that_is_gone_meanwhile_is_told() -> None:
    replies = [GONE, GONE]
    refused = s3_error(403, "AccessDenied")
    with FaultyServer(lambda *_: replies.pop() if replies else refused) as server:
        driver = driver_at(server)
        driver.run(AbortUpload("t/1", "u"))
        driver.run(AbortUpload("t/2", "u"))
        with pytest.raises(StoreRefusedError, match="lack a right"):
            driver.run(AbortUpload("t/3", "u"))


@pytest.mark.parametrize("reply", [s3_error(503, "SlowDown"), Reply(0)])
def test_a_store_in_trouble_is_asked_again(reply: Reply) -> None:
    """Four times, as for any abort, and then nobody knows."""
    replies = [GONE, reply, reply, GONE]
    with FaultyServer(lambda *_: replies.pop(0) if replies else reply) as server:
        driver = driver_at(server)
        driver._sleep = lambda *_: None
        driver.run(AbortUpload("t/1", "u"))
        assert driver.run(AbortUpload("t/2", "u")) == Done()
        assert isinstance(driver.run(AbortUpload("t/3", "u")), Unknown)
    assert len(server.received) == 4 + 4
    assert calls(driver) == 1


def test_requests_that_nobody_signs_stay_botocores() -> None:
    with FaultyServer(always(GONE)) as server:
        driver = driver_at(server, keys=ANONYMOUS)
        for number in range(3):
            assert driver.run(AbortUpload(f"t/{number}", "u")) == Done()
    assert calls(driver) == 3
    assert not any("authorization" in received.headers for received in server.received)
