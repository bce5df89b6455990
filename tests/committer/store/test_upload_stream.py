"""The output stream: Hadoop's output stream specification, for bytes visible on commit."""

from __future__ import annotations

import gc
import hashlib
import io
import pickle
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.faults import on
from support.faulty_server import Received, Reply, s3_error
from support.memory_store import Behaviour, MemoryDriver, MemoryStore
from zero_rename.committer.errors import (
    InvalidInputError,
    OutcomeUnknownError,
    StoreUnreachableError,
    StreamClosedError,
    StreamError,
)
from zero_rename.committer.store.driver import BotoDriver, connect
from zero_rename.committer.store.encryption import Algorithm, Encryption
from zero_rename.committer.store.requests import (
    AbortUpload,
    CompleteUpload,
    CreateUpload,
    Done,
    Get,
    ListUploads,
    ObjectSettings,
    Put,
    Refused,
    Unknown,
    UploadPart,
)
from zero_rename.committer.store.upload_parts import MIB, Budget, PartLimits, UploadedParts
from zero_rename.committer.store.upload_stream import DelayedOutputStream

#: Parts of ten bytes, in numbers small enough to look at.
SMALL = PartLimits(smallest=1, largest=1000, most=100, whole=10_000, doubling=50)
KEY = "table/day=1/part-00000.parquet"


@pytest.fixture
def memory() -> MemoryDriver:
    return MemoryDriver()


def small(driver: Any, key: str = KEY, part_bytes: int = 10, **options: Any) -> DelayedOutputStream:
    return DelayedOutputStream(
        driver, key, part_bytes=part_bytes, limits=options.pop("limits", SMALL), **options
    )


def written(driver: Any, data: bytes, **options: Any) -> DelayedOutputStream:
    """A small stream that has got these bytes."""
    stream = small(driver, **options)
    stream.write(data)
    return stream


@contextmanager
def parts_held(
    driver_behind: Any, held: str = "partNumber"
) -> Iterator[tuple[BotoDriver, threading.Semaphore, threading.Event]]:
    """A driver whose every part waits before the store, a token for each that does, and what lets
    them go on.

    :param held: what the paths of the requests have that wait.
    """
    waiting, release = threading.Semaphore(0), threading.Event()

    def hold_parts(got: Received, pass_on: Callable[[], Reply]) -> Reply:
        if held in got.path:
            waiting.release()
            release.wait(120)
        return pass_on()

    with driver_behind(hold_parts) as driver:
        yield driver, waiting, release


def complete(driver: Any, upload: UploadedParts) -> bytes:
    answer = driver.perform(CompleteUpload(upload.key, upload.upload_id, upload.etags))
    assert isinstance(answer, Done), answer
    return driver.perform(Get(upload.key)).body


class FailingParts:
    """Uploads of parts fail from a number on, until told otherwise."""

    def __init__(self, first: int = 1, error: Exception | None = None) -> None:
        self.first = first
        self.error = error or StoreUnreachableError("no answer", remedy="Look at the cable.")
        self.failing = True

    def __call__(self, request: Any, apply: Callable[[Any], Any]) -> Any:
        if self.failing and isinstance(request, UploadPart) and request.number >= self.first:
            raise self.error
        return apply(request)


