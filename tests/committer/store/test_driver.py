"""The drivers: one contract for S3 and for memory, then parallel work, then a store's refusals."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3
import pytest

from support.faulty_server import (
    DROPPED,
    FaultyServer,
    Received,
    Reply,
    always,
    http_date,
    s3_error,
)
from support.forked import in_a_child, quietly
from support.memory_store import Behaviour, ManualClock, MemoryDriver, MemoryStore
from support.moto_server import S3Server
from zero_rename.committer.errors import (
    InvalidInputError,
    RefusedError,
    StoreRefusedError,
    StoreUnreachableError,
)
from zero_rename.committer.store.clients import S3Clients
from zero_rename.committer.store.driver import BotoDriver, connect
from zero_rename.committer.store.requests import (
    AbortUpload,
    Absent,
    All,
    ByteRange,
    Clock,
    CompleteUpload,
    CreateUpload,
    Delete,
    Deleted,
    DeleteMany,
    Done,
    Found,
    Get,
    Head,
    ListObjects,
    ListUploads,
    ObjectSettings,
    Put,
    Refused,
    ServerName,
    Step,
    Unknown,
    UploadPart,
    Wait,
)

STALE = "0" * 32


def md5(body: bytes) -> str:
    return hashlib.md5(body).hexdigest()


@pytest.fixture(params=["moto", "memory"])
def any_driver(request: pytest.FixtureRequest) -> Any:
    """A driver on an empty bucket, of each kind: equal answers are the contract."""
    if request.param == "memory":
        return MemoryDriver(MemoryStore(behaviour=Behaviour(complete_again="repeats")))
    return connect(request.getfixturevalue("bucket"))


@pytest.fixture
def ask(any_driver: Any) -> Callable[[Any], Any]:
    return any_driver.run


class TestContract:
    """What every driver answers; the memory store's other behaviours are tested below."""

    def test_put_then_get_and_head(self, ask: Any) -> None:
        """Conformance 94: sizes round-trip."""
        done = ask(Put("a/b", b"body"))
        assert (done, done.etag) == (Done(done.etag, done.date), md5(b"body"))
        assert done.date > 1_000_000_000
        found = ask(Get("a/b"))
        assert isinstance(found, Found)
        assert (found.key, found.etag, found.size, found.body) == ("a/b", done.etag, 4, b"body")
        assert found.metadata == {}
        assert 0 <= found.date - found.last_modified < 60
        head = ask(Head("a/b"))
        assert (head.etag, head.size, head.body) == (done.etag, 4, b"")
        assert head.last_modified == found.last_modified

    @pytest.mark.parametrize("kind", [Get, Head])
    def test_no_such_key(self, ask: Any, kind: type) -> None:
        answer = ask(kind("nothing"))
        assert isinstance(answer, Absent)
        assert answer.date > 1_000_000_000

    @pytest.mark.parametrize(
        ("part", "body"),
        [(ByteRange(0, 0), b"0"), (ByteRange(3, 5), b"345"), (ByteRange(8, 99), b"89")],
    )
    def test_a_part_comes_with_the_size_of_the_whole(
        self, ask: Any, part: ByteRange, body: bytes
    ) -> None:
        etag = ask(Put("key", b"0123456789")).etag
        found = ask(Get("key", part, if_match=etag))
        assert (found.body, found.size, found.etag) == (body, 10, etag)

    def test_a_part_beyond_the_end_is_refused(self, ask: Any) -> None:
        ask(Put("key", b"0123456789"))
        assert ask(Get("key", ByteRange(10, 12))) == Refused("InvalidRange")

    @pytest.mark.parametrize("part", [None, ByteRange(0, 1)])
    def test_another_version_is_not_read(self, ask: Any, part: ByteRange | None) -> None:
        etag = ask(Put("key", b"old")).etag
        assert ask(Get("key", part, if_match=etag)).size == 3
        ask(Put("key", b"new"))
        assert ask(Get("key", part, if_match=etag)) == Refused("PreconditionFailed")
        assert isinstance(ask(Get("nothing", part, if_match=etag)), Absent)

    @pytest.mark.parametrize("before", [b"first", b""])
    @pytest.mark.parametrize("after", [b"second", b""])
    def test_if_none_match(self, ask: Any, before: bytes, after: bytes) -> None:
        """Conformance 100, and 102: an empty object exists."""
        assert ask(Put("key", before, if_none_match=True)).etag == md5(before)
        refused = ask(Put("key", after, if_none_match=True))
        assert refused == Refused("PreconditionFailed")
        assert ask(Get("key")).body == before

    def test_if_match(self, ask: Any) -> None:
        """Conformance 103: the current ETag succeeds, an old one is refused."""
        first = ask(Put("key", b"1")).etag
        second = ask(Put("key", b"2", if_match=first)).etag
        assert ask(Put("key", b"3", if_match=first)) == Refused("PreconditionFailed")
        assert ask(Get("key")).body == b"2"
        assert isinstance(ask(Delete("key")), Done)
        # Conformance 103: of a deleted object, no such key.
        assert ask(Put("key", b"3", if_match=second)) == Refused("NoSuchKey")

    def test_delete(self, ask: Any) -> None:
        etag = ask(Put("key", b"1")).etag
        assert ask(Delete("key", if_match=STALE)) == Refused("PreconditionFailed")
        assert isinstance(ask(Delete("key", if_match=etag)), Done)
        assert isinstance(ask(Get("key")), Absent)
        assert isinstance(ask(Delete("key")), Done)
        assert isinstance(ask(Delete("key", if_match=etag)), Done)

    def test_delete_many(self, ask: Any) -> None:
        etags = {key: ask(Put(key, key.encode())).etag for key in ("a & <b>", "c", "d")}
        items = (("a & <b>", etags["a & <b>"]), ("c", None), ("absent", None))
        assert ask(DeleteMany(items)) == Deleted()
        assert [entry.key for entry in ask(ListObjects("")).objects] == ["d"]
        assert ask(DeleteMany(())) == Deleted()

    def test_list(self, ask: Any) -> None:
        for key in ("p/day=1/a", "p/day=1/b", "p/day=10/c", "p/x", "p/_hidden"):
            ask(Put(key, b"12"))
        page = ask(ListObjects("p/", delimiter=True))
        assert [entry.key for entry in page.objects] == ["p/_hidden", "p/x"]
        assert page.prefixes == ("p/day=1/", "p/day=10/")
        assert page.token is None
        page = ask(ListObjects("p/day=1/"))
        listed = page.objects[0]
        assert [entry.key for entry in page.objects] == ["p/day=1/a", "p/day=1/b"]
        assert (listed.etag, listed.size) == (md5(b"12"), 2)
        assert 0 <= page.date - listed.last_modified < 60
        assert ask(ListObjects("none/")).objects == ()

    def test_listing_after_a_key_shows_greater_ones_alone(self, ask: Any) -> None:
        for key in ("p/1", "p/2", "p/3"):
            ask(Put(key, b""))
        assert [it.key for it in ask(ListObjects("p/", after="p/1")).objects] == ["p/2", "p/3"]
        assert ask(ListObjects("p/", after="p/9")).objects == ()

    def test_keys_with_any_character(self, ask: Any) -> None:
        for key in ("p/day=2013-01-01 10%3A00/é ü", "p/a+b", "p/a%20b", "p/'\"&<>"):
            ask(Put(key, b""))
            assert ask(Head(key)).key == key
        listed = [entry.key for entry in ask(ListObjects("p/")).objects]
        expected = ["p/'\"&<>", "p/a%20b", "p/a+b", "p/day=2013-01-01 10%3A00/é ü"]
        assert listed == expected

    def test_upload(self, ask: Any) -> None:
        """Conformance 15, 16, 17: nothing visible before the completion, all of it after."""
        settings = ObjectSettings({"zero-rename-job": "zr1-J"}, "STANDARD_IA", {"team": "a b+c"})
        upload = ask(CreateUpload("p/key", settings)).upload_id
        first = ask(UploadPart("p/key", upload, 1, b"abc"))
        second = ask(UploadPart("p/key", upload, 2, memoryview(b"__de__")[2:4]))
        assert (first.etag, second.etag) == (md5(b"abc"), md5(b"de"))
        assert isinstance(ask(Head("p/key")), Absent)
        assert ask(ListObjects("p/")).objects == ()
        (listed,) = ask(ListUploads("p/")).uploads
        assert (listed.key, listed.upload_id) == ("p/key", upload)
        refused = ask(CompleteUpload("p/key", upload, (second.etag, first.etag)))
        assert refused == Refused("InvalidPart")
        done = ask(CompleteUpload("p/key", upload, (first.etag, second.etag)))
        assert isinstance(done, Done), done
        found = ask(Get("p/key"))
        assert (found.body, found.etag) == (b"abcde", done.etag)
        assert found.etag.endswith("-2")
        assert found.metadata == {"zero-rename-job": "zr1-J"}
        assert ask(ListUploads("p/")).uploads == ()

    def test_complete_twice(self, ask: Any) -> None:
        """Repeated while the object is there it is done; afterwards it writes nothing."""
        upload = ask(CreateUpload("key")).upload_id
        etag = ask(UploadPart("key", upload, 1, b"abc")).etag
        done = ask(CompleteUpload("key", upload, (etag,)))
        assert ask(CompleteUpload("key", upload, (etag,))).etag == done.etag
        ask(Delete("key"))
        # moto answers 500 for every unknown upload, which leaves open what happened.
        again = ask(CompleteUpload("key", upload, (etag,)))
        assert again in (Refused("NoSuchUpload"), Unknown("500 InternalError"))
        assert isinstance(ask(Get("key")), Absent)

    def test_an_empty_part_makes_an_empty_object(self, ask: Any) -> None:
        """Conformance 31."""
        upload = ask(CreateUpload("key")).upload_id
        etag = ask(UploadPart("key", upload, 1, b"")).etag
        assert isinstance(ask(CompleteUpload("key", upload, (etag,))), Done)
        assert ask(Head("key")).size == 0

    def test_abort(self, ask: Any) -> None:
        upload = ask(CreateUpload("key")).upload_id
        ask(UploadPart("key", upload, 1, b"abc"))
        assert isinstance(ask(AbortUpload("key", upload)), Done)
        assert ask(AbortUpload("key", upload)) == Refused("NoSuchUpload")
        completed = ask(CompleteUpload("key", upload, (md5(b"abc"),)))
        # The latter is moto's.
        assert completed in (Refused("NoSuchUpload"), Unknown("500 InternalError"))
        assert isinstance(ask(Head("key")), Absent)

    def test_uploads_of_one_key_are_separate(self, ask: Any) -> None:
        uploads = [ask(CreateUpload("key")).upload_id for _ in range(2)]
        assert len(set(uploads)) == 2
        ask(AbortUpload("key", uploads[0]))
        (left,) = ask(ListUploads("key")).uploads
        assert left.upload_id == uploads[1]

    def test_server_name_and_clock(self, any_driver: Any) -> None:
        def step() -> Step[tuple[str, float, float]]:
            yield from Head("key")
            before = yield from Clock()
            yield from Wait(0.01)
            return (yield from ServerName()), before, (yield from Clock())

        name, before, after = any_driver.run(step())
        assert name
        assert after - before > 0.009


