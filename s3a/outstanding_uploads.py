"""The multipart uploads under way below a path, whosever they are: counted, aborted by age, or
spared for a run at work.

To count and to abort is what ``hadoop s3guard uploads`` does, for whom the jobs behind them do not
matter. Those of this package's own committer are left out: its recovery sees to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ..committer.format.layout import TableRoot
from ..committer.store.deletion import abort_until_gone
from ..committer.store.listing import list_objects
from ..committer.store.requests import All, ListedUpload, Step
from ..committer.upkeep.purge_plan import folders_of
from ..committer.upkeep.upload_judge import Name, Spared, name_of
from ..committer.upkeep.upload_selection import UploadsPath
from .hadoop.uploads import uploads_below
from .runs.ledger import open_tries
from .runs.try_record import PATIENCE


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


def spare_live_runs(bucket: str) -> Spared:
    """Leave the uploads of Hadoop's committers below a table that a run is at work on.

    Nothing in a listing tells such a job's uploads from those of a dead one, so all of its table
    are left. The record is the one that ``ZeroRenameSparkSubmitOperator`` keeps beside the table;
    of jobs without one nothing is known, and an upload's age has to do.
    """

    def spared(uploads: Sequence[ListedUpload]) -> Step[Mapping[Name, str]]:
        # Asked anew for every page, after its listing: a run that begins in between has none.
        around = {name_of(upload): _roots(bucket, upload.key) for upload in uploads}
        roots = sorted({root for found in around.values() for root in found}, key=str)
        live = yield All(tuple(_is_at_work(root) for root in roots))
        at_work = {root for root, is_live in zip(roots, live, strict=True) if is_live}
        return {
            name: f"an S3A run is at work on {root.url}"
            for name, found in around.items()
            for root in found
            if root in at_work
        }

    return spared


def _roots(bucket: str, key: str) -> list[TableRoot]:
    """The folders around a key, each of which may be the table of S3A jobs."""
    return [TableRoot(bucket, folder) for folder in folders_of(key)]


def _is_at_work(root: TableRoot) -> Step[bool]:
    """Also where nobody can tell: a record that cannot be read may be of a run at work."""
    tries = yield from open_tries(root)
    return bool(tries.damage) or any(one.silent_for < PATIENCE for one in tries.known)