class TestWrite:
    @pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 20, 25, 999])
    def test_sizes_round_trip(self, memory: MemoryDriver, size: int) -> None:
        """Conformance 94, 31 and 32."""
        data = random.Random(size).randbytes(size)
        stream = small(memory)
        assert stream.write(data) == size
        stream.close()
        upload = stream.upload
        assert upload.size == stream.tell() == size
        assert upload.checksum == f"sha256:{hashlib.sha256(data).hexdigest()}"
        assert complete(memory, upload) == data

    def test_writes_of_any_length_round_trip(self, memory: MemoryDriver) -> None:
        lengths = random.Random(7)
        pieces = [lengths.randbytes(lengths.choice([0, 1, 3, 9, 10, 11, 35])) for _ in range(60)]
        stream = small(memory)
        for piece in pieces:
            stream.write(piece)
        stream.close()
        assert complete(memory, stream.upload) == b"".join(pieces)

    def test_the_buffer_may_be_used_again(self, memory: MemoryDriver) -> None:
        """The specification: after the operation has returned, the buffer may be re-used."""
        buffer = bytearray(b"abcdefgh")
        stream = small(memory)
        for letter in b"123":
            stream.write(buffer)
            buffer[:] = bytes([letter]) * 8
        buffer.extend(b"longer")  # a view still held would forbid this
        stream.close()
        assert complete(memory, stream.upload) == b"abcdefgh1111111122222222"

    def test_offset_and_length(self, memory: MemoryDriver) -> None:
        stream = small(memory)
        assert stream.write(b"abcdef", 2) == 4
        assert stream.write(b"abcdef", 1, 2) == 2
        assert stream.write(b"abcdef", 6, 0) == 0
        assert stream.write(b"", 0, 0) == 0
        stream.close()
        assert complete(memory, stream.upload) == b"cdefbc"

    @pytest.mark.parametrize(
        ("offset", "length"), [(-1, 2), (0, -1), (0, 7), (6, 1), (7, 0), (7, None), (3, 4)]
    )
    def test_bounds_outside_the_buffer_are_refused(
        self, memory: MemoryDriver, offset: int, length: int | None
    ) -> None:
        stream = small(memory)
        with pytest.raises(IndexError):
            stream.write(b"abcdef", offset, length)
        assert (stream.tell(), stream.closed) == (0, False)

    @pytest.mark.parametrize("data", [None, "text", 5])
    def test_what_is_no_buffer_is_refused(self, memory: MemoryDriver, data: Any) -> None:
        stream = small(memory)
        with pytest.raises(TypeError):
            stream.write(data)
        assert not stream.closed

    @pytest.mark.parametrize(
        "data", [bytearray(b"ab"), memoryview(b"ab"), pa.py_buffer(b"ab")], ids=type
    )
    def test_any_buffer_is_taken(self, memory: MemoryDriver, data: Any) -> None:
        stream = small(memory)
        assert stream.write(data) == 2
        assert stream.write(memoryview(b"12345678").cast("H")) == 8
        stream.close()
        assert complete(memory, stream.upload) == b"ab12345678"

    def test_concurrent_writes_are_appended_whole(self, driver: BotoDriver) -> None:
        """HADOOP-11708: HBase relies on streams that many threads write to."""
        stream = small(driver, part_bytes=64, limits=PartLimits(smallest=1))
        started = threading.Barrier(8)

        def write(letter: int) -> None:
            started.wait(120)
            for _ in range(25):
                stream.write(bytes([letter]) * 7)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(write, range(65, 73)))
        stream.close()
        data = complete(driver, stream.upload)
        pieces = [data[at : at + 7] for at in range(0, len(data), 7)]
        assert len(data) == 8 * 25 * 7
        assert all(len(set(piece)) == 1 for piece in pieces)

    @pytest.mark.parametrize("end", ["seal", "close", "abort"])
    def test_write_after_the_end_is_refused_with_the_path(
        self, memory: MemoryDriver, end: str
    ) -> None:
        stream = written(memory, b"abc")
        getattr(stream, end)()
        with pytest.raises(StreamClosedError, match=f"s3://bucket/{KEY}") as raised:
            stream.write(b"d")
        assert isinstance(raised.value, OSError)
        assert raised.value.key == KEY
        assert pickle.loads(pickle.dumps(raised.value)).key == KEY
        assert stream.tell() == 3


