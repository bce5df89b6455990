"""The multipart uploads under way below a path, whosever they are: counted, or aborted by age.

What ``hadoop s3guard uploads`` does, for whom the jobs behind them do not matter. Those of this
package's own committer are left out: its recovery sees to them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from ..committer.s3.deletion import abort_until_gone
from ..committer.s3.listing import list_objects
from ..committer.s3.requests import ListedUpload, Step
from ..committer.uploads.selection import UploadsPath
from .hadoop.uploads import uploads_below


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
    doomed = [ListedUpload(upload.key, upload.upload_id, upload.initiated) for upload in uploads]
    left = yield from abort_until_gone(doomed, partial(uploads_below, path.prefix))
    return len(left)
