"""Verification of a finished S3A job: this job, by that committer, with all of its files.

Spark reports success also where a half-configured committer renamed or wrote directly into the
table, and where a commit's clean-up failed after the marker was there
(``AbstractS3ACommitter.commitJob`` writes it before). So the store is asked. What may mean missing,
doubled or unprotected rows is a :class:`~..committer.errors.VerificationError`; what is only left
over is a warning, since a task that fails for it would load the rows again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...committer.errors import InvalidInputError, RecordDamagedError, VerificationError
from ...committer.layout import UNPARTITIONED, TableRoot
from ...committer.records.success_marker import COMMITTER as NATIVE
from ...committer.records.success_marker import SuccessMarker
from ...committer.s3.requests import Absent, Found, Get, Step
from ..hadoop.commit_files import JobSummary
from ..hadoop.job_reports import find_report
from ..hadoop.settings import MARKER_KEY, Committer
from .committed_files import committed_files, files_since, left_uploads
from .expectation import Expectation

_NO_MARKER = (
    "Nothing should read this load before its files were looked at. A marker is not written "
    f"where {MARKER_KEY} is false, with dynamic partition overwrite (SPARK-35279), where the "
    "application wrote elsewhere or not at all, and by commits that failed."
)
_SETTINGS = "`zero-rename checks` names what half-configures a committer."


@dataclass(frozen=True)
class Verified:
    """What was found: a committed job.

    :param uuid: the committer's; ``""`` for ``classic``, whose marker is empty.
    :param sizes: the files the job committed, bytes by key; for ``classic`` those that came since
        the job began.
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
    if expectation.committer not in list(Committer):
        raise InvalidInputError(
            f"There is no S3A committer {expectation.committer!r} whose job could be verified.",
            remedy=f"Choose one of {', '.join(Committer)}.",
        )
    if expectation.committer == Committer.CLASSIC:
        return (yield from _count_classic(root, expectation))
    report, warnings = None, list[str]()
    if expectation.uuid is not None and report_dir is not None:
        report, notes = yield from find_report(
            root, expectation.uuid, report_dir, expectation.since_ms
        )
        warnings += notes
    if report is not None and report.marker.success:
        summary = report
    else:
        summary = yield from _of_marker(root, expectation, _says(report))
    marker = summary.marker
    if marker.committer != expectation.committer:
        raise _another_ran(root, marker, expectation)
    sizes = yield from committed_files(root, summary, expectation)
    yield from left_uploads(root, marker.job, sizes, warnings)
    return Verified(marker.job, marker.committer, sizes, tuple(warnings))


def _says(report: JobSummary | None) -> str:
    """What the report of a job that failed says, a sentence; ``""`` for none."""
    if report is None:
        return ""
    reason = report.exception.splitlines()[0][:300] if report.exception else "no reason"
    stage = report.stage or "unknown"
    return f" The job's own report says that it failed at stage {stage!r}: {reason}"


def _of_marker(root: TableRoot, expectation: Expectation, failed: str) -> Step[JobSummary]:
    """What the marker says, if it is this job's, and a successful one's.

    :param failed: what the job's own report says against it.
    """
    found = yield Get(root.marker_key(UNPARTITIONED))

    def wrong(what: str, remedy: str) -> VerificationError:
        key = root.marker_key(UNPARTITIONED)
        job = expectation.uuid
        return VerificationError(f"{what}{failed}", table=root.url, job=job, key=key, remedy=remedy)

    if isinstance(found, Absent):
        came = yield from files_since(root, expectation.since_ms)
        files = f"{len(came)} files came since it began" if came else "no file came"
        raise wrong(f"The job left no _SUCCESS marker, and {files}.", _NO_MARKER)
    is_old = _is_old(found, expectation)
    if not found.body:
        rows = f"The rows are likely all there; compare them with the source. {_SETTINGS}"
        if is_old:
            by = "an earlier job of the classic rename committer wrote it, and this one wrote none"
            raise wrong(f"The _SUCCESS marker is empty and older than the job: {by}.", rows)
        ran = f"the classic rename committer ran instead of {expectation.committer}"
        raise wrong(
            f"The _SUCCESS marker is empty: {ran}. Files were renamed one after the other, which "
            "S3 does by copying: a failure half-way would have left some of them in the table.",
            rows,
        )
    look = "Look at the application's log and its settings before anything reads the table."
    try:
        summary = JobSummary.parse(found.body, found.key)
    except RecordDamagedError as error:
        what = f"The _SUCCESS marker is not what an S3A committer writes. {error.message}"
        raise wrong(what, look) from error
    marker = summary.marker
    wrote = f"The _SUCCESS marker is of job {marker.job or 'unknown'} of {marker.hostname!r}"
    is_ours = expectation.uuid in (None, marker.job)
    if is_old:
        same = ", which used the same UUID" if marker.job == expectation.uuid else ""
        left = "this job left no marker of its own, and nothing says that it committed"
        raise wrong(f"{wrote} and older than this job{same}: {left}.", _NO_MARKER)
    if not is_ours:
        raise wrong(
            f"{wrote}, not of this one. Either another job committed to the same destination "
            "since, and this job's files may be there too; or the application did not use the "
            "UUID it was given.",
            "Let one job at a time write to one destination. Look for files with this job's UUID "
            "before running it again.",
        )
    if failed:
        raise wrong(
            "There is a marker. A commit that fails while it cleans up has written its marker "
            "before, and its files are there.",
            "Look at the application's log. Do not load the rows again before: they may all be in "
            "the table.",
        )
    if not marker.success:
        raise wrong("The marker itself says that the job failed.", look)
    return summary


def _is_old(found: Found, expectation: Expectation) -> bool:
    # The store's own times have whole seconds.
    return int(found.last_modified) < expectation.since_ms // 1000


def _another_ran(
    root: TableRoot, marker: SuccessMarker | None, expectation: Expectation
) -> VerificationError:
    ran = marker.committer if marker else "of another kind"
    own = ", this project's own" if ran == NATIVE else ""
    return VerificationError(
        f"The committer {ran!r} ran{own}, and {expectation.committer!r} was asked for.",
        table=root.url,
        job=marker.job if marker else None,
        remedy="Its files are committed. Find out which setting won: `zero-rename checks` names "
        "those that decide, and a setting in the application wins over the operator's.",
    )


def _count_classic(root: TableRoot, expectation: Expectation) -> Step[Verified]:
    """The files that came since the job began: classic's marker is empty, and says neither which
    job wrote it nor which files belong to it."""
    found = yield Get(root.marker_key(UNPARTITIONED))
    if isinstance(found, Found) and found.body:
        raise _another_ran(root, SuccessMarker.parse_or_none(found.body), expectation)
    if isinstance(found, Absent) or _is_old(found, expectation):
        raise VerificationError(
            "The job left no _SUCCESS marker, or one that is older than this job.",
            table=root.url,
            remedy=_NO_MARKER,
        )
    files = yield from files_since(root, expectation.since_ms)
    note = "The classic committer's marker is empty: files of other jobs may be counted, too."
    return Verified("", expectation.committer, files, (note,))