class TestRequests:
    def test_a_small_file_is_one_create_and_one_part(self, s3_bucket: Any) -> None:
        """Conformance 86 and 87: no look at the key before, nothing but parts after."""
        stream = DelayedOutputStream(connect(s3_bucket.name), KEY)
        stream.write(b"x" * 1000)
        assert s3_bucket.counter.counts() == {}
        stream.close()
        stream.close()
        assert s3_bucket.counter.counts() == {"CreateMultipartUpload": 1, "UploadPart": 1}

    def test_nothing_is_sent_before_the_first_part_is_full(self, memory: MemoryDriver) -> None:
        stream = written(memory, b"x" * 10)
        stream.flush()
        assert memory.requests == []
        stream.write(b"x")
        assert memory.counts() == {"CreateUpload": 1, "UploadPart": 1}

    def test_a_file_of_full_parts_has_no_empty_part(self, memory: MemoryDriver) -> None:
        stream = written(memory, b"x" * 30)
        stream.close()
        assert memory.counts() == {"CreateUpload": 1, "UploadPart": 3}

    def test_an_empty_file_is_one_empty_part(self, driver: BotoDriver) -> None:
        """Conformance 31."""
        stream = DelayedOutputStream(driver, KEY)
        stream.close()
        assert stream.upload.size == 0
        assert stream.upload.etags == (hashlib.md5(b"").hexdigest(),)
        assert complete(driver, stream.upload) == b""

    def test_an_abandoned_stream_sends_nothing(self, memory: MemoryDriver) -> None:
        """A file object that closed when collected would finish half a file."""
        small(memory).write(b"abc")
        gc.collect()
        assert memory.requests == []

    def test_settings_reach_the_object(self, driver: BotoDriver, s3_client: Any) -> None:
        """Conformance 22."""
        key = "arn:aws:kms:us-east-1:123456789012:key/1"
        encryption = Encryption(Algorithm.SSE_KMS, key)
        settings = ObjectSettings(
            {"zero-rename-job": "zr1-J"}, "STANDARD_IA", {"team": "a b"}, encryption
        )
        stream = DelayedOutputStream(driver, KEY, settings)
        stream.close()
        complete(driver, stream.upload)
        head = s3_client.head_object(Bucket=driver.bucket, Key=KEY)
        assert head["Metadata"] == {"zero-rename-job": "zr1-J"}
        assert head["StorageClass"] == "STANDARD_IA"
        assert (head["ServerSideEncryption"], head["SSEKMSKeyId"]) == ("aws:kms", key)
        tags = s3_client.get_object_tagging(Bucket=driver.bucket, Key=KEY)["TagSet"]
        assert tags == [{"Key": "team", "Value": "a b"}]

    def test_many_files_of_one_task(self, driver: BotoDriver) -> None:
        """Conformance 34: every file's parts are its own."""
        streams = [small(driver, f"{KEY}{n}", limits=PartLimits(smallest=1)) for n in range(5)]
        for _ in range(4):
            for number, stream in enumerate(streams):
                stream.write(f"file {number};".encode())
        for number, stream in enumerate(streams):
            stream.close()
            assert complete(driver, stream.upload) == f"file {number};".encode() * 4


class TestVisibility:
    def test_nothing_is_visible_before_the_completion(self, s3_bucket: Any) -> None:
        """Conformance 15, 16 and 96: close persists; visible is for the commit."""
        driver = connect(s3_bucket.name)
        stream = written(driver, b"x" * 25, limits=PartLimits(smallest=1))
        assert s3_bucket.keys() == []
        stream.close()
        assert s3_bucket.keys() == []
        assert s3_bucket.uploads() == [KEY]
        complete(driver, stream.upload)
        assert s3_bucket.keys() == [KEY]

    def test_an_existing_object_stays_until_the_completion(self, memory: MemoryDriver) -> None:
        memory.perform(Put(KEY, b"old"))
        stream = written(memory, b"new")
        assert memory.perform(Get(KEY)).body == b"old"
        stream.close()
        assert memory.perform(Get(KEY)).body == b"old"
        assert complete(memory, stream.upload) == b"new"

    def test_two_streams_on_one_path_do_not_disturb_each_other(self, memory: MemoryDriver) -> None:
        """Two attempts of a task write the same key."""
        first, second = small(memory), small(memory)
        for _ in range(5):
            first.write(b"first ")
            second.write(b"second ")
        second.abort()
        first.close()
        assert complete(memory, first.upload) == b"first " * 5
        assert memory.store.upload_keys() == []


class TestCapabilities:
    @pytest.mark.parametrize("end", [None, "close", "abort"])
    def test_own_capabilities_are_declared_in_any_case(
        self, memory: MemoryDriver, end: str | None
    ) -> None:
        stream = small(memory)
        if end:
            getattr(stream, end)()
        for name in ("durable-on-close", "Visible-On-Commit", "ABORTABLE"):
            assert stream.has_capability(f"zero_rename:{name}")
        assert stream.has_capability("fs.capability.outputstream.abortable")

    @pytest.mark.parametrize(
        "name", ["hsync", "HFLUSH", "dropbehind", "in:readahead", "", "durable-on-close", None]
    )
    def test_others_are_not(self, memory: MemoryDriver, name: Any) -> None:
        """Conformance 97; unknown names answer no."""
        assert small(memory).has_capability(name) is False

    @pytest.mark.parametrize("name", ["hsync", "hflush"])
    def test_syncing_is_refused_not_downgraded(self, memory: MemoryDriver, name: str) -> None:
        """Conformance 97: who calls it must not believe that data was synced."""
        stream = written(memory, b"abc")
        with pytest.raises(io.UnsupportedOperation, match=f"s3://bucket/{KEY}"):
            getattr(stream, name)()
        assert not stream.closed
        stream.close()
        with pytest.raises(io.UnsupportedOperation):
            getattr(stream, name)()

    @pytest.mark.parametrize("end", [None, "close", "abort"])
    def test_flush_does_nothing_at_any_time(self, memory: MemoryDriver, end: str | None) -> None:
        """HADOOP-16548 and HADOOP-14346."""
        stream = written(memory, b"abc")
        if end:
            getattr(stream, end)()
        before = list(memory.requests)
        stream.flush()
        assert memory.requests == before


