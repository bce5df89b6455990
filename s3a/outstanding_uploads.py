"""The multipart uploads under way below a path, whosever they are: counted, or aborted by age.

What ``hadoop s3guard uploads`` does, for whom the jobs behind them do not matter. Those of this
package's own committer are left out: its recovery sees to them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from ..committer.errors import InvalidInputError
from ..committer.s3.listing import list_objects
from ..committer.s3.requests import ListedUpload, Step
from .hadoop.abort_uploads import abort_uploads
from .hadoop.upload_owners import uploads_below

_SCHEMES = ("s3", "s3a", "s3n")


@dataclass(frozen=True)
class UploadsPath:
    """A bucket, or a folder of it.

    :param prefix: ending with a slash, ``""`` for the whole bucket.
    """

    bucket: str
    prefix: str

    @staticmethod
    def parse(url: str) -> UploadsPath:
        """:raises InvalidInputError: it is no URL of S3."""
        parts = urlsplit(url)
        if parts.scheme not in _SCHEMES or not parts.netloc or parts.query or parts.fragment:
            raise InvalidInputError(
                f"{url!r} is no path on S3.", remedy="Give s3://bucket or s3://bucket/folder."
            )
        folder = parts.path.strip("/")
        return UploadsPath(parts.netloc, f"{folder}/" if folder else "")


@dataclass(frozen=True)
class OutstandingUpload:
    """One of them; ``age`` in seconds, by the store's clock."""

    key: str
    upload_id: str
    initiated: float
    age: float


def outstanding_uploads(
    path: UploadsPath, least_age: float = 0.0
) -> Step[tuple[OutstandingUpload, ...]]:
    """Those that are at least so many seconds old, in the order of their keys."""
    found = yield from uploads_below(path.prefix)
    if not found:
        return ()
    now = (yield from list_objects(found[0].key)).date
    aged = (_aged(upload, now) for upload in found)
    return tuple(sorted((u for u in aged if u.age >= least_age), key=lambda u: (u.key, u.age)))


def _aged(upload: ListedUpload, now: float) -> OutstandingUpload:
    age = max(0.0, now - upload.initiated)
    return OutstandingUpload(upload.key, upload.upload_id, upload.initiated, age)


def abort_outstanding(path: UploadsPath, uploads: Iterable[OutstandingUpload]) -> Step[int]:
    """Abort uploads until a listing shows none of them.

    :returns: how many are still listed.
    """
    named = {(upload.key, upload.upload_id) for upload in uploads}
    _, left = yield from abort_uploads(path.prefix, named, named)
    return left
