"""Output streams of delayed visibility on a bucket in memory, whose requests fail on demand."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from support.memory_store import MemoryDriver
from zero_rename.committer.format.records.pending_file import PendingFile
from zero_rename.committer.store.requests import ObjectSettings
from zero_rename.committer.store.upload_parts import PartLimits
from zero_rename.committer.store.upload_stream import DelayedOutputStream

#: Parts as small as a test's files.
_LIMITS = PartLimits(smallest=1)
_PART = 500


class MemoryStreams:
    """Opens streams; remembers all of them.

    :param fail: called with the name of a request and how often it came (from 1); raises, or
        returns an answer, to make it fail.
    """

    def __init__(self, fail: Callable[[str, int], Any] | None = None) -> None:
        self.driver = MemoryDriver(fault=self._carry_out)
        self.opened: list[DelayedOutputStream] = []
        self._fail = fail
        self._sent: Counter[str] = Counter()
        self._lock = threading.Lock()

    def open(self, key: str, settings: ObjectSettings) -> DelayedOutputStream:
        stream = DelayedOutputStream(self.driver, key, settings, _PART, _LIMITS)
        self.opened.append(stream)
        return stream

    @property
    def left(self) -> list[str]:
        """Keys of uploads that nobody aborted."""
        return self.driver.store.upload_keys()

    def body(self, file: PendingFile) -> bytes:
        """The bytes of a pending file, as its completion would publish them."""
        upload = self.driver.store.uploads[file.upload_id]
        assert upload.key == file.key
        assert tuple(etag for etag, _ in upload.parts.values()) == tuple(file.etags)
        return b"".join(body for _, body in upload.parts.values())

    def table(self, file: PendingFile) -> pa.Table:
        return pq.read_table(pa.BufferReader(self.body(file)))

    def _carry_out(self, request: Any, apply: Callable[[Any], Any]) -> Any:
        name = type(request).__name__
        with self._lock:
            self._sent[name] += 1
            number = self._sent[name]
        failed = self._fail(name, number) if self._fail else None
        if failed is not None:
            return failed
        with self._lock:
            return apply(request)
