"""Parts of an upload: their sizes, their memory, and their abort."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass

from .backoff import Backoff
from .requests import AbortUpload, Done, ListParts, ListUploads, PartsPage, Refused, Step, Unknown

MIB = 1024 * 1024
#: Fewest bytes that S3 accepts for any part but the last.
SMALLEST_PART = 5 * MIB
_ABORTS = Backoff(tries=5, first=0.4)


#: The capabilities of :meth:`DelayedOutputStream.has_capability`. The last name is Hadoop's.
CAPABILITIES = frozenset(
    {
        "zero_rename:durable-on-close",
        "zero_rename:visible-on-commit",
        "zero_rename:abortable",
        "fs.capability.outputstream.abortable",
    }
)


@dataclass(frozen=True)
class PartLimits:
    """S3's limits on an upload's parts, and the growth of parts to stay within them.

    :param smallest: fewest bytes of any part but the last.
    :param largest: most bytes of any part.
    :param most: most parts of an upload.
    :param whole: most bytes of an object.
    :param doubling: the number of parts after which the part size doubles. With 900, even parts
        that begin at 5 MiB reach 5 TiB before part 10,000. Cloudflare R2 requires parts of one
        size: there, files end at 900 parts.
    """

    smallest: int = SMALLEST_PART
    largest: int = 5 * 1024 * MIB
    most: int = 10_000
    whole: int = 5 * 1024 * 1024 * MIB
    doubling: int = 900

    def bytes_of_part(self, number: int, first: int) -> int:
        """Return the size of part ``number`` (from 1), if the first part has ``first`` bytes."""
        return min(first << ((number - 1) // self.doubling), self.largest)


@dataclass(frozen=True)
class UploadedParts:
    """The parts of a closed stream in the store, with all that a later completion needs.

    :param etags: ETags of parts 1…n, without quotes.
    :param size: bytes of all parts.
    :param checksum: ``sha256:<hex>`` over all bytes.
    """

    key: str
    upload_id: str
    etags: tuple[str, ...]
    size: int
    checksum: str


@dataclass(frozen=True)
class AbortResult:
    """The result of :meth:`DelayedOutputStream.abort` (Hadoop's ``AbortableResult``).

    :param already_closed: the stream was closed, failed or aborted before.
    :param cleanup_error: the reason why the upload may still be in the store; ``None``: it is not.
        It stays invisible all the same, and purge finds it.
    """

    already_closed: bool
    cleanup_error: Exception | None = None


class PartBody:
    """A readable, seekable view of a part.

    boto3 accepts no memoryview, and a copy would double the memory of every part under way.
    """

    def __init__(self, body: bytes | memoryview) -> None:
        self._view = memoryview(body)
        self._at = 0

    def __len__(self) -> int:
        return len(self._view)

    def read(self, size: int | None = -1) -> bytes:
        end = None if size is None or size < 0 else self._at + size
        piece = bytes(self._view[self._at : end])
        self._at += len(piece)
        return piece

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        base = (0, self._at, len(self._view))[whence]
        self._at = max(0, base + offset)
        return self._at

    def getbuffer(self) -> memoryview:
        return self._view


class Budget:
    """Limit of the bytes of parts under way in this process, which bounds the streams' memory."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._changed = threading.Condition()
        self._used = 0

    def acquire(self, size: int) -> None:
        """Wait until ``size`` more bytes fit. A part larger than the limit is sent alone."""
        with self._changed:
            self._changed.wait_for(lambda: not self._used or self._used + size <= self._limit)
            self._used += size

    def release(self, size: int) -> None:
        with self._changed:
            self._used -= size
            self._changed.notify_all()

    def reset(self) -> None:
        """Reset the count and the lock: in a forked child the threads that hold it do not exist."""
        self._changed = threading.Condition()
        self._used = 0


budget = Budget(128 * MIB)
os.register_at_fork(after_in_child=budget.reset)


def abort_upload(key: str, upload_id: str, late_parts: bool) -> Step[str | None]:
    """Abort an upload; if parts may still arrive, repeat it until the upload is not listed.

    A part that the store still works on when the abort comes is stored after it (AWS's description
    of AbortMultipartUpload). So one abort is enough only if every part was answered.

    :param late_parts: a part was sent and not answered.
    :returns: ``None``: the upload is aborted; otherwise a description of what may be left.
    """
    cause = ""
    for attempt in _ABORTS.attempts():
        yield from _ABORTS.pause(attempt)
        answer = yield from AbortUpload(key, upload_id)
        if isinstance(answer, Refused) and answer.code == "NoSuchUpload":
            return None
        if isinstance(answer, Done):
            if not late_parts:
                return None
            page = yield from ListUploads(key)
            if all(upload.upload_id != upload_id for upload in page.uploads):
                return None
            cause = "it is still listed"
        else:
            cause = answer.cause if isinstance(answer, Unknown) else answer.code
    return f"upload {upload_id} of {key} may be left ({cause})"


def parts_held(key: str, upload_id: str) -> Step[PartsPage | None]:
    """Add up the parts that an upload holds; ``None``: the upload does not exist."""
    count, size, marker = 0, 0, None
    while True:
        page = yield from ListParts(key, upload_id, marker)
        if not isinstance(page, PartsPage):
            return None
        count, size, marker = count + page.count, size + page.size, page.marker
        if marker is None:
            return PartsPage(count, size, None)