class TestClose:
    def test_a_failing_close_aborts_and_is_not_repeated(self) -> None:
        """Conformance 99. A later close raises the same error: it must not pass for success."""
        fault = FailingParts()
        driver = MemoryDriver(fault=fault)
        stream = written(driver, b"abc")
        with pytest.raises(StreamError, match=f"s3://bucket/{KEY}.*no answer.*aborted") as first:
            stream.close()
        assert isinstance(first.value.__cause__, StoreUnreachableError)
        assert first.value.remedy == "Look at the cable."
        assert stream.closed
        assert driver.store.uploads == {}
        fault.failing = False
        before = len(driver.requests)
        with pytest.raises(StreamError) as second:
            stream.close()
        assert second.value is first.value
        assert len(driver.requests) == before
        with pytest.raises(StreamError, match="failed"):
            _ = stream.upload

    def test_the_upload_of_an_open_stream_cannot_be_asked(self, memory: MemoryDriver) -> None:
        with pytest.raises(StreamError, match="open"):
            _ = small(memory).upload

    def test_a_failed_create_leaves_nothing(self) -> None:
        """Conformance 51."""

        driver = MemoryDriver(fault=on(CreateUpload, StoreUnreachableError("no answer")))
        stream = small(driver)
        with pytest.raises(StreamError, match="no answer"):
            stream.write(b"x" * 25)
        assert driver.counts() == {"CreateUpload": 1}
        assert driver.store.uploads == {}
        with pytest.raises(StreamError):
            stream.close()
        assert driver.counts() == {"CreateUpload": 1}

    def test_a_sealed_stream_is_closed_later(self, memory: MemoryDriver) -> None:
        stream = small(memory)
        stream.begin()
        stream.begin()
        stream.write(b"x" * 15)
        stream.seal()
        assert memory.counts() == {"CreateUpload": 1, "UploadPart": 2}
        stream.close()
        assert memory.counts() == {"CreateUpload": 1, "UploadPart": 2}
        assert complete(memory, stream.upload) == b"x" * 15

    @pytest.mark.parametrize("end", ["close", "abort"])
    def test_a_begun_upload_whose_create_fails_leaves_nothing(self, end: str) -> None:
        driver = MemoryDriver(fault=on(CreateUpload, StoreUnreachableError("no answer")))
        stream = small(driver)
        stream.begin()
        stream.write(b"x")
        if end == "close":
            with pytest.raises(StreamError, match="no answer"):
                stream.close()
        assert stream.abort().cleanup_error is None
        assert driver.counts() == {"CreateUpload": 1}

    def test_a_failed_part_surfaces_at_the_next_write(self) -> None:
        driver = MemoryDriver(fault=FailingParts())
        stream = written(driver, b"x" * 11)
        with pytest.raises(StreamError, match="no answer"):
            stream.write(b"y")
        with pytest.raises(StreamClosedError) as raised:
            stream.write(b"z")
        assert isinstance(raised.value.__cause__, StreamError)
        assert driver.store.uploads == {}

    def test_a_failed_part_surfaces_at_close(self) -> None:
        driver = MemoryDriver(fault=FailingParts())
        stream = written(driver, b"x" * 11)
        with pytest.raises(StreamError, match="no answer"):
            stream.close()
        assert driver.store.uploads == {}

    def test_a_part_of_an_upload_that_is_gone(self, memory: MemoryDriver) -> None:
        """A job aborted from outside: its parts are refused."""
        stream = written(memory, b"x" * 11)
        memory.store.uploads.clear()
        with pytest.raises(StreamError, match=r"refused part 2 \(NoSuchUpload\)"):
            stream.close()

    def test_close_waits_for_all_parts(self, driver_behind: Any) -> None:
        with parts_held(driver_behind) as (driver, waiting, release):
            stream = small(driver, limits=PartLimits(smallest=1))
            stream.write(b"x" * 35)
            # Several parts are under way at once, while the writer goes on.
            for _ in range(3):
                assert waiting.acquire(timeout=120)
            closing = threading.Thread(target=stream.close)
            closing.start()
            assert waiting.acquire(timeout=120)
            closing.join(0.05)
            assert closing.is_alive()
            release.set()
            closing.join(120)
            assert complete(driver, stream.upload) == b"x" * 35

    def test_leaving_a_with_block(self, memory: MemoryDriver) -> None:
        with small(memory) as stream:
            stream.write(b"abc")
        assert complete(memory, stream.upload) == b"abc"
        stream = written(memory, b"x" * 25)
        with pytest.raises(ZeroDivisionError), stream:
            _ = 1 / 0
        assert memory.store.uploads == {}
        assert memory.perform(Get(KEY)).body == b"abc"

    def test_an_interrupt_does_not_leave_a_file_with_a_gap(self, memory: MemoryDriver) -> None:
        stream = written(memory, b"x" * 11)

        def interrupt(request: Any, apply: Callable[[Any], Any]) -> Any:
            raise KeyboardInterrupt

        memory.fault = interrupt
        with pytest.raises(KeyboardInterrupt):
            stream.write(b"x" * 20)
        memory.fault = None
        with pytest.raises(StreamError, match="interrupted"):
            stream.close()
        assert stream.abort().cleanup_error is None
        assert memory.store.uploads == {}


