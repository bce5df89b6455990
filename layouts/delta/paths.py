"""Paths in a Delta log: URLs of objects, relative to the table or absolute, never trusted.

Anybody may have written the entry. A path names an object of the table, or of a root on record;
one that leads elsewhere is refused before anything is read there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote, unquote

from ...committer.errors import RecordDamagedError
from ...committer.store.fast_root import FAST, FastPlace, FastRoot, is_fast

#: Characters that a path needs no escape for.
_SAFE = "/=!$&'()*+,;@~-._"
#: What no part of a path may be.
_NO_SEGMENTS = frozenset({"", ".", ".."})


@dataclass(frozen=True)
class DeltaRoot:
    """Where a table lies.

    :param prefix: below it lie its files, with a slash at its end unless it is the whole bucket.
    """

    bucket: str
    prefix: str

    def key_of(self, path: str, roots: Iterable[FastRoot] = ()) -> str:
        """The key of a path; of a file in another root as :mod:`.fast_root` has it.

        :param roots: the table's roots on record.
        :raises RecordDamagedError: it leaves the table, or is not a path.
        """
        scheme, separator, rest = path.partition("://")
        if not separator:
            if path.startswith("/") or ":" in path.split("/")[0]:
                raise self._refusal(path, "is neither relative nor s3://")
            return self._inside(path, self.prefix + unquote(path), self.prefix)
        if scheme not in ("s3", "s3a", "s3n"):
            raise self._refusal(path, "is not on S3")
        bucket, _, key = rest.partition("/")
        key = unquote(key)
        for place in map(self.place, roots):
            if bucket == place.root.bucket and key.startswith(place.there):
                return self._inside(path, place.keys + key.removeprefix(place.there), place.keys)
        if bucket != self.bucket:
            raise self._refusal(path, "lies in another bucket")
        if not key.startswith(self.prefix):
            raise self._refusal(path, "leaves the table")
        return self._inside(path, key, self.prefix)

    def place(self, root: FastRoot) -> FastPlace:
        """The table's own folder in a data root."""
        place = FastPlace.of(self.bucket, f"{self.prefix.rstrip('/')}{FAST}{root.name}/")
        assert place is not None
        return place

    def path_of(self, key: str) -> str:
        """The path of a key of the table: relative, or the URL of a file in a data root."""
        place = FastPlace.of(self.bucket, key)
        if place is not None:
            # Of the schemes only s3a is one that Spark reads without a setting; no other engine
            # follows a path to another bucket.
            return f"s3a://{place.root.bucket}/{quote(place.real(key), safe=_SAFE)}"
        # A colon in its first part would make a scheme of that.
        return quote(key.removeprefix(self.prefix), safe=_SAFE)

    def _inside(self, path: str, key: str, prefix: str) -> str:
        if not _NO_SEGMENTS.isdisjoint(key.removeprefix(prefix).split("/")) or "\0" in key:
            raise self._refusal(path, "leaves the table")
        if is_fast(key) and not is_fast(prefix):
            # Such a key is the driver's name for a file at another store.
            raise self._refusal(path, "names a data root that is not on record")
        return key

    def _refusal(self, path: str, problem: str) -> RecordDamagedError:
        return RecordDamagedError(
            f"The path {path!r} in the log {problem}. Nothing was read there.",
            field="path",
            table=f"s3://{self.bucket}/{self.prefix}".rstrip("/"),
            remedy="Find out which engine wrote it, and remove the file there.",
        )
