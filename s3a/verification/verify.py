"""Verification of a finished S3A job: this job, by that committer, with all of its files.

Spark reports success also where a half-configured committer renamed or wrote directly into the
table, and where a commit's clean-up failed after the marker was there
(``AbstractS3ACommitter.commitJob`` writes it before). So the store is asked. What may mean missing,
doubled or unprotected rows is a :class:`~..committer.errors.VerificationError`; what is only left
over is a warning, since a task that fails for it would load the rows again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ...committer.errors import InvalidInputError, VerificationError
from ...committer.format.layout import UNPARTITIONED, TableRoot
from ...committer.format.records.success_marker import COMMITTER as NATIVE
from ...committer.store.requests import Step
from ..hadoop.commit_files import JobSummary
from ..hadoop.job_reports import Marker, find_report, read_marker
from ..hadoop.settings import MARKER_KEY, Committer
from .committed_files import Expectation, committed_files, files_since, left_uploads

_NO_MARKER = (
    "Nothing should read this load before its files were looked at. A marker is not written "
    f"where {MARKER_KEY} is false, with dynamic partition overwrite (SPARK-35279), where the "
    "application wrote elsewhere or not at all, and by commits that failed."
)
_LOOK = (
    "Look at the application's log and its settings (`zero-rename checks` names what "
    "half-configures a committer), and for files with this job's UUID, before anything reads the "
    "table or the rows are loaded again: they may all be there."
)


@dataclass(frozen=True)
class Verified:
    """What was found: a committed job.

    :param uuid: the committer's.
    :param sizes: the files the job committed, bytes by key.
    :param warnings: sentences about what is left over or could not be seen.
    """

    uuid: str
    committer: str
    sizes: Mapping[str, int]
    warnings: tuple[str, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(sorted(self.sizes))

    @property
    def files(self) -> int:
        return len(self.sizes)

    @property
    def bytes(self) -> int:
        return sum(self.sizes.values())


def verify_job(
    root: TableRoot, expectation: Expectation, *, report_dir: str | None = None
) -> Step[Verified]:
    """Look at what a job left.

    :param root: the job's destination: a table, or one partition's folder.
    :param report_dir: ``fs.s3a.committer.summary.report.directory``, where it was set; read where
        it is in the table's bucket and the job's UUID is known. Where the job's report is there
        the marker is not looked at: another job may have replaced or removed it since.
    :raises VerificationError: neither the report nor the marker says that this job committed, by
        that committer; files are missing or of other sizes; or uploads are left whose files are
        not there.
    """
    asked = expectation.committer
    if asked not in list(Committer):
        raise InvalidInputError(
            f"There is no S3A committer {asked!r} whose job could be verified.",
            remedy=f"Choose one of {', '.join(Committer)}.",
        )
    report, warnings = None, list[str]()
    # Not a table's root: it may well lie in a folder that readers skip.
    folder = re.fullmatch(rf"s3[an]?://{re.escape(root.bucket)}/(.*?)/*", report_dir or "")
    if folder is not None and expectation.uuid is not None:
        report = yield from find_report(root, expectation.uuid, folder[1])
    if report_dir and report is None:
        warnings.append(f"There is no report of the job in {report_dir} that can be read.")
    if report is not None and report.marker.success:
        summary = report
    else:
        summary = yield from _of_marker(root, expectation, report)
    if summary.marker.committer != asked:
        raise _another_ran(root, summary.marker.committer, expectation)
    sizes = yield from committed_files(root, summary, expectation)
    warnings += yield from left_uploads(root, summary.marker.job, sizes)
    return Verified(summary.marker.job, asked, sizes, tuple(warnings))


def _of_marker(
    root: TableRoot, expectation: Expectation, failed: JobSummary | None
) -> Step[JobSummary]:
    """What the marker says, if it is this job's, and a successful one's.

    :param failed: the job's own report, if it says that the job failed.
    """
    marker: Marker = yield from read_marker(root.prefix)
    said, since = marker.said, expectation.since_ms / 1000
    is_new = marker.is_newer_than(since)
    is_own = said is not None and expectation.uuid in (None, marker.job)
    if said is not None and is_new and is_own and said.marker.success and failed is None:
        return said
    remedy = _LOOK
    if not marker.etag:
        came = yield from files_since(root, expectation.since_ms)
        what, remedy = f"it left no _SUCCESS marker, and {len(came)} files came since", _NO_MARKER
    elif marker.is_empty:
        what = f"_SUCCESS is empty: the classic rename committer ran, not {expectation.committer}"
    elif said is None:
        what = "_SUCCESS is not what an S3A committer writes"
    elif not is_own:
        what = f"_SUCCESS is of job {marker.job} of {said.marker.hostname!r}, not of this one"
    else:
        what = "_SUCCESS is of this UUID"
    if marker.etag and not is_new:
        what, remedy = f"{what}, and older than this job, which left none", _NO_MARKER
    if is_own and is_new:
        clean_up = ", as of a commit that failed in its clean-up"
        what += ", and says that the job failed" if failed is None else clean_up
    if failed is not None:
        reason = failed.exception.splitlines()[0][:300] if failed.exception else "no reason"
        stage = failed.stage or "unknown"
        what += f". The job's own report says that it failed at stage {stage!r}: {reason}"
    raise VerificationError(
        f"The job is not known to have committed: {what}.",
        table=root.url,
        job=expectation.uuid,
        key=root.marker_key(UNPARTITIONED),
        remedy=remedy,
    )


def _another_ran(root: TableRoot, ran: str, expectation: Expectation) -> VerificationError:
    own = ", this project's own" if ran == NATIVE else ""
    return VerificationError(
        f"The committer {ran!r} ran{own}, and {expectation.committer!r} was asked for.",
        table=root.url,
        job=expectation.uuid,
        remedy="Its files are committed. Find out which setting won: `zero-rename checks` names "
        "those that decide, and a setting in the application wins over the operator's.",
    )