class TestAbort:
    def test_an_aborted_stream_leaves_nothing(self, s3_bucket: Any) -> None:
        """Conformance 98: never appears, an existing object is unchanged, close is silent."""
        s3_bucket.put(KEY, b"old")
        driver = connect(s3_bucket.name)
        stream = written(driver, b"x" * 25, limits=PartLimits(smallest=1))
        assert s3_bucket.uploads() == [KEY]
        result = stream.abort()
        assert (result.already_closed, result.cleanup_error) == (False, None)
        stream.close()
        stream.flush()
        assert s3_bucket.uploads() == []
        assert s3_bucket.read(KEY) == b"old"
        with pytest.raises(StreamClosedError):
            stream.write(b"y")

    def test_abort_again_is_harmless(self, memory: MemoryDriver) -> None:
        """Conformance 98."""
        stream = written(memory, b"x" * 25)
        stream.abort()
        before = len(memory.requests)
        assert stream.abort().already_closed
        assert len(memory.requests) == before

    def test_abort_before_the_first_part_sends_nothing(self, memory: MemoryDriver) -> None:
        stream = written(memory, b"abc")
        stream.abort()
        assert memory.requests == []

    def test_abort_costs_one_request_when_all_parts_were_answered(
        self, memory: MemoryDriver
    ) -> None:
        stream = written(memory, b"x" * 25)
        stream.abort()
        assert memory.counts() == {"CreateUpload": 1, "UploadPart": 2, "AbortUpload": 1}

    def test_abort_after_close_takes_the_file_back(self, memory: MemoryDriver) -> None:
        stream = written(memory, b"abc")
        stream.close()
        assert stream.abort().already_closed
        assert memory.store.uploads == {}
        with pytest.raises(StreamError, match="aborted"):
            _ = stream.upload

    @pytest.mark.parametrize("lost", [1, 2])
    def test_abort_is_repeated_until_no_late_part_is_left(self, lost: int) -> None:
        """A part whose answer was lost may be stored after the abort."""
        aborts = []

        def late(request: Any, apply: Callable[[Any], Any]) -> Any:
            if isinstance(request, UploadPart) and request.number == lost:
                apply(request)
                raise StoreUnreachableError("time-out")
            if isinstance(request, AbortUpload):
                aborts.append(request)
                if len(aborts) < 3:
                    return Done()  # and the late part is stored again
            return apply(request)

        driver = MemoryDriver(fault=late)
        stream = written(driver, b"x" * 11)
        with pytest.raises(StreamError, match="was aborted"):
            stream.close()
        assert len(aborts) == 3
        assert driver.counts()["ListUploads"] == 3
        assert driver.store.uploads == {}

    @pytest.mark.parametrize("answer", [Unknown("503 SlowDown"), Refused("InternalError")])
    def test_an_abort_that_does_not_succeed_is_bounded_and_reported(self, answer: Any) -> None:
        driver = MemoryDriver(fault=on(AbortUpload, answer))
        stream = written(driver, b"x" * 25)
        result = stream.abort()
        assert isinstance(result.cleanup_error, StreamError)
        assert "upload-000001" in str(result.cleanup_error)
        assert driver.counts()["AbortUpload"] == 5
        # Once the store answers again, a second abort cleans up.
        driver.fault = None
        assert stream.abort().cleanup_error is None
        assert driver.store.uploads == {}

    def test_an_abort_without_a_store_does_not_raise(self) -> None:
        driver = MemoryDriver(
            fault=on((AbortUpload, ListUploads), StoreUnreachableError("no store"))
        )
        stream = written(driver, b"x" * 25)
        assert isinstance(stream.abort().cleanup_error, StoreUnreachableError)
        stream.close()

    def test_a_failure_whose_abort_fails_says_so(self) -> None:
        stream = small(
            MemoryDriver(fault=on((UploadPart, AbortUpload), OutcomeUnknownError("gone")))
        )
        stream.write(b"abc")
        with pytest.raises(StreamError, match=r"may be left.*gone.*Nothing of it is visible"):
            stream.close()

    def test_abort_waits_for_parts_under_way(self, driver_behind: Any, s3_bucket: Any) -> None:
        """An abort that overtook a part would leave that part behind."""
        with parts_held(driver_behind) as (driver, waiting, release):
            stream = small(driver, limits=PartLimits(smallest=1))
            stream.write(b"x" * 25)
            assert waiting.acquire(timeout=120)
            aborting = threading.Thread(target=stream.abort)
            aborting.start()
            aborting.join(0.05)
            assert s3_bucket.uploads() == [KEY]
            release.set()
            aborting.join(120)
            assert s3_bucket.uploads() == []
            order = [name for name, _ in s3_bucket.counter.log()]
            last_part = max(n for n, name in enumerate(order) if name == "UploadPart")
            assert order.index("AbortMultipartUpload") > last_part

    def test_abort_waits_for_an_upload_that_is_being_created(
        self, driver_behind: Any, s3_bucket: Any
    ) -> None:
        """Nobody would know of it: its key alone does not name it."""
        with parts_held(driver_behind, "?uploads") as (driver, waiting, release):
            stream = small(driver)
            stream.begin()
            stream.write(b"x")
            assert waiting.acquire(timeout=120)
            aborting = threading.Thread(target=stream.abort)
            aborting.start()
            aborting.join(0.05)
            assert aborting.is_alive()
            release.set()
            aborting.join(120)
        assert s3_bucket.counter.counts() == {"CreateMultipartUpload": 1, "AbortMultipartUpload": 1}
        assert s3_bucket.uploads() == []


