"""Traces of jobs in the store: ``_SUCCESS``, a job's own summary
(``fs.s3a.committer.summary.report.directory``), and the uploads under way.

``_SUCCESS`` is whichever job's that committed last, and each job deletes it when it begins: of two
that load days of one table side by side, one finds none, or the other's. A report stays.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...committer.errors import RecordDamagedError, VerificationError
from ...committer.format.layout import TableRoot
from ...committer.store.listing import list_objects, list_uploads
from ...committer.store.requests import All, Found, Get, ListedUpload, ServerName, Step
from .commit_files import JobSummary
from .magic_paths import is_native

#: A store that lists uploads by prefix as it should; others may show none, as MinIO does.
_LISTS_BY_PREFIX = "AmazonS3"


@dataclass(frozen=True)
class Marker:
    """The ``_SUCCESS`` of a destination; ``etag`` is ``""`` where there is none.

    :param last_modified: by the store's clock, in whole seconds.
    :param is_empty: as the classic rename committer writes it.
    :param said: what it says; ``None`` where that is not what an S3A committer writes.
    """

    etag: str = ""
    last_modified: float = 0.0
    is_empty: bool = False
    said: JobSummary | None = None

    @property
    def job(self) -> str | None:
        return self.said.marker.job if self.said else None

    def is_newer_than(self, moment: float) -> bool:
        """Whether it is there and was not written before a moment, by the store's clock."""
        return bool(self.etag) and int(self.last_modified) >= int(moment)


def read_marker(destination: str) -> Step[Marker]:
    """The marker of a destination, which is given without a slash at its end."""
    found = yield from Get(f"{destination}/_SUCCESS")
    if not isinstance(found, Found):
        return Marker()
    return Marker(found.etag, found.last_modified, not found.body, _read(found))


def find_report(root: TableRoot, job: str, folder: str) -> Step[JobSummary | None]:
    """A job's summary report; ``None`` where there is none to be seen. Its name has the id of the
    MapReduce job, which nobody was told, so all that are there are read.

    :param folder: a prefix of the table's bucket, without a slash at its end.
    :raises VerificationError: several jobs of that UUID have committed.
    """
    listing = yield from list_objects(f"{folder}/summary-")
    newest = sorted(listing.objects, key=lambda item: item.last_modified, reverse=True)
    bodies = yield from All(tuple(Get(item.key) for item in newest))
    read = [_read(found) for found in bodies if isinstance(found, Found)]
    own = [summary for summary in read if summary is not None and summary.marker.job == job]
    if sum(summary.marker.success for summary in own) > 1:
        raise VerificationError(
            "The application wrote more than once under the one UUID that it was given, so "
            "nothing tells which files are all of its own.",
            table=root.url,
            job=job,
            remedy="Let it write with zero_rename.spark.save, which gives each write a UUID of its "
            f"own. The reports below s3://{root.bucket}/{folder} name the files of each.",
        )
    return own[0] if own else None


def _read(found: Found) -> JobSummary | None:
    try:
        return JobSummary.parse(found.body, found.key)
    except RecordDamagedError:
        return None


def uploads_below(prefix: str) -> Step[list[ListedUpload]]:
    """The uploads below a folder, with a slash at its end, but those of this package's own
    committer; ``""`` for the whole bucket.

    A store may show none for a prefix and all for the bucket: where the first shows none, the
    second is asked, unless the store is known to do as it should.
    """
    found = yield from list_uploads(prefix)
    if not found and prefix and (yield from ServerName()) != _LISTS_BY_PREFIX:
        found = yield from list_uploads("")
    # A store that pages badly lists an upload twice.
    unique = {(u.key, u.upload_id): u for u in found if u.key.startswith(prefix)}
    return [u for u in unique.values() if not is_native(u.key)]
