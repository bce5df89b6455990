"""Requests to a store that throttles, fails, is silent or is away: what is sent again, and what is
said in the end. Pauses cost no time: the driver's clock is a test's."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError, SSLError

from support.faulty_server import DROPPED, FaultyServer, Received, Reply, always, s3_error
from support.memory_store import ManualClock
from support.moto_server import S3Server
from zero_rename.committer.errors import StoreRefusedError, StoreUnreachableError, StreamError
from zero_rename.committer.store import boto_calls
from zero_rename.committer.store.clients import S3Clients
from zero_rename.committer.store.driver import BotoDriver
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
from zero_rename.committer.store.retries import RetryBudget, Trouble
from zero_rename.committer.store.upload_stream import DelayedOutputStream

SLOW = s3_error(503, "SlowDown")
FAILED = s3_error(500, "InternalError")
ETAG = Reply(200, headers={"ETag": '"1"'})
ONCE = [
    Put("key", b"x", if_none_match=True),
    Put("key", b"x", if_match="0" * 32),
    Delete("key", if_match="0" * 32),
    CompleteUpload("key", "upload", ("0" * 32,)),
]
#: Requests that may be sent any number of times, with an answer that S3 gives in the end.
REPEATED = [
    (Get("key"), s3_error(404, "NoSuchKey")),
    (Head("key"), Reply(404)),
    (Put("key", b"x"), ETAG),
    (Delete("key"), Reply(204)),
    (DeleteMany((("key", None),)), Reply(200, b"<DeleteResult/>")),
    (ListObjects("key"), Reply(200, b"<ListBucketResult/>")),
    (ListUploads("key"), Reply(200, b"<ListMultipartUploadsResult/>")),
    (
        CreateUpload("key"),
        Reply(200, b"<R><InitiateMultipartUploadResult/><UploadId>1</UploadId></R>"),
    ),
    (UploadPart("key", "upload", 1, b"x" * 100), ETAG),
    (AbortUpload("key", "upload"), Reply(204)),
]


@pytest.fixture
def at(s3_env: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Makes a driver on another endpoint, whose pauses pass on a clock of its own."""
    made: list[BotoDriver] = []

    def make(endpoint: str) -> BotoDriver:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        clock = ManualClock(0.0)
        lock = threading.Lock()

        def sleep(seconds: float, _: threading.Event) -> None:
            with lock:
                clock.advance(seconds)

        made.append(BotoDriver("bucket", S3Clients.from_environment(), sleep=sleep, clock=clock))
        return made[-1]

    yield make
    for driver in made:
        driver.close()


def at_first(*replies: Reply, then: Reply) -> Callable[[Received, Callable[[], Reply]], Reply]:
    left = list(replies)
    return lambda *_: left.pop(0) if left else then


def kind(value: Any) -> str:
    return type(value).__name__


def leave_unreached(driver: BotoDriver, times: int) -> None:
    """Let no connection come about for so many tries."""
    away = iter(range(times))

    def refuse(**_: Any) -> None:
        if next(away, None) is not None:
            raise EndpointConnectionError(endpoint_url=driver.clients.endpoint)

    driver.clients.client.meta.events.register("before-send.s3", refuse)


@pytest.mark.parametrize(("request_", "reply"), REPEATED, ids=kind)
@pytest.mark.parametrize("trouble", [SLOW, FAILED, DROPPED], ids=["slow", "failed", "dropped"])
def test_what_may_be_repeated_is_sent_until_it_is_answered(
    request_: Any, reply: Reply, trouble: Reply, at: Any
) -> None:
    tries = 3 if isinstance(request_, AbortUpload) else 9
    with FaultyServer(at_first(*[trouble] * tries, then=reply)) as server:
        driver = at(server.endpoint)
        driver.clients.retries.answered()
        answer = driver.perform(request_)
        assert not isinstance(answer, Unknown | Refused)
        assert driver.retries == tries == len(server.received) - 1


@pytest.mark.parametrize("request_", ONCE, ids=kind)
@pytest.mark.parametrize("trouble", [SLOW, FAILED, DROPPED], ids=["slow", "failed", "dropped"])
def test_a_conditional_request_that_was_sent_is_not_sent_again(
    request_: Any, trouble: Reply, at: Any
) -> None:
    """Not even after throttling: what a proxy throttled, the store may have carried out."""
    with FaultyServer(always(trouble)) as server:
        assert isinstance(at(server.endpoint).perform(request_), Unknown)
        assert len(server.received) == 1


