"""An output stream of delayed visibility: bytes become parts of an upload nobody completes yet.

The rules are those of Hadoop's output stream specification, where they make sense for a stream
whose ``close`` persists and whose job's commit makes visible.
"""

from __future__ import annotations

import hashlib
import io
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import InvalidInputError, StreamClosedError, StreamError, ZeroRenameError
from .driver import Driver
from .requests import CreateUpload, ObjectSettings, Refused, UploadPart
from .upload_parts import (
    CAPABILITIES,
    MIB,
    AbortResult,
    PartLimits,
    UploadedParts,
    abort_upload,
    budget,
)

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_log = logging.getLogger(__name__)


class _StreamState(Enum):
    OPEN = "open"
    CLOSED = "closed"
    FAILED = "failed"
    ABORTED = "aborted"


class DelayedOutputStream:
    """A binary file for writing whose bytes nobody sees until its upload is completed.

    Thread-safe: concurrent writes are appended whole, in some order. Not an ``io.IOBase`` on
    purpose: that would close, and so upload, whatever is garbage-collected.

    :param driver: whose pool uploads parts; shared by the streams of a process.
    :param key: whole key in the driver's bucket. An object there stays as it is.
    :param settings: metadata, storage class and tags of the object.
    :param part_bytes: size of the first parts; later ones are larger, see :class:`PartLimits`.
    :raises InvalidInputError: a part size that S3 does not take.

    Requests: none before :meth:`begin`, or before the first part is full or the stream closed; then
    one that creates the upload and one per part. Memory: one part per open stream and 128 MiB of
    parts under way per process; ``write`` waits while that is used up.
    """

    mode = "wb"

    def __init__(
        self,
        driver: Driver,
        key: str,
        settings: ObjectSettings | None = None,
        part_bytes: int = 16 * MIB,
        limits: PartLimits | None = None,
    ) -> None:
        limits = limits or PartLimits()
        if not limits.smallest <= part_bytes <= limits.largest:
            raise InvalidInputError(
                f"part_bytes is {part_bytes}; S3 takes {limits.smallest} to {limits.largest}.",
                key=key,
            )
        self._driver = driver
        self._settings = settings or ObjectSettings()
        self._first = part_bytes
        self._limits = limits
        self._lock = threading.RLock()
        self._state = _StreamState.OPEN
        self._error: ZeroRenameError | None = None
        self._buffer = bytearray()
        self._digest = hashlib.sha256()
        self._size = 0
        self._upload_id: str | None = None
        self._etags: list[str] = []
        self._creating: Future[Any] | None = None
        self._sealed = False
        self._under_way: dict[int, Future[Any]] = {}
        self._unanswered = False
        #: Whether an object may be at the key by this stream.
        self._sent = False
        self._over = threading.Event()
        self.key = key
        self.name = f"s3://{driver.bucket}/{key}"

    # What pyarrow's PythonFile and other users of Python files ask.

    @property
    def closed(self) -> bool:
        return self._state is not _StreamState.OPEN

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        """Bytes written so far; also after close."""
        return self._size

    def __enter__(self) -> DelayedOutputStream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close; after an exception, abort: half a file must not look finished."""
        if kind is None:
            self.close()
        else:
            self.abort()

    def write(self, data: ReadableBuffer, offset: int = 0, length: int | None = None) -> int:
        """Append ``data[offset:offset + length]``. The buffer may be reused after the return.

        :param length: bytes to take; ``None`` for all after ``offset``.
        :returns: the bytes taken, always all of them.
        :raises TypeError: no bytes-like object.
        :raises IndexError: a negative offset or length, or one beyond the buffer's end.
        :raises StreamClosedError: after close, abort or a failure.
        :raises StreamError: a part could not be uploaded, this one or an earlier one, or the
            object grows beyond S3's limits. The upload is then aborted and the stream closed.
        :raises FastRootGoneError: so too; the file was to lie in a fast root that does not answer.
        """
        with memoryview(data) as whole, whole.cast("B") as view:
            if length is None:
                length = max(0, len(view) - offset)
            if offset < 0 or length < 0 or offset + length > len(view):
                raise IndexError(f"{length} bytes at {offset} of a buffer of {len(view)}")
            with self._lock, view[offset : offset + length] as piece:
                self._check_open()
                with self._failing():
                    self._collect(wait=False)
                    self._append(piece)
        return length

    def begin(self) -> None:
        """Let the upload be created while the bytes come that are sure to come."""
        with self._lock:
            if self._state is _StreamState.OPEN and self._upload_id is None:
                self._create()

    def seal(self) -> None:
        """Send what is left, and leave the answers to :meth:`close`, so that several streams are
        closed in the time of one. Nothing can be written any more.

        :raises StreamError: as ``write``.
        """
        with self._lock:
            self._check_open()
            with self._failing():
                self._send_rest()
            self._sealed = True

    def flush(self) -> None:
        """Do nothing, also on a closed stream: bytes are persisted by parts and by ``close``.

        A flush that uploaded would make a part per call (HADOOP-16548, HADOOP-14346).
        """

    def hflush(self) -> NoReturn:
        """Not supported: no reader sees these bytes before the commit.

        :raises io.UnsupportedOperation: always.
        """
        self._refuse("hflush")

    def hsync(self) -> NoReturn:
        """Not supported: bytes are durable after ``close``, not before.

        :raises io.UnsupportedOperation: always.
        """
        self._refuse("hsync")

    def has_capability(self, name: str) -> bool:
        """Whether the stream has a capability; see :data:`CAPABILITIES`. Never raises.

        :param name: in any case; unknown names, ``hsync`` and ``hflush`` answer ``False``.
        """
        return str(name).lower() in CAPABILITIES

    def close(self) -> None:
        """Upload what is left and wait for all parts. The object is still invisible.

        Only the first call does anything. A close that fails aborts the upload, leaves the
        stream closed and is not repeated: every later call raises the same error again, so that
        a second close in a ``finally`` cannot pass for success. After ``abort`` it is silent.

        :raises StreamError: the bytes are not in the store.
        """
        with self._lock:
            if self._state is _StreamState.FAILED and self._error is not None:
                raise self._error
            if self._state is not _StreamState.OPEN:
                return
            with self._failing():
                self._finish()
            self._state = _StreamState.CLOSED

    def abort(self) -> AbortResult:
        """Give the bytes up: nothing of them will ever be visible. May be repeated.

        Also after ``close``, as long as nobody has completed the upload: that is how a task
        attempt takes back its finished files. An object that was at the key before stays.
        """
        with self._lock:
            already = self._state is not _StreamState.OPEN
            if self._state is not _StreamState.FAILED:
                self._state = _StreamState.ABORTED
            self._buffer = bytearray()
            return AbortResult(already, self._discard())

    @property
    def upload(self) -> UploadedParts:
        """The uploaded parts.

        :raises StreamError: the stream is not closed, or its upload was aborted.
        """
        with self._lock:
            if self._state is not _StreamState.CLOSED or self._upload_id is None:
                raise StreamError(
                    f"{self.name} has no finished upload: the stream is {self._state.value}.",
                    key=self.key,
                )
            return UploadedParts(
                self.key,
                self._upload_id,
                tuple(self._etags),
                self._size,
                f"sha256:{self._digest.hexdigest()}",
            )

    # Inside, all under the lock.

    def _refuse(self, name: str) -> NoReturn:
        raise io.UnsupportedOperation(
            f"{name} is not supported by {self.name}: nothing is visible before the job commits, "
            "and nothing is durable before close."
        )

    def _check_open(self) -> None:
        if self._sealed or self._state is not _StreamState.OPEN:
            state = "sealed" if self._state is _StreamState.OPEN else self._state.value
            raise StreamClosedError(
                f"{self.name} is {state}; nothing was written.", key=self.key
            ) from self._error

    @property
    def _parts_sent(self) -> int:
        return len(self._etags)

    def _finish(self) -> None:
        # A file that is written whole has its own: committer/attempt.
        self._send_rest()
        self._collect(wait=True)

    def _send_rest(self) -> None:
        # An empty file is one empty part: an upload without parts cannot be completed.
        if self._buffer or not self._parts_sent:
            self._send_part()

    def _append(self, piece: memoryview) -> None:
        if self._size + len(piece) > self._limits.whole:
            raise StreamError(
                f"The file would have more than the {self._limits.whole} bytes S3 takes.",
                remedy="Lower bytes_per_file or rows_per_file.",
            )
        self._digest.update(piece)
        at = 0
        while at < len(piece):
            if len(self._buffer) == self._part_size():
                self._send_part()
            taken = piece[at : at + self._part_size() - len(self._buffer)]
            self._buffer += taken
            at += len(taken)
        self._size += len(piece)

    def _part_size(self) -> int:
        return self._limits.bytes_of_part(self._parts_sent + 1, self._first)

    def _create(self) -> Future[Any]:
        """The request that creates the upload, under way or answered."""
        if self._creating is None:
            create = CreateUpload(self.key, self._settings)
            self._creating = self._driver.submit(create, self._over)
        return self._creating

    def _send_part(self) -> None:
        number = self._parts_sent + 1
        if number > self._limits.most:
            raise StreamError(
                f"The file needs more than the {self._limits.most} parts S3 takes.",
                remedy="Raise part_bytes, or lower bytes_per_file or rows_per_file.",
            )
        if (upload_id := self._upload_id) is None:
            upload_id = self._upload_id = self._create().result().upload_id
        body, self._buffer = self._buffer, bytearray()
        request = UploadPart(self.key, upload_id, number, memoryview(body))
        self._etags.append("")
        size = len(body)
        budget.acquire(size)
        try:
            future = self._driver.submit(request, self._over)
        except BaseException:
            budget.release(size)
            raise
        future.add_done_callback(lambda _: budget.release(size))
        self._under_way[number] = future

    def _collect(self, *, wait: bool) -> None:
        """Take the answers that are there; with ``wait``, all of them. Raises what failed."""
        for number, future in list(self._under_way.items()):
            if wait or future.done():
                try:
                    answer = future.result()
                except BaseException:  # An interrupt leaves it under way.
                    self._unanswered = True
                    raise
                finally:
                    self._under_way.pop(number, None)
                if isinstance(answer, Refused):
                    raise StreamError(f"The store refused part {number} ({answer.code}).")
                self._etags[number - 1] = answer.etag

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Whatever is raised inside closes the stream for good."""
        try:
            yield
        except Exception as error:
            self._fail(error)
        except BaseException:
            # Interrupted with a part half handed over: closing would finish a file with a gap.
            self._state = _StreamState.FAILED
            self._error = StreamError(f"Writing {self.name} was interrupted.", key=self.key)
            raise

    def _fail(self, error: Exception) -> NoReturn:
        """Close the stream for good, abort the upload, and say so with the path."""
        self._state = _StreamState.FAILED
        self._buffer = bytearray()
        left = self._discard()
        after = f"Its upload may be left: {left}." if left else "Its upload was aborted."
        self._error = StreamError.told(error, self.name, after, self.key)
        raise self._error from error

    def _discard(self) -> Exception | None:
        """Abort the upload, if there is one. Returns why it may be left."""
        self._over.set()
        creating, self._creating = self._creating, None
        # What is not sent yet leaves nothing. Of one that failed there is no id to abort by.
        if self._upload_id is None and creating is not None and not creating.cancel():
            created = None if creating.exception() else creating.result()
            self._upload_id = created.upload_id if created else None
        for future in self._under_way.values():
            future.cancel()
        for future in self._under_way.values():
            if not future.cancelled() and future.exception() is not None:
                self._unanswered = True
        self._under_way.clear()
        if self._upload_id is None:
            return None
        step = abort_upload(self.key, self._upload_id, self._unanswered)
        try:
            left = self._driver.run(step)
        except ZeroRenameError as error:
            failure: Exception | None = error
        else:
            failure = StreamError(left, key=self.key) if left else None
        if failure is None:
            self._upload_id = None
        else:
            _log.warning("%s: the upload may be left until purge: %s", self.name, failure)
        return failure
