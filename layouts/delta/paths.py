"""Paths in a Delta log: URLs of objects, relative to the table or absolute, and never trusted.

Any program may have written an entry. A path must name an object of the table or of a recorded
root. A path that leads elsewhere is refused before anything is read there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote, unquote

from ...committer.errors import RecordDamagedError
from ...committer.store.fast_root import FAST, FastPlace, FastRoot, is_fast

#: Characters that are not escaped in a path.
_SAFE = "/=!$&'()*+,;@~-._"
#: Parts that no path may have.
_NO_SEGMENTS = frozenset({"", ".", ".."})


@dataclass(frozen=True)
class DeltaRoot:
    """The place of a table.

    :param prefix: the prefix of its files, with a slash at its end unless it is the whole bucket.
    """

    bucket: str
    prefix: str

    def key_of(self, path: str, roots: Iterable[FastRoot] = ()) -> str:
        """Return the key of a path. For a file in another root it is a key of :mod:`.fast_root`.

        :param roots: the table's recorded roots.
        :raises RecordDamagedError: the path leads out of the table, or is invalid.
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
        """Return the table's own folder in a data root."""
        place = FastPlace.of(self.bucket, f"{self.prefix.rstrip('/')}{FAST}{root.name}/")
        assert place is not None
        return place

    def path_of(self, key: str) -> str:
        """Return the path of a key of the table: relative, or the URL of a file in a data root."""
        place = FastPlace.of(self.bucket, key)
        if place is not None:
            # Spark reads only s3a among these schemes without a setting. No other engine follows a
            # path to another bucket.
            return f"s3a://{place.root.bucket}/{quote(place.real(key), safe=_SAFE)}"
        # quote() escapes colons: a colon in the first part would make this part a scheme.
        return quote(key.removeprefix(self.prefix), safe=_SAFE)

    def _inside(self, path: str, key: str, prefix: str) -> str:
        if not _NO_SEGMENTS.isdisjoint(key.removeprefix(prefix).split("/")) or "\0" in key:
            raise self._refusal(path, "leaves the table")
        if is_fast(key) and not is_fast(prefix):
            # The driver would take such a key for a file in a fast root.
            raise self._refusal(path, "names a data root that is not on record")
        return key

    def _refusal(self, path: str, problem: str) -> RecordDamagedError:
        return RecordDamagedError(
            f"The path {path!r} in the log {problem}. Nothing was read there.",
            field="path",
            table=f"s3://{self.bucket}/{self.prefix}".rstrip("/"),
            remedy="Read the table by the engine that wrote the path. A shallow clone names files "
            "of another table: to use it here, let that engine copy its rows to a new table.",
        )
