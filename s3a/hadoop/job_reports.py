"""A job's own summary report (``fs.s3a.committer.summary.report.directory``).

``_SUCCESS`` is whichever job's that committed last, and each job deletes it when it begins: of two
that load days of one table side by side, one finds none, or the other's. A report stays.
"""

from __future__ import annotations

import re

from ...committer.errors import RecordDamagedError, VerificationError
from ...committer.layout import TableRoot
from ...committer.s3.listing import list_objects
from ...committer.s3.requests import Absent, All, Get, Step
from .commit_files import JobSummary


def find_report(
    root: TableRoot, job: str, report_dir: str, since_ms: int = 0
) -> Step[tuple[JobSummary | None, tuple[str, ...]]]:
    """A job's summary report, and a sentence where there is none to be seen.

    Its name has the id of the MapReduce job, which nobody was told; so all that are new enough
    are read.

    :param root: of a table; its bucket is the only one that is looked into.
    :param report_dir: ``s3a://bucket/folder``.
    :param since_ms: by the store's clock.
    :raises VerificationError: several jobs of that UUID have committed.
    """
    # Not a table's root: it may well lie in a folder that readers skip.
    folder = re.fullmatch(r"s3[an]?://([^/]+)/(.*?)/*", report_dir)
    if folder is None or folder[1] != root.bucket:
        return None, (f"The report in {report_dir} was not read: it is not in the table's bucket.",)
    listing = yield from list_objects(f"{folder[2]}/summary-".lstrip("/"))
    recent = [item for item in listing.objects if int(item.last_modified) >= since_ms // 1000]
    newest = sorted(recent, key=lambda item: item.last_modified, reverse=True)
    read = yield All(tuple(_of_job(job, item.key) for item in newest))
    own = [summary for summary in read if summary is not None]
    if sum(summary.marker.success for summary in own) > 1:
        raise VerificationError(
            "The application wrote more than once under the one UUID that it was given, so "
            "nothing tells which files are all of its own.",
            table=root.url,
            job=job,
            remedy="Let it write with zero_rename.spark.save, which gives each write a UUID of its "
            f"own. The reports below {report_dir} name the files of each.",
        )
    return (own[0], ()) if own else (None, (f"There is no report of the job in {report_dir}.",))


def _of_job(job: str, key: str) -> Step[JobSummary | None]:
    """A report, if it is a job's. One that is damaged is another job's, or as good as none."""
    found = yield Get(key)
    if isinstance(found, Absent):
        return None
    try:
        summary = JobSummary.parse(found.body, key)
    except RecordDamagedError:
        return None
    return summary if summary.marker.job == job else None