class TestLimits:
    def test_too_many_parts_fail_and_abort(self) -> None:
        """Conformance 64."""
        driver = MemoryDriver()
        limits = PartLimits(smallest=1, largest=10, most=2)
        stream = small(driver, limits=limits)
        with pytest.raises(StreamError, match=r"more than the 2 parts.*part_bytes") as raised:
            stream.write(b"x" * 35)
        assert raised.value.key == KEY
        assert driver.counts()["AbortUpload"] == 1
        assert driver.store.uploads == {}

    def test_too_many_bytes_fail_and_abort(self, memory: MemoryDriver) -> None:
        stream = written(memory, b"x" * 25, limits=PartLimits(smallest=1, whole=25))
        with pytest.raises(StreamError, match=r"more than the 25 bytes.*bytes_per_file"):
            stream.write(b"x")
        assert memory.store.uploads == {}

    @pytest.mark.parametrize("first", [5 * MIB, 16 * MIB, 100 * MIB, 5120 * MIB])
    def test_parts_grow_so_that_five_tebibytes_fit(self, first: int) -> None:
        limits = PartLimits()
        sizes = [limits.bytes_of_part(number, first) for number in range(1, limits.most + 1)]
        assert sum(sizes) >= limits.whole
        assert max(sizes) <= limits.largest
        assert sizes[: limits.doubling] == [first] * limits.doubling
        assert sizes == sorted(sizes)

    def test_growing_parts_round_trip(self) -> None:
        driver = MemoryDriver(MemoryStore(behaviour=Behaviour(smallest_part=10)))
        limits = PartLimits(smallest=1, largest=35, most=100, whole=10_000, doubling=2)
        stream = small(driver, limits=limits)
        data = bytes(range(200))
        stream.write(data)
        stream.close()
        sent = [len(r.body) for r in driver.requests if isinstance(r, UploadPart)]
        assert sent == [10, 10, 20, 20, 35, 35, 35, 35]
        # A part with the bytes left over is the last one only.
        assert sum(sent) == 200
        assert complete(driver, stream.upload) == data

    @pytest.mark.parametrize("part_bytes", [0, -1, 5 * MIB - 1, 5 * 1024 * MIB + 1])
    def test_part_sizes_s3_does_not_take_are_refused(
        self, memory: MemoryDriver, part_bytes: int
    ) -> None:
        with pytest.raises(InvalidInputError, match=str(part_bytes)):
            DelayedOutputStream(memory, KEY, part_bytes=part_bytes)

    def test_writers_wait_while_the_budget_is_used_up(self) -> None:
        budget = Budget(10)
        budget.acquire(6)
        took = threading.Event()

        def second() -> None:
            budget.acquire(6)
            took.set()

        thread = threading.Thread(target=second)
        thread.start()
        assert not took.wait(0.05)
        budget.release(6)
        assert took.wait(120)
        budget.release(6)
        # Larger than the whole budget: goes alone rather than never.
        budget.acquire(11)
        budget.release(11)
        thread.join(120)

    def test_parts_under_way_are_bounded(
        self, driver_behind: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A store slower than the writer must not fill the memory."""
        monkeypatch.setattr("zero_rename.committer.store.upload_stream.budget", Budget(30))
        lock, now, most = threading.Lock(), [0], [0]

        def count(got: Received, pass_on: Callable[[], Reply]) -> Reply:
            if "partNumber" not in got.path:
                return pass_on()
            with lock:
                now[0] += 1
                most[0] = max(most[0], now[0])
            try:
                return pass_on()
            finally:
                with lock:
                    now[0] -= 1

        with driver_behind(count) as driver:
            stream = small(driver, limits=PartLimits(smallest=1))
            stream.write(b"x" * 155)
            stream.close()
            assert complete(driver, stream.upload) == b"x" * 155
        assert 1 < most[0] <= 3


class TestWithPyarrow:
    TABLE = pa.table({"n": pa.array(range(50_000)), "s": [f"row {n}" for n in range(50_000)]})

    def test_parquet_writer(self, driver: BotoDriver) -> None:
        stream = DelayedOutputStream(driver, KEY)
        with pq.ParquetWriter(stream, self.TABLE.schema) as writer:
            for batch in self.TABLE.to_batches(10_000):
                writer.write_batch(batch)
        assert not stream.closed
        stream.close()
        assert pq.read_table(io.BytesIO(complete(driver, stream.upload))).equals(self.TABLE)

    def test_ipc_writer(self, memory: MemoryDriver) -> None:
        stream = small(memory, part_bytes=5000, limits=PartLimits(smallest=1))
        with pa.ipc.new_file(stream, self.TABLE.schema) as writer:
            writer.write_table(self.TABLE)
        stream.close()
        assert pa.ipc.open_file(complete(memory, stream.upload)).read_all().equals(self.TABLE)

    def test_a_failed_part_reaches_the_user_of_the_writer(self) -> None:
        driver = MemoryDriver(fault=FailingParts(first=2))
        stream = small(driver, part_bytes=5000, limits=PartLimits(smallest=1))
        with pytest.raises(StreamError, match=KEY):  # noqa: SIM117
            with pq.ParquetWriter(stream, self.TABLE.schema, compression="none") as writer:
                writer.write_table(self.TABLE)
        assert stream.closed
        assert driver.store.uploads == {}


def test_http_500_after_a_part_was_stored_is_recovered(driver_behind: Any) -> None:
    """Conformance 65, for a stream: the part is sent again, the file is whole."""
    failures = [s3_error(500, "InternalError")] * 2

    def answer(got: Received, pass_on: Callable[[], Reply]) -> Reply:
        reply = pass_on()
        return failures.pop() if failures and "partNumber=2" in got.path else reply

    with driver_behind(answer) as driver:
        stream = written(driver, b"0123456789" * 3, limits=PartLimits(smallest=1))
        stream.close()
        assert failures == []
        assert complete(driver, stream.upload) == b"0123456789" * 3
