"""Output stream of delayed visibility: its bytes become parts of an upload that is completed later.

It follows Hadoop's output stream specification where that makes sense for such a stream: ``close``
makes its bytes durable, and the job's commit makes them visible.
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
    """A binary file for writing whose bytes are not visible until its upload is completed.

    Thread-safe: concurrent writes are appended whole, in some order. It is not an ``io.IOBase`` on
    purpose: that would close, and so upload, a stream that is garbage-collected.

    :param driver: the driver whose pool uploads parts; the streams of a process share it.
    :param key: whole key in the driver's bucket. An object that is there stays as it is.
    :param settings: metadata, storage class and tags of the object.
    :param part_bytes: size of the first parts; later parts are larger, see :class:`PartLimits`.
    :raises InvalidInputError: a part size that S3 does not accept.

    Requests: none before :meth:`begin`, the first full part, or the end of the stream; then one
    that creates the upload, and one for each part. Memory: one part for each open stream, and
    128 MiB of parts under way for each process; ``write`` waits while that is used up.
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
        #: True if this stream may have written an object at the key.
        self._sent = False
        self._over = threading.Event()
        self.key = key
        self.name = f"s3://{driver.bucket}/{key}"

    # The methods that pyarrow's PythonFile and other users of Python files call.

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
        """Return the number of bytes written so far; also after close."""
        return self._size

    def __enter__(self) -> DelayedOutputStream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the stream; after an exception abort it: half a file must not look finished."""
        if kind is None:
            self.close()
        else:
            self.abort()

    def write(self, data: ReadableBuffer, offset: int = 0, length: int | None = None) -> int:
        """Append ``data[offset:offset + length]``. The buffer may be reused after the return.

        :param length: the number of bytes to take; ``None``: all after ``offset``.
        :returns: the number of bytes taken, which is always all of them.
        :raises TypeError: not a bytes-like object.
        :raises IndexError: a negative offset or length, or one beyond the buffer's end.
        :raises StreamClosedError: after close, abort or a failure.
        :raises StreamError: a part could not be uploaded, this one or an earlier one, or the object
            would exceed S3's limits. The upload is then aborted and the stream closed.
        :raises FastRootGoneError: the file was to lie in a fast root that does not answer. The
            upload is then aborted and the stream closed, too.
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
        """Create the upload in the background; for a stream that is sure to get bytes."""
        with self._lock:
            if self._state is _StreamState.OPEN and self._upload_id is None:
                self._create()

    def seal(self) -> None:
        """Send the last bytes without waiting for answers; nothing can be written after it.

        :meth:`close` waits for the answers, so several streams are closed in the time of one.

        :raises StreamError: as ``write``.
        """
        with self._lock:
            self._check_open()
            with self._failing():
                self._send_rest()
            self._sealed = True

    def flush(self) -> None:
        """Do nothing, also on a closed stream: bytes are persisted by parts and by ``close``.

        A flush that uploaded would make a part with each call (HADOOP-16548, HADOOP-14346).
        """

    def hflush(self) -> NoReturn:
        """Refuse: no reader sees these bytes before the commit.

        :raises io.UnsupportedOperation: always.
        """
        self._refuse("hflush")

    def hsync(self) -> NoReturn:
        """Refuse: bytes are durable after ``close``, not before.

        :raises io.UnsupportedOperation: always.
        """
        self._refuse("hsync")

    def has_capability(self, name: str) -> bool:
        """Return whether the stream has a capability; see :data:`CAPABILITIES`. Never raises.

        :param name: the capability, in any case; ``False`` for unknown names, ``hsync`` and
            ``hflush``.
        """
        return str(name).lower() in CAPABILITIES

    def close(self) -> None:
        """Upload the last bytes and wait for all parts. The object is still invisible.

        Only the first call does anything. If it fails, the upload is aborted and the stream is
        closed for good: every later call raises the same error again, so a second close in a
        ``finally`` cannot look like success. After ``abort`` it does nothing.

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
        """Abort the upload: none of its bytes will ever be visible. May be repeated.

        It also works after ``close``, as long as the upload is not completed: so a task attempt
        takes back its finished files. An object that was at the key before stays.
        """
        with self._lock:
            already = self._state is not _StreamState.OPEN
            if self._state is not _StreamState.FAILED:
                self._state = _StreamState.ABORTED
            self._buffer = bytearray()
            return AbortResult(already, self._discard())

    @property
    def upload(self) -> UploadedParts:
        """Uploaded parts of the closed stream.

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
        # committer/attempt overrides it for a file that is written whole.
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
        """Return the request that creates the upload, under way or answered; send it if needed."""
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
        """Take the answers that have come; with ``wait``, wait for all. Raise the first failure."""
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
        """Close the stream for good if anything is raised inside this context."""
        try:
            yield
        except Exception as error:
            self._fail(error)
        except BaseException:
            # Interrupted while a part was passed on: a close would finish a file with a gap.
            self._state = _StreamState.FAILED
            self._error = StreamError(f"Writing {self.name} was interrupted.", key=self.key)
            raise

    def _fail(self, error: Exception) -> NoReturn:
        """Close the stream for good, abort the upload, and raise an error with the path."""
        self._state = _StreamState.FAILED
        self._buffer = bytearray()
        left = self._discard()
        after = f"Its upload may be left: {left}." if left else "Its upload was aborted."
        self._error = StreamError.told(error, self.name, after, self.key)
        raise self._error from error

    def _discard(self) -> Exception | None:
        """Abort the upload, if there is one, and return why it may still be in the store."""
        self._over.set()
        creating, self._creating = self._creating, None
        # A request that is not sent yet leaves nothing. After a failed one no upload id is known.
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
