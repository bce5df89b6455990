"""Reader of a large object as a file: a GET for each range, several at once."""

from __future__ import annotations

import io
from collections.abc import Iterable

from ..errors import DamagedError, SnapshotGoneError
from .driver import Driver
from .fast_root import is_fast
from .requests import Absent, All, ByteRange, Get, Refused, Step

_MIB = 1024 * 1024
#: Bytes read at once from the end: Parquet footers are seldom larger.
_TAIL = 256 * 1024
#: Ranges with smaller gaps between them are read as one: a request costs more than these bytes.
_GAP = 512 * 1024
_LARGEST = 16 * _MIB
#: Pieces of one file that are read at once: other files are read in parallel.
_AT_ONCE = 4

_Block = tuple[int, bytes]


class SizedFile(io.RawIOBase):
    """A file of a known size, with its position; subclasses read the bytes.

    :param size: the number of bytes.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def _pass(self, size: int) -> tuple[int, int]:
        """Move the position over the bytes of a read.

        :param size: most bytes of the read; negative: all to the end.
        :returns: the start and the end (exclusive) of these bytes.
        """
        start = min(self._position, self._size)
        end = self._size if size < 0 else min(self._size, start + size)
        self._position = end
        return start, end


class RangeFile(SizedFile):
    """The bytes of one version of an object, as a file.

    All later answers must have the first answer's ETag: if the object is replaced in the meantime,
    this is reported, and versions are never mixed. This does not hold for an object whose key is
    written only once: a late repetition of its write may give the same bytes another ETag (KMS).

    :param driver: carries out the requests.
    :param key: whole key.
    :param size: the number of bytes that it must have.
    :param once: the key is written only once.
    :param tail: bytes to read at once from its end; ``None``: enough for most footers.
    :raises SnapshotGoneError: the object was removed or replaced.
    :raises DamagedError: it has another size.
    """

    def __init__(
        self, driver: Driver, key: str, size: int, tail: int | None = None, once: bool = False
    ) -> None:
        super().__init__(size)
        self._driver = driver
        self._key = key
        self._etag: str | None = None
        self._once = once
        start = max(0, size - (_TAIL if tail is None else tail))
        self._tail: _Block = (start, driver.run(self._read(start, size)))
        self._blocks: list[_Block] = []

    def size(self) -> int:
        return self._size

    def read(self, size: int = -1) -> bytes:
        start, end = self._pass(size)
        if start == end:
            return b""
        for first, body in (self._tail, *self._blocks):
            if first <= start and end <= first + len(body):
                return body[start - first : end - first]
        return self._driver.run(self._read(start, end))

    def prefetch(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Read ranges ahead, in parallel, and drop those that were read ahead before.

        :param ranges: pairs of start and end; ranges close to each other are read as one.
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
        found = self._driver.run(self._read_pieces(pieces))
        for start, end in wanted:
            parts = [found[at] for at in range(start, end, _LARGEST)]
            self._blocks.append((start, parts[0] if len(parts) == 1 else b"".join(parts)))

    def _read(self, start: int, end: int) -> Step[bytes]:
        """Read the bytes from ``start`` to ``end`` (exclusive)."""
        answer = yield from Get(self._key, ByteRange(start, end - 1), if_match=self._etag)
        if isinstance(answer, Absent):
            raise gone(self._key)
        if isinstance(answer, Refused):
            raise self._damaged("has fewer") if answer.code == "InvalidRange" else gone(self._key)
        if answer.size != self._size:
            raise self._damaged(f"has {answer.size}")
        if len(answer.body) != end - start:
            raise self._damaged(f"sent {len(answer.body)} of the {end - start} asked for")
        if not self._once:
            self._etag = answer.etag
        return answer.body

    def _read_pieces(self, pieces: Iterable[tuple[int, int]]) -> Step[dict[int, bytes]]:
        """Read pieces, a few at once; return them by their start."""
        left, bodies = iter(pieces), {}

        def lane() -> Step[None]:
            for start, end in left:
                bodies[start] = yield from self._read(start, end)

        yield from All(tuple(lane() for _ in range(_AT_ONCE)))
        return bodies

    def _damaged(self, found: str) -> DamagedError:
        return DamagedError(
            f"The object should have {self._size} bytes; the store {found}.",
            key=self._key,
            remedy="Verify the table; something else has written to this key.",
        )


def gone(key: str) -> SnapshotGoneError:
    """Build the error for a missing file."""
    if is_fast(key):
        return SnapshotGoneError(
            "A file that lay only in the table's fast root is not there. A later job has replaced "
            "it, or it is lost; what a checkpoint has copied is safe.",
            key=key,
            remedy="Take a new snapshot and read again; if that names it, too, see what is to be "
            "made again: zero-rename lineage plan TABLE",
        )
    return SnapshotGoneError(
        "A file of the state being read is not there: a later job has removed or replaced it, or "
        "it is lost.",
        key=key,
        remedy="Take a new snapshot and read again; if that names it, too, see what is missing: "
        "zero-rename verify TABLE",
    )


def _merge(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if merged and start - merged[-1][1] <= _GAP:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