@pytest.mark.parametrize("request_", ONCE, ids=kind)
def test_a_conditional_request_waits_for_a_connection(request_: Any, at: Any) -> None:
    """A store that restarts: nothing was sent, so nothing is ambiguous."""
    with FaultyServer(always(s3_error(412, "PreconditionFailed"))) as server:
        driver = at(server.endpoint)
        driver.clients.retries.answered()
        leave_unreached(driver, 5)
        assert driver.perform(request_) == Refused("PreconditionFailed")
        assert driver.clients.retries.troubles[Trouble.UNREACHED] == 5
        assert len(server.received) == 1


@pytest.mark.parametrize("request_", ONCE, ids=kind)
def test_a_conditional_request_is_refused_where_no_connection_ever_comes_about(
    request_: Any, at: Any
) -> None:
    with pytest.raises(StoreUnreachableError, match="No connection"):
        at("http://127.0.0.1:9").perform(request_)


def test_a_conditional_request_that_was_sent_after_all_is_unknown(at: Any) -> None:
    """No connection, then one that breaks: the request may have arrived by that one."""
    with FaultyServer(always(DROPPED)) as server:
        driver = at(server.endpoint)
        driver.clients.retries.answered()
        leave_unreached(driver, 2)
        assert isinstance(driver.perform(ONCE[0]), Unknown)
        assert len(server.received) == 1


