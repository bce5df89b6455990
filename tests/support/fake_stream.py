"""Output streams of delayed visibility in memory, with failures on demand."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from zero_rename.committer.errors import StreamClosedError, StreamError
from zero_rename.committer.format.records.pending_file import PendingFile
from zero_rename.committer.store.requests import ObjectSettings


@dataclass(frozen=True)
class FakeUpload:
    key: str
    upload_id: str
    etags: tuple[str, ...]
    size: int
    checksum: str


@dataclass(frozen=True)
class FakeAbort:
    cleanup_error: Exception | None = None


class FakeStream:
    """Behaves as ``DelayedOutputStream`` is documented to."""

    def __init__(self, store: FakeStore, key: str, settings: ObjectSettings) -> None:
        self.store = store
        self.key = key
        self.settings = settings
        self.data = bytearray()
        self.state = "open"
        self.aborts = 0
        self.upload_id = f"upload-{len(store.streams)}"

    def write(self, data: object) -> int:
        if self.state != "open":
            raise StreamClosedError(f"{self.key} is {self.state}", key=self.key)
        self.store.happen("write", self.key)
        piece = bytes(memoryview(data))  # pyright: ignore[reportArgumentType]
        self.data += piece
        return len(piece)

    def tell(self) -> int:
        return len(self.data)

    def close(self) -> None:
        if self.state == "open":
            self.store.happen("close", self.key)
            self.state = "closed"

    def abort(self) -> FakeAbort:
        self.aborts += 1
        self.state = "aborted"
        error = self.store.abort_error
        return FakeAbort(error(self.key) if error else None)

    @property
    def upload(self) -> FakeUpload:
        if self.state != "closed":
            raise StreamError(f"{self.key} is {self.state}")
        digest = hashlib.sha256(self.data).hexdigest()
        return FakeUpload(self.key, self.upload_id, ("etag",), len(self.data), f"sha256:{digest}")


@dataclass
class FakeStore:
    """Opens :class:`FakeStream`; remembers all of them.

    :param fail: called with the event (``open``, ``write``, ``close``), how often it has
        happened (from 1) and the key; raises to make it fail.
    :param abort_error: makes what an abort reports as left behind.
    """

    fail: Callable[[str, int, str], None] | None = None
    abort_error: Callable[[str], Exception] | None = None
    streams: list[FakeStream] = field(default_factory=list)
    events: dict[str, int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def open(self, key: str, settings: ObjectSettings) -> FakeStream:
        self.happen("open", key)
        with self.lock:
            stream = FakeStream(self, key, settings)
            self.streams.append(stream)
        return stream

    def happen(self, event: str, key: str) -> None:
        with self.lock:
            self.events[event] = self.events.get(event, 0) + 1
            count = self.events[event]
        if self.fail is not None:
            self.fail(event, count, key)

    @property
    def left(self) -> list[str]:
        """Keys of streams that are not aborted."""
        return [stream.key for stream in self.streams if stream.state != "aborted"]

    def body(self, file: PendingFile) -> bytes:
        """The bytes of a pending file, as its completion would publish them."""
        found = [stream for stream in self.streams if stream.upload_id == file.upload_id]
        assert [stream.key for stream in found] == [file.key]
        assert found[0].state == "closed"
        return bytes(found[0].data)

    def table(self, file: PendingFile) -> pa.Table:
        return pq.read_table(pa.BufferReader(self.body(file)))

    def tables(self, files: Iterable[PendingFile]) -> list[pa.Table]:
        return [self.table(file) for file in files]