@pytest.mark.parametrize("kind", [Put, Delete])
def test_an_empty_etag_is_refused_before_it_is_sent(kind: Any, driver: BotoDriver) -> None:
    """Conformance 103."""
    request = Put("key", b"", if_match='""') if kind is Put else Delete("key", if_match="")
    with pytest.raises(InvalidInputError):
        driver.perform(request)


def test_metadata_s3_cannot_take_is_refused_by_key(driver: BotoDriver) -> None:
    with pytest.raises(InvalidInputError, match=r"CreateUpload.*key p/key"):
        driver.perform(CreateUpload("p/key", ObjectSettings({"name": "é"})))


def test_listings_continue_over_pages(driver: BotoDriver) -> None:
    keys = [f"p/{number:04d}" for number in range(105)]
    driver.run(All(tuple(Put(key, b"") for key in keys)))
    page = driver.perform(ListObjects("p/"))
    assert len(page.objects) == 100
    rest = driver.perform(ListObjects("p/", token=page.token))
    assert rest.token is None
    assert [entry.key for entry in page.objects + rest.objects] == keys


class TestParallel:
    """The trampoline of the real driver."""

    def test_nested_all_needs_no_more_than_one_thread(self, s3_env: S3Server, bucket: str) -> None:
        def tree(depth: int) -> Step[int]:
            if depth == 0:
                yield from Head("key")
                return 1
            return sum((yield from All(tuple(tree(depth - 1) for _ in range(3)))))

        driver = BotoDriver(bucket, S3Clients.from_environment(parallel=1))
        assert driver.run(tree(3)) == 27
        driver.close()

    def test_generators_run_in_the_calling_thread(self, driver: BotoDriver) -> None:
        threads = set()

        def member() -> Step[None]:
            yield from Head("a")
            threads.add(threading.get_ident())

        driver.run(All(tuple(member() for _ in range(5))))
        assert threads == {threading.get_ident()}

    def test_a_single_request_is_sent_from_the_calling_thread(
        self, s3_env: S3Server, bucket: str
    ) -> None:
        senders = []
        driver = BotoDriver(
            bucket,
            S3Clients.from_environment(),
            observe=lambda request: senders.append((type(request), threading.get_ident())),
        )
        driver.run(Head("a"))
        assert senders == [(Head, threading.get_ident())]

    def test_requests_of_all_are_under_way_together(self, at: Any) -> None:
        together = threading.Barrier(8, timeout=120)

        def meet(_: Received, __: Callable[[], Reply]) -> Reply:
            together.wait()
            return s3_error(404, "NoSuchKey")

        with FaultyServer(meet) as server:
            answers = at(server.endpoint).run(All(tuple(Get("x") for _ in range(8))))
        assert all(isinstance(answer, Absent) for answer in answers)

    def test_waits_overlap_with_requests_and_each_other(self, bucket: str, s3_env: Any) -> None:
        slept = []
        now = ManualClock(0.0)

        def sleep(seconds: float, _: threading.Event) -> None:
            slept.append(round(seconds, 3))
            now.advance(seconds)

        driver = BotoDriver(bucket, S3Clients.from_environment(), sleep=sleep, clock=now)
        driver.run(All((Wait(3), Wait(1), Wait(2))))
        assert slept == [1, 1, 1]
        driver.run(Wait(0))
        assert slept == [1, 1, 1]

    def test_a_short_wait_does_not_delay_answers(self, driver: BotoDriver) -> None:
        order = []

        def member(request: Any) -> Step[None]:
            yield from request
            order.append(type(request))

        driver.run(All((member(Wait(0.3)), member(Head("a")), member(Head("b")))))
        assert order == [Head, Head, Wait]

    def test_a_wait_ends_while_a_request_is_under_way(self, at: Any) -> None:
        waited = threading.Event()

        def hold(_: Received, __: Callable[[], Reply]) -> Reply:
            return s3_error(404, "NoSuchKey") if waited.wait(120) else s3_error(403, "AccessDenied")

        def wait() -> Step[None]:
            yield from Wait(0.05)
            waited.set()

        with FaultyServer(hold) as server:
            answers = at(server.endpoint).run(All((wait(), Get("a"), Get("b"))))
        assert [type(answer) for answer in answers] == [type(None), Absent, Absent]

    def test_an_error_in_the_pool_is_raised_into_its_step(self, at: Any) -> None:
        with FaultyServer(always(s3_error(403, "AccessDenied"))) as server:
            driver = at(server.endpoint)

            def member() -> Step[str]:
                try:
                    yield from Get("a")
                except StoreRefusedError:
                    return "caught"
                return "not raised"

            assert driver.run(All((member(), member()))) == ("caught", "caught")

    def test_an_interrupt_waits_for_what_is_sent(self, driver: BotoDriver) -> None:
        """A request that was sent is carried out before whoever interrupts cleans up after it."""
        sent, interrupted = threading.Event(), threading.Event()

        def observe(request: Any) -> None:
            if isinstance(request, Put):
                sent.set()
                interrupted.wait(60)

        def press() -> Step[None]:
            yield from Head("k")
            assert sent.wait(60)
            threading.Timer(0.2, interrupted.set).start()
            raise KeyboardInterrupt

        driver._observe = observe
        with pytest.raises(KeyboardInterrupt):
            driver.run(All((Put("k", b"claim"), press())))
        assert isinstance(driver.run(Head("k")), Found)

    def test_an_interrupt_closes_the_steps(self, driver: BotoDriver) -> None:
        ended = []

        def member(interrupt: bool) -> Step[None]:
            try:
                yield from Head("a")
                if interrupt:
                    raise KeyboardInterrupt
                yield from Wait(60)
            finally:
                ended.append(interrupt)

        with pytest.raises(KeyboardInterrupt):
            driver.run(All((member(False), member(True), member(False))))
        assert sorted(ended) == [False, False, True]

    def test_a_driver_works_after_close_and_in_many_threads(self, driver: BotoDriver) -> None:
        step = lambda: All(tuple(Head("a") for _ in range(4)))  # noqa: E731
        driver.run(step())
        driver.close()
        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(lambda _: driver.run(step()), range(4)))
        assert [len(result) for result in results] == [4] * 4

    @quietly
    def test_a_driver_works_in_a_forked_child(self, driver: BotoDriver) -> None:
        """PySpark's daemon forks its workers; the threads of a pool stay behind."""
        driver.run(All(tuple(Head("a") for _ in range(4))))
        assert in_a_child(lambda: len(driver.run(All(tuple(Head("a") for _ in range(4)))))) == 4

    @quietly
    def test_a_forked_child_has_connections_of_its_own(self, at: Any) -> None:
        """On a connection that two processes share, each may read the answer to the other."""
        with FaultyServer(always(Reply(200, b"x", {"Last-Modified": http_date(0)}))) as server:
            driver = at(server.endpoint)
            driver.run(Get("parent"))
            assert in_a_child(lambda: len(driver.run(Get("child")).body)) == 1
            driver.run(Get("parent"))
            first, second, third = (request.port for request in server.received)
            assert first == third
            assert second != first

    @quietly
    def test_a_fork_while_another_thread_makes_the_pool(
        self, driver: BotoDriver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A lock that is held at a fork stays held in the child."""
        making, made = threading.Event(), threading.Event()
        pool = "zero_rename.committer.store.driver.ThreadPoolExecutor"

        def slowly(*arguments: Any, **named: Any) -> Any:
            making.set()
            made.wait(60)
            return ThreadPoolExecutor(*arguments, **named)

        def two() -> int:
            monkeypatch.setattr(pool, ThreadPoolExecutor)
            return len(driver.run(All((Head("a"), Head("b")))))

        monkeypatch.setattr(pool, slowly)
        other = threading.Thread(target=driver.run, args=(All((Head("a"), Head("b"))),))
        other.start()
        try:
            assert making.wait(60)
            assert in_a_child(two) == 2
        finally:
            made.set()
            other.join(60)


REFUSALS = {
    (403, "InvalidAccessKeyId"): "AWS_ACCESS_KEY_ID",
    (403, "SignatureDoesNotMatch"): "AWS_SECRET_ACCESS_KEY",
    (403, "AccessDenied"): "s3:ListBucket",
    (403, "SomethingNew"): "s3:ListBucket",
    (401, "SomethingNew"): "AWS_ACCESS_KEY_ID",
    (404, "NoSuchBucket"): "in Airflow endpoint_url of the AWS connection",
    (400, "ExpiredToken"): "AWS_SESSION_TOKEN",
    (403, "RequestTimeTooSkewed"): "clock",
}


@pytest.mark.parametrize("name", ["x-amz-meta-zero-rename-job", "X-Amz-Meta-Zero-Rename-Job"])
def test_the_case_of_metadata_names_does_not_count(name: str, at: Any) -> None:
    """They are parts of headers: a store or a proxy may alter it."""
    headers = {"ETag": '"e"', "Last-Modified": http_date(0), name: "zr1-X"}
    with FaultyServer(always(Reply(200, b"", headers))) as server:
        found = at(server.endpoint).run(Head("k"))
    assert found.metadata == {"zero-rename-job": "zr1-X"}


class TestRefusals:
    @pytest.mark.parametrize("request_", [Get("k"), Put("k", b"", if_none_match=True)], ids=repr)
    @pytest.mark.parametrize(("status", "code"), REFUSALS, ids=lambda value: str(value))
    def test_a_refusal_names_its_remedy_and_no_secret(
        self, status: int, code: str, request_: Any, at: Any
    ) -> None:
        with FaultyServer(always(s3_error(status, code))) as server:
            driver = at(server.endpoint)
            with pytest.raises(StoreRefusedError) as raised:
                driver.run(request_)
            text = str(raised.value)
            assert REFUSALS[status, code] in text
            assert code in text
            assert server.endpoint in text
            assert "'bucket'" in text
            assert "SECRET-KEY" not in text
            assert "test-access-key" not in text
            assert "\n" not in text
            assert len(server.received) == 1

    def test_a_missing_bucket(self, s3_env: S3Server) -> None:
        with pytest.raises(StoreRefusedError, match=r"no such bucket.*AWS_ENDPOINT_URL"):
            connect("no-such-bucket").run(ListObjects("p/"))

    def test_head_without_rights_is_a_refusal(self, at: Any) -> None:
        """HEAD answers have no body that could name the code."""
        with (
            FaultyServer(always(Reply(403))) as server,
            pytest.raises(StoreRefusedError, match="AccessDenied"),
        ):
            at(server.endpoint).run(Head("k"))

    def test_no_credentials(self, s3_env: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        with pytest.raises(StoreRefusedError, match=r"No usable credentials.*AWS_PROFILE"):
            connect("bucket").run(Get("k"))

    @pytest.mark.parametrize(
        "request_",
        [Get("k"), Put("k", b"", if_none_match=True), CreateUpload("k"), ListObjects("")],
        ids=lambda request: type(request).__name__,
    )
    def test_an_unreachable_endpoint_is_reported_within_seconds(
        self, request_: Any, at: Any
    ) -> None:
        started = time.monotonic()
        with pytest.raises(StoreUnreachableError, match=r"http://127\.0\.0\.1:9\b") as raised:
            at("http://127.0.0.1:9").run(request_)
        assert time.monotonic() - started < 60
        assert isinstance(raised.value, RefusedError)

    def test_an_unknown_host_is_unreachable(self, at: Any) -> None:
        with pytest.raises(StoreUnreachableError, match=r"zero-rename\.invalid"):
            at("http://zero-rename.invalid").run(Put("k", b"", if_none_match=True))

    def test_tls_against_a_plain_port_is_unreachable(self, at: Any) -> None:
        with FaultyServer(always(Reply(200))) as server:
            endpoint = server.endpoint.replace("http:", "https:")
            with pytest.raises(StoreUnreachableError):
                at(endpoint).run(Put("k", b"", if_none_match=True))

    @pytest.mark.parametrize("file", ["false", "/missing/ca.pem", "/etc/hostname"])
    def test_file_without_certificates_is_named_at_once(self, file: str) -> None:
        with FaultyServer(always(Reply(200))) as server:
            endpoint = server.endpoint.replace("http:", "https:")
            session = boto3.Session("id", "secret", region_name="us-east-1")
            client = session.client("s3", endpoint_url=endpoint, verify=file)
            started = time.monotonic()
            with pytest.raises(StoreUnreachableError, match=r"CA file .* verify of the AWS"):
                connect("bucket", client).run(Get("k"))
        assert time.monotonic() - started < 5


class TestUnclearAnswers:
    """Conditional writes: refused and unknown are different answers."""

    @pytest.mark.parametrize(
        ("status", "code"),
        [
            (412, "PreconditionFailed"),
            (409, "ConditionalRequestConflict"),
            (404, "NoSuchKey"),
            (501, "NotImplemented"),
            (400, "InvalidArgument"),
        ],
    )
    def test_refused(self, status: int, code: str, at: Any) -> None:
        with FaultyServer(always(s3_error(status, code))) as server:
            assert at(server.endpoint).run(Put("k", b"", if_match="1")) == Refused(code)

    @pytest.mark.parametrize(
        ("reply", "cause"),
        [
            (s3_error(500, "InternalError"), "500 InternalError"),
            (s3_error(503, "SlowDown"), "503 SlowDown"),
            (s3_error(400, "RequestTimeout"), "400 RequestTimeout"),
            (Reply(502, b"<html>bad gateway</html>"), "502"),
            (DROPPED, "ConnectionClosedError"),
        ],
    )
    def test_unknown(self, reply: Reply, cause: str, at: Any) -> None:
        with FaultyServer(always(reply)) as server:
            answer = at(server.endpoint).run(Put("k", b"", if_none_match=True))
        assert isinstance(answer, Unknown)
        assert cause in answer.cause

    def test_a_time_out_is_unknown(self, s3_env: S3Server) -> None:
        import boto3
        from botocore.config import Config

        with FaultyServer(always(Reply(200), after=2.0)) as server:
            client = boto3.client(
                "s3", endpoint_url=server.endpoint, config=Config(read_timeout=0.2)
            )
            answer = connect("bucket", client).run(Put("k", b"", if_none_match=True))
            assert answer == Unknown("ReadTimeoutError")
            assert len(server.received) == 1

    @pytest.mark.parametrize(
        "request_",
        [Put("k", b""), Delete("k"), DeleteMany((("k", None),))],
        ids=lambda request_: type(request_).__name__,
    )
    def test_a_write_is_unknown_where_only_its_last_attempt_found_no_one(
        self, request_: Any, at: Any
    ) -> None:
        """The first attempt reached the server, which may have carried it out before it died."""

        def answer(_: Received, __: Callable[[], Reply]) -> Reply:
            server.__exit__()
            return DROPPED

        with FaultyServer(answer) as server:
            assert at(server.endpoint).run(request_) == Unknown("EndpointConnectionError")
            assert len(server.received) == 1

    def test_an_error_in_an_answer_of_status_200_is_unknown(self, at: Any) -> None:
        """CompleteMultipartUpload answers 200 at once and may fail after that."""
        reply = Reply(200, s3_error(200, "InternalError").body)
        with FaultyServer(always(reply)) as server:
            answer = at(server.endpoint).run(CompleteUpload("k", "u", ("1",)))
            assert isinstance(answer, Unknown)
            assert len(server.received) == 1

    def test_a_batch_of_deletes_reports_each_key(self, at: Any) -> None:
        body = (
            b"<DeleteResult><Error><Key>a</Key><Code>PreconditionFailed</Code></Error>"
            b"<Error><Key>b</Key><Code>NoSuchKey</Code></Error></DeleteResult>"
        )
        with FaultyServer(always(Reply(200, body))) as server:
            answer = at(server.endpoint).run(DeleteMany((("a", "1"), ("b", "1"))))
        assert answer == Deleted({"a": "PreconditionFailed"})

    def test_a_refused_batch_of_deletes_deleted_nothing(self, at: Any) -> None:
        with FaultyServer(always(s3_error(501, "NotImplemented"))) as server:
            answer = at(server.endpoint).run(DeleteMany((("a", "1"), ("b", None))))
        assert answer == Deleted({"a": "NotImplemented", "b": "NotImplemented"})

    def test_a_body_that_breaks_off_is_read_again(self, at: Any) -> None:
        headers = {"ETag": '"1"', "Last-Modified": http_date(1000), "Content-Length": "10"}
        short = Reply(200, b"12345", {**headers, "Connection": "close"})
        replies = [short, Reply(200, b"1234567890", headers)]
        with FaultyServer(lambda *_: replies.pop(0)) as server:
            found = at(server.endpoint).run(Get("k"))
        assert found.body == b"1234567890"

    def test_a_part_answered_500_after_it_was_stored_is_sent_again(
        self, driver_behind: Any
    ) -> None:
        """Conformance 65, for parts: the same number again replaces the part."""
        failures = [s3_error(500, "InternalError")]

        def answer(got: Received, pass_on: Callable[[], Reply]) -> Reply:
            reply = pass_on()
            return failures.pop() if failures and "partNumber" in got.path else reply

        with driver_behind(answer) as driver:
            ask: Any = driver.perform
            upload = ask(CreateUpload("k")).upload_id
            part = ask(UploadPart("k", upload, 1, memoryview(b"abc")))
            assert part.etag == md5(b"abc")
            ask(CompleteUpload("k", upload, (part.etag,)))
            assert ask(Get("k")).body == b"abc"

    def test_a_put_or_completion_answered_500_after_it_happened_is_unknown(
        self, driver_behind: Any
    ) -> None:
        """Conformance 65: the step reads back, the driver does not send again."""

        def answer(got: Received, pass_on: Callable[[], Reply]) -> Reply:
            reply = pass_on()
            changes = "if-none-match" in got.headers or (
                got.method == "POST" and "uploadId" in got.path
            )
            return s3_error(500, "InternalError") if changes else reply

        with driver_behind(answer) as driver:
            ask: Any = driver.perform
            put = ask(Put("record", b"1", if_none_match=True))
            assert isinstance(put, Unknown)
            assert ask(Get("record")).body == b"1"
            upload = ask(CreateUpload("k")).upload_id
            etag = ask(UploadPart("k", upload, 1, b"abc")).etag
            assert isinstance(ask(CompleteUpload("k", upload, (etag,))), Unknown)
            assert ask(Get("k")).body == b"abc"


UPLOADS = """<ListMultipartUploadsResult><IsTruncated>{more}</IsTruncated>
<NextKeyMarker>{key}</NextKeyMarker><NextUploadIdMarker>{id}</NextUploadIdMarker>{uploads}
</ListMultipartUploadsResult>"""


def uploads_page(entries: list[tuple[str, str]], more: bool) -> Reply:
    listed = "".join(
        f"<Upload><Key>{key}</Key><UploadId>{upload}</UploadId>"
        "<Initiated>2020-01-01T00:00:00.750Z</Initiated></Upload>"
        for key, upload in entries
    )
    key, upload = entries[-1] if entries else ("", "")
    body = UPLOADS.format(more=str(more).lower(), key=key, id=upload, uploads=listed)
    return Reply(200, body.encode())


class TestSizes:
    def test_no_more_of_an_object_is_read_than_a_record_may_have(self, driver: BotoDriver) -> None:
        """A stranger's _SUCCESS of many gigabytes."""
        ask: Any = driver.perform
        ask(Put("big", b" " * 5000))
        found = ask(Get("big", most=1000))
        assert (len(found.body), found.size) == (1001, 5000)
        assert len(ask(Get("big", most=5000)).body) == 5000
        assert len(ask(Get("big", ByteRange(0, 1999), most=1000)).body) == 2000

    def test_the_rest_is_not_waited_for(self, at: Any) -> None:
        """The answer has a megabyte and promises a gigabyte."""
        headers = {
            "Content-Length": str(1 << 30),
            "Last-Modified": "Wed, 01 Jan 2020 00:00:00 GMT",
            "ETag": '"e"',
        }
        with FaultyServer(always(Reply(200, b"x" * (1 << 20), headers))) as server:
            found = at(server.endpoint).perform(Get("big", most=1000))
        assert (len(found.body), found.size) == (1001, 1 << 30)


class TestUploadListings:
    def test_keys_with_control_characters_are_asked_for_encoded(self, at: Any) -> None:
        """As they are, they make the answer no XML, and with it every listing."""
        one, two = "p/a b+c%20\x01", "p/\x1b[31m\u00e9"
        encoded = [("p%2Fa+b%2Bc%2520%01", "1"), ("p/%1B%5B31m%C3%A9", "2")]
        page = uploads_page(encoded, True)
        said = page.body.replace(b"<IsTruncated>", b"<EncodingType>url</EncodingType><IsTruncated>")
        with FaultyServer(always(Reply(200, said))) as server:
            page = at(server.endpoint).perform(ListUploads("p/"))
        assert "encoding-type=url" in server.received[0].path
        assert [upload.key for upload in page.uploads] == [one, two]
        assert page.marker == (two, "2")

    @pytest.mark.parametrize(
        ("prefix", "listed", "keys"),
        [
            ("p/", ["p/a+b%20", "p/c%20"], ["p/a+b%20", "p/c%20"]),
            ("p/", ["p/day=1%3A/x", "p/x"], ["p/day=1%3A/x", "p/x"]),
            ("my%20p/", ["my%20p/x", "my%20p/y"], ["my%20p/x", "my%20p/y"]),
            ("p/", ["p/day%3D1/x", "p/%01"], ["p/day=1/x", "p/\x01"]),
            ("my p/", ["my%20p/%2Bx"], ["my p/+x"]),
            ("p/", ["p/day%3D1/x", "p/it's$(1)!"], ["p/day=1/x", "p/it's$(1)!"]),
        ],
    )
    def test_keys_of_a_store_that_does_not_say_whether_it_encoded_them(
        self, at: Any, prefix: str, listed: list[str], keys: list[str]
    ) -> None:
        page = uploads_page([(key, "1") for key in listed], False)
        with FaultyServer(always(page)) as server:
            uploads = at(server.endpoint).perform(ListUploads(prefix)).uploads
        assert [upload.key for upload in uploads] == keys

    def test_pages_are_followed_by_both_markers(self, at: Any) -> None:
        replies = [uploads_page([("k", "1")], True), uploads_page([("k", "2")], False)]
        with FaultyServer(lambda *_: replies.pop(0)) as server:
            driver = at(server.endpoint)
            page = driver.perform(ListUploads("k"))
            assert page.marker == ("k", "1")
            assert page.uploads[0].initiated == 1577836800.0
            page = driver.perform(ListUploads("k", page.marker))
            assert ([u.upload_id for u in page.uploads], page.marker) == (["2"], None)
        assert "key-marker=k&upload-id-marker=1" in server.received[1].path

    def test_a_store_that_refuses_upload_id_markers_skips_no_upload(self, at: Any) -> None:
        """versitygw: InvalidArgument. Another upload of the marker's key must still be seen."""

        def answer(got: Received, _: Callable[[], Reply]) -> Reply:
            if "upload-id-marker" in got.path:
                return s3_error(400, "InvalidArgument")
            marker = parse_qs(urlsplit(got.path).query).get("key-marker", [""])[0]
            listed = [entry for entry in (("p/key", "1"), ("p/key", "2")) if entry[0] > marker]
            if marker:
                return uploads_page(listed, False)
            return uploads_page([("p/key", "1")], True)

        with FaultyServer(answer) as server:
            driver = at(server.endpoint)
            page = driver.perform(ListUploads("p/"))
            page = driver.perform(ListUploads("p/", page.marker))
        assert [upload.upload_id for upload in page.uploads] == ["1", "2"]

    def test_a_page_that_leads_back_to_itself_ends_the_listing(self, at: Any) -> None:
        with FaultyServer(always(uploads_page([("k", "1")], True))) as server:
            driver = at(server.endpoint)
            page = driver.perform(ListUploads("k"))
            assert page.marker == ("k", "1")
            assert driver.perform(ListUploads("k", page.marker)).marker is None

    def test_a_step_back_that_does_not_come_past_its_key_is_an_error(self, at: Any) -> None:
        """A key with more uploads than a page, where UploadIdMarker is refused: the listing can
        neither go on nor be called complete."""

        def answer(got: Received, _: Callable[[], Reply]) -> Reply:
            if "upload-id-marker" in got.path:
                return s3_error(400, "InvalidArgument")
            return uploads_page([("p/key", "1")], True)

        with FaultyServer(answer) as server:
            driver = at(server.endpoint)
            page = driver.perform(ListUploads("p/"))
            with pytest.raises(StoreUnreachableError, match="InvalidArgument"):
                driver.perform(ListUploads("p/", page.marker))

    def test_a_page_that_leads_nowhere_ends_the_listing(self, at: Any) -> None:
        with FaultyServer(always(uploads_page([], True))) as server:
            assert at(server.endpoint).perform(ListUploads("p/")).marker is None
