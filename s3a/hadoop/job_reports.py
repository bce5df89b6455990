"""A job's own summary report (``fs.s3a.committer.summary.report.directory``).

``_SUCCESS`` is whichever job's that committed last, and each job deletes it when it begins: of two
that load days of one table side by side, one finds none, or the other's. A report stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...committer.errors import RecordDamagedError
from ...committer.s3.listing import list_objects
from ...committer.s3.requests import Absent, Get, Step
from .commit_files import JobSummary


def find_report(
    bucket: str, job: str, report_dir: str, since_ms: int = 0
) -> Step[tuple[JobSummary | None, tuple[str, ...]]]:
    """A job's summary report, and a sentence where there is none to be seen.

    Its name has the id of the MapReduce job, which nobody was told; so all that are new enough
    are read, the newest first, until one is of the job.

    :param bucket: the table's, the only one that is looked into.
    :param report_dir: ``s3a://bucket/folder``.
    :param since_ms: by the store's clock.
    """
    # Not a table's root: it may well lie in a folder that readers skip.
    folder = re.fullmatch(r"s3[an]?://([^/]+)/(.*?)/*", report_dir)
    if folder is None or folder[1] != bucket:
        return None, (f"The report in {report_dir} was not read: it is not in the table's bucket.",)
    listing = yield from list_objects(f"{folder[2]}/summary-".lstrip("/"))
    recent = [item for item in listing.objects if int(item.last_modified) >= since_ms // 1000]
    newest = sorted(recent, key=lambda item: item.last_modified, reverse=True)
    summary = yield from _of_job(job, [item.key for item in newest])
    if summary is not None:
        return summary, ()
    return None, (f"There is no report of the job in {report_dir}.",)


def _of_job(job: str, keys: Iterable[str]) -> Step[JobSummary | None]:
    """The first of these reports that is a job's: their names do not say whose they are. One that
    is damaged is another job's, or as good as none."""
    for key in keys:
        found = yield Get(key)
        if isinstance(found, Absent):
            continue
        try:
            summary = JobSummary.parse(found.body, key)
        except RecordDamagedError:
            continue
        if summary.marker.job == job:
            return summary
    return None
