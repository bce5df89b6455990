"""A large object as a read-only file: a GET per range, several at once."""

from __future__ import annotations

import io
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

from botocore.exceptions import BotoCoreError, ClientError

from ..errors import DamagedError, SnapshotGoneError
from .error_translation import code_of, refusal_of, unreachable
from .requests import Get

_MIB = 1024 * 1024
#: Read at once from the end: Parquet footers are seldom larger.
_TAIL = 256 * 1024
#: Ranges closer than this are read as one: a request costs more than these bytes.
_GAP = 512 * 1024
_LARGEST = 16 * _MIB
_THREADS = 4

_Block = tuple[int, bytes]


class RangeFile(io.RawIOBase):
    """The bytes of one version of an object.

    The first answer's ETag is demanded of all later ones: an object that is replaced meanwhile
    is reported, never mixed.

    :param driver: has ``clients`` (:class:`.clients.S3Clients`) and ``bucket``.
    :param key: whole key.
    :param size: the bytes it must have.
    :raises SnapshotGoneError: it is gone, or replaced.
    :raises DamagedError: it has another size.
    """

    def __init__(self, driver: Any, key: str, size: int) -> None:
        super().__init__()
        self._driver = driver
        self._key = key
        self._size = size
        self._etag: str | None = None
        self._position = 0
        start = max(0, size - _TAIL)
        self._tail: _Block = (start, self._get(start, size))
        self._blocks: list[_Block] = []

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def size(self) -> int:
        return self._size

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        start = min(self._position, self._size)
        end = self._size if size < 0 else min(self._size, start + size)
        self._position = end
        if start == end:
            return b""
        for first, body in (self._tail, *self._blocks):
            if first <= start and end <= first + len(body):
                return body[start - first : end - first]
        return self._get(start, end)

    def prefetch(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Read ranges ahead, in parallel, and forget those read ahead before.

        :param ranges: pairs of start and end; near ones are read as one.
        """
        self._blocks = []
        wanted = [span for span in _merge(ranges) if span[0] < self._tail[0]]
        if not wanted:
            return
        pieces = [
            (at, min(at + _LARGEST, end))
            for start, end in wanted
            for at in range(start, end, _LARGEST)
        ]
        if len(pieces) == 1:
            bodies = [self._get(*pieces[0])]
        else:
            with ThreadPoolExecutor(_THREADS) as pool:
                bodies = list(pool.map(lambda piece: self._get(*piece), pieces))
        found = dict(zip((start for start, _ in pieces), bodies, strict=True))
        for start, end in wanted:
            parts = [found[at] for at in range(start, end, _LARGEST)]
            self._blocks.append((start, parts[0] if len(parts) == 1 else b"".join(parts)))

    def _get(self, start: int, end: int) -> bytes:
        """Bytes ``start`` to ``end`` (exclusive)."""
        parameters = {"Bucket": self._driver.bucket, "Key": self._key}
        parameters["Range"] = f"bytes={start}-{end - 1}"
        if self._etag is not None:
            parameters["IfMatch"] = self._etag
        try:
            answer = self._driver.clients.retrying.get_object(**parameters)
            body = answer["Body"].read()
        except (ClientError, BotoCoreError) as error:
            self._raise(error)
        self._etag = answer["ETag"]
        total = str(answer.get("ContentRange", "")).rpartition("/")[2]
        if (total.isdigit() and int(total) != self._size) or len(body) != end - start:
            raise DamagedError(
                f"The object should have {self._size} bytes; the store says {total or 'nothing'} "
                f"and sent {len(body)} of the {end - start} asked for.",
                key=self._key,
                remedy="Verify the table; something else has written to this key.",
            )
        return body

    def _raise(self, error: ClientError | BotoCoreError) -> NoReturn:
        code = code_of(error) if isinstance(error, ClientError) else ""
        if code in ("NoSuchKey", "404", "PreconditionFailed"):
            raise gone(self._key) from error
        if code in ("InvalidRange", "416"):
            raise DamagedError(
                f"The object has fewer than the {self._size} bytes it should have.",
                key=self._key,
                remedy="Verify the table; something else has written to this key.",
            ) from error
        endpoint, bucket = self._driver.clients.endpoint, self._driver.bucket
        request = Get(self._key)
        refusal = refusal_of(error, endpoint, bucket, request)
        raise (refusal or unreachable(error, endpoint, bucket, request)) from error


def gone(key: str) -> SnapshotGoneError:
    """The error of a file that is no longer there."""
    return SnapshotGoneError(
        "A file of the state being read was removed or replaced by a later job.",
        key=key,
        remedy="Take a new snapshot and read again.",
    )


def _merge(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if merged and start - merged[-1][1] <= _GAP:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
