"""Paths in a Delta log: URLs of objects, relative to the table or absolute, never trusted.

Anybody may have written the entry. A path names an object of the table, or of a root on record;
one that leads elsewhere is refused before anything is read there.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, unquote

from ...committer.errors import RecordDamagedError


@dataclass(frozen=True)
class DeltaRoot:
    """Where a table lies.

    :param prefix: below it lie its files, with a slash at its end unless it is the whole bucket.
    :param others: further ``s3://bucket/prefix/`` of this bucket that its files may lie in.
    """

    bucket: str
    prefix: str
    others: tuple[str, ...] = ()

    def key_of(self, path: str) -> str:
        """The key of a path.

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
        if bucket != self.bucket:
            raise self._refusal(path, "lies in another bucket")
        key = unquote(key)
        others = (root.partition("://")[2].partition("/")[2] for root in self.others)
        for prefix in (self.prefix, *others):
            if key.startswith(prefix):
                return self._inside(path, key, prefix)
        raise self._refusal(path, "leaves the table")

    def path_of(self, key: str) -> str:
        """The path of a key of the table."""
        # A colon in its first part would make a scheme of that.
        return quote(key.removeprefix(self.prefix), safe="/=!$&'()*+,;@~-._")

    def _inside(self, path: str, key: str, prefix: str) -> str:
        segments = key.removeprefix(prefix).split("/")
        if any(it in ("", ".", "..") for it in segments) or "\0" in key:
            raise self._refusal(path, "leaves the table")
        return key

    def _refusal(self, path: str, problem: str) -> RecordDamagedError:
        return RecordDamagedError(
            f"The path {path!r} in the log {problem}. Nothing was read there.",
            field="path",
            table=f"s3://{self.bucket}/{self.prefix}".rstrip("/"),
            remedy="Find out which engine wrote it, and remove the file there.",
        )