class TestPatience:
    def test_it_ends_two_minutes_after_the_first_try(self, at: Any) -> None:
        with FaultyServer(always(SLOW)) as server:
            driver = at(server.endpoint)
            with pytest.raises(StoreUnreachableError, match="503 SlowDown"):
                driver.perform(Get("key"))
            assert 119.9 < driver._clock() < 120.1
            sent = len(server.received)
            assert 15 < sent < 40
            with pytest.raises(StoreUnreachableError):
                driver.perform(Get("key"))
            assert len(server.received) == sent + 1, "the silence was waited for once"

    def test_a_silence_long_ago_takes_no_retry_from_a_request(self, at: Any) -> None:
        """A sensor's process, which asks nothing for hours after the store was away."""
        replies = [SLOW] * 100
        with FaultyServer(lambda *_: replies.pop() if replies else Reply(404)) as server:
            driver = at(server.endpoint)
            with pytest.raises(StoreUnreachableError):
                driver.perform(Get("key"))
            replies[:] = [SLOW]
            driver._clock.advance(3600.0)
            assert isinstance(driver.perform(Get("key")), Absent)

    def test_a_wrong_endpoint_is_told_soon(self, at: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(boto_calls, "_USUAL", RetryBudget())
        driver = at("http://127.0.0.1:9")
        with pytest.raises(StoreUnreachableError, match="AWS_ENDPOINT_URL"):
            driver.perform(Get("key"))
        assert 4.9 < driver._clock() < 5.1

    def test_a_certificate_gets_no_better(self, at: Any) -> None:
        driver = at("http://127.0.0.1:9")

        def refuse(**_: Any) -> None:
            raise SSLError(endpoint_url="x", error=Exception("CERTIFICATE_VERIFY_FAILED"))

        driver.clients.client.meta.events.register("before-send.s3", refuse)
        with pytest.raises(StoreUnreachableError, match="AWS_CA_BUNDLE"):
            driver.perform(Get("key"))
        assert driver._clock() == 0

    def test_a_refusal_is_told_at_once(self, at: Any) -> None:
        with FaultyServer(at_first(SLOW, then=s3_error(403, "AccessDenied"))) as server:
            with pytest.raises(StoreRefusedError):
                at(server.endpoint).perform(Put("key", b"x"))
            assert len(server.received) == 2


def until_it_is_over() -> tuple[threading.Event, Callable[[float, threading.Event], None]]:
    """A pause that lasts until nobody waits for the request any more, and what tells of it."""
    paused = threading.Event()

    def sleep(_: float, ended: threading.Event) -> None:
        paused.set()
        assert ended.wait(60)

    return paused, sleep


class TestInterrupts:
    def test_what_nobody_waits_for_is_not_sent_again(
        self, s3_env: S3Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        over = threading.Event()
        paused, sleep = until_it_is_over()

        with FaultyServer(always(SLOW)) as server:
            monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
            driver = BotoDriver("bucket", S3Clients.from_environment(), sleep=sleep)
            future = driver.submit(Get("key"), over)
            assert paused.wait(60)
            over.set()
            assert isinstance(future.exception(60), StoreUnreachableError)
            driver.close()
            assert len(server.received) == 1

    def test_the_abort_of_a_stream_does_not_wait_for_its_parts_to_be_sent(
        self, s3_env: S3Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        paused, sleep = until_it_is_over()

        def answer(got: Received, _: Callable[[], Reply]) -> Reply:
            if got.method == "PUT":
                return SLOW
            return REPEATED[7][1] if got.method == "POST" else s3_error(404, "NoSuchUpload")

        with FaultyServer(answer) as server:
            monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
            driver = BotoDriver("bucket", S3Clients.from_environment(), sleep=sleep)
            stream = DelayedOutputStream(driver, "key", part_bytes=5 * 1024 * 1024)
            stream.write(b"x" * (5 * 1024 * 1024 + 1))
            assert paused.wait(60)
            assert stream.abort().cleanup_error is None
            driver.close()
            assert [got.method for got in server.received] == ["POST", "PUT", "DELETE"]
            with pytest.raises(StreamError):
                _ = stream.upload


class TestClock:
    """S3 refuses what is dated 15 minutes off by its own clock."""

    @pytest.fixture(params=[3600.0, -3600.0], ids=["behind", "ahead"])
    def strict(self, request: pytest.FixtureRequest, at: Any) -> Iterator[Any]:
        off = request.param

        def answer(got: Received, _: Callable[[], Reply]) -> Reply:
            now = time.time() + off
            headers = {"Server": "strict", "Date": formatdate(now, usegmt=True)}
            wanted = {time.strftime("%Y%m%dT%H%M", time.gmtime(now + s)) for s in (-60, 0, 60)}
            if got.headers["x-amz-date"][:13] in wanted:
                return Reply(404 if got.method in ("HEAD", "GET") else 200, b"", headers)
            refusal = s3_error(403, "RequestTimeTooSkewed")
            return Reply(403, refusal.body, {**refusal.headers, **headers})

        with FaultyServer(answer) as server:
            yield at(server.endpoint), server, off

    def test_requests_that_were_under_way_together_are_signed_anew_each(self, strict: Any) -> None:
        driver, server, _ = strict
        assert driver.run(All(tuple(Get("key") for _ in range(8))))
        assert 9 <= len(server.received) <= 16

    @pytest.mark.parametrize("request_", [Head("key"), Get("key"), *ONCE[:3]], ids=kind)
    def test_requests_are_signed_by_the_stores(self, request_: Any, strict: Any) -> None:
        """Also conditional ones: what was refused for its date did nothing."""
        driver, server, off = strict
        assert isinstance(driver.perform(request_), Absent | Done)
        assert len(server.received) == 2
        assert abs(driver.clients.clock.ahead - off) < 5
        driver.perform(Head("key"))
        assert len(server.received) == 3, "the next is dated right at once"
        day = server.received[-1].headers["x-amz-date"][:8]
        assert f"/{day}/us-east-1/s3/" in server.received[-1].headers["authorization"]

    def test_it_is_said_how_far_the_clock_is_off(
        self, strict: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        driver, _, off = strict
        driver.perform(Head("key"))
        driver.perform(Head("key"))
        (record,) = [r for r in caplog.records if "clock" in r.getMessage()]
        assert f"seconds {'behind' if off > 0 else 'ahead of'} the store's" in record.getMessage()

    def test_a_refusal_that_is_about_nothing_but_rights_stays_one(self, at: Any) -> None:
        with FaultyServer(always(s3_error(403, "AccessDenied"))) as server:
            with pytest.raises(StoreRefusedError, match="lack a right"):
                at(server.endpoint).perform(Head("key"))
            assert len(server.received) == 1

    def test_a_store_that_refuses_any_date_is_told_of(self, at: Any) -> None:
        with FaultyServer(always(s3_error(403, "RequestTimeTooSkewed"))) as server:
            with pytest.raises(StoreRefusedError, match="clock is wrong"):
                at(server.endpoint).perform(Get("key"))
            assert len(server.received) == 1


def test_keys_that_the_store_is_too_busy_to_delete_are_no_error_of_the_request(at: Any) -> None:
    body = b"<DeleteResult><Error><Key>a</Key><Code>SlowDown</Code></Error></DeleteResult>"
    with FaultyServer(always(Reply(200, body))) as server:
        answer = at(server.endpoint).perform(DeleteMany((("a", None),)))
        assert answer == Deleted({"a": "SlowDown"})
        assert len(server.received) == 1
