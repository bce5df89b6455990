"""Verification of a finished S3A job: this job, by that committer, with all of its files.

Spark reports success also where a half-configured committer renamed or wrote directly into the
table, where dynamic partition overwrite wrote no marker, and where a commit's clean-up failed
after the marker was there (``AbstractS3ACommitter.commitJob`` writes it before). So the store is
asked. What may mean missing, doubled or unprotected rows is a
:class:`~..committer.errors.VerificationError`; what is only left over is a warning, since a task
that fails for it would load the rows again.
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
from .committed_files import (
    committed_files,
    files_since,
    left_uploads,
    pending_files,
    temporary_left,
)
from .expectation import Expectation

_LOOK = "Look at the application's log and its settings before anything reads the table."


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
        it is in the table's bucket. Where the job's report is there the marker is not looked at:
        another job may have replaced or removed it since.
    :raises VerificationError: neither the report nor the marker says that this job committed, by
        that committer; files are missing or of other sizes; or uploads are left whose files are
        not there.
    """
    committer = _committer(expectation.committer)
    if committer is Committer.CLASSIC:
        found = yield Get(root.marker_key(UNPARTITIONED))
        return (yield from _verify_classic(root, found, expectation))
    summary, notes = yield from find_summary(root, expectation, report_dir)
    warnings = list(notes)
    job = summary.marker.job
    _check_outcome(root, summary.marker, expectation)
    sizes = yield from committed_files(root, summary, expectation)
    sizes |= yield from pending_files(root, job, warnings)
    yield from left_uploads(root, job, sizes, warnings)
    return Verified(job, summary.marker.committer, sizes, tuple(warnings))


def find_summary(
    root: TableRoot, expectation: Expectation, report_dir: str | None
) -> Step[tuple[JobSummary, tuple[str, ...]]]:
    """What says that a job committed: its own report, or else the marker; and sentences about
    what could not be seen. Arguments are those of :func:`verify_job`.

    :raises VerificationError: neither does.
    """
    report, notes = yield from _report(root, expectation.uuid, report_dir, expectation)
    if report is not None and report.marker.success:
        return report, notes
    found = yield Get(root.marker_key(UNPARTITIONED))
    try:
        summary = yield from _of_marker(root, found, expectation)
    except VerificationError as error:
        raise _with_report(error, report) from None
    if expectation.uuid is None:
        report, notes = yield from _report(root, summary.marker.job, report_dir, expectation)
    _check_report(root, summary.marker.job, report)
    return summary, notes


def _report(
    root: TableRoot, job: str | None, report_dir: str | None, expectation: Expectation
) -> Step[tuple[JobSummary | None, tuple[str, ...]]]:
    if job is None or report_dir is None:
        return None, ()
    return (yield from find_report(root, job, report_dir, expectation.since_ms))


def _committer(name: str) -> Committer:
    try:
        return Committer(name)
    except ValueError as error:
        raise InvalidInputError(
            f"There is no S3A committer {name!r} whose job could be verified.",
            remedy=f"Choose one of {', '.join(Committer)}.",
        ) from error


def _is_old(found: Found, expectation: Expectation) -> bool:
    # The store's own times have whole seconds.
    return int(found.last_modified) < expectation.since_ms // 1000


def _of_marker(
    root: TableRoot, found: Found | Absent, expectation: Expectation
) -> Step[JobSummary]:
    """What the marker says, if it is this job's."""
    if isinstance(found, Absent):
        raise (yield from _no_marker(root, expectation))
    if not found.body:
        raise _empty_marker(root, found, expectation)
    try:
        summary = JobSummary.parse(found.body, found.key)
    except RecordDamagedError as error:
        raise VerificationError(
            f"The _SUCCESS marker is not what an S3A committer writes. {error.message}",
            table=root.url,
            key=found.key,
            remedy=_LOOK,
        ) from error
    _check_job(root, found, summary.marker, expectation)
    return summary


def _empty_marker(root: TableRoot, found: Found, expectation: Expectation) -> VerificationError:
    if _is_old(found, expectation):
        what = (
            "The _SUCCESS marker is empty and older than the job: an earlier job of the classic "
            "rename committer wrote it, and this one wrote none."
        )
    else:
        what = (
            "The _SUCCESS marker is empty: the classic rename committer ran instead of "
            f"{expectation.committer}. Files were renamed one after the other, which S3 does by "
            "copying: a failure half-way would have left some of them in the table."
        )
    return VerificationError(
        what,
        table=root.url,
        key=found.key,
        remedy="The rows are likely all there; compare them with the source. Then mend the "
        "settings: `zero-rename checks` names what half-configures a committer.",
    )


def _check_job(
    root: TableRoot, found: Found, marker: SuccessMarker, expectation: Expectation
) -> None:
    """Whether it is the marker of this job."""
    wrote = f"The _SUCCESS marker is of job {marker.job or 'unknown'} of {marker.hostname!r}"
    is_ours = expectation.uuid is not None and marker.job == expectation.uuid
    if _is_old(found, expectation):
        raise VerificationError(
            f"{wrote} and older than this job"
            + (", which used the same UUID" if is_ours else "")
            + ": this job left no marker of its own, and nothing says that it committed.",
            table=root.url,
            job=expectation.uuid,
            key=found.key,
            remedy=_why_no_marker(),
        )
    if expectation.uuid is not None and not is_ours:
        raise VerificationError(
            f"{wrote}, not of this one. Either another job committed to the same destination "
            "since, and this job's files may be there too; or the application did not use the "
            "UUID it was given.",
            table=root.url,
            job=expectation.uuid,
            key=found.key,
            remedy="Let one job at a time write to one destination. Look for files with this "
            "job's UUID before running it again.",
        )


def _check_outcome(root: TableRoot, marker: SuccessMarker, expectation: Expectation) -> None:
    """Whether the committer that was asked for ran, and says that it succeeded."""
    if marker.committer != expectation.committer:
        ran = "zero_rename, this project's own" if marker.committer == NATIVE else marker.committer
        raise VerificationError(
            f"The committer {ran!r} ran, and {expectation.committer!r} was asked for.",
            table=root.url,
            job=marker.job or None,
            remedy="Its files are committed. Find out which setting won: `zero-rename checks` "
            "names those that decide, and a setting in the application wins over the operator's.",
        )
    if not marker.success:
        raise VerificationError(
            "The marker itself says that the job failed.",
            table=root.url,
            job=marker.job,
            remedy=_LOOK,
        )


def _why_no_marker() -> str:
    return (
        "Nothing should read this load before its files were looked at. A marker is not written "
        f"where {MARKER_KEY} is false, with dynamic partition overwrite (SPARK-35279), where the "
        "application wrote elsewhere or not at all, and by commits that failed."
    )


def _no_marker(root: TableRoot, expectation: Expectation) -> Step[VerificationError]:
    came = yield from files_since(root, expectation.since_ms)
    left = yield from temporary_left(root)
    files = f"{len(came)} files came since it began" if came else "no file came"
    return VerificationError(
        f"The job left no _SUCCESS marker, and {files}. {left}".rstrip(),
        table=root.url,
        job=expectation.uuid,
        key=root.marker_key(UNPARTITIONED),
        remedy=_why_no_marker(),
    )


def _verify_classic(
    root: TableRoot, found: Found | Absent, expectation: Expectation
) -> Step[Verified]:
    """The classic committer's marker is empty: only its age and the files' can be looked at."""
    if isinstance(found, Absent):
        raise (yield from _no_marker(root, expectation))
    if found.body:
        marker = SuccessMarker.parse_or_none(found.body)
        raise VerificationError(
            f"The committer {marker.committer if marker else 'of another kind'!r} ran, and "
            "'classic' was asked for.",
            table=root.url,
            key=found.key,
            remedy=_LOOK,
        )
    if _is_old(found, expectation):
        raise VerificationError(
            "The _SUCCESS marker is older than this job, which left none of its own.",
            table=root.url,
            key=found.key,
            remedy=_why_no_marker(),
        )
    warnings = [
        "The classic committer's marker is empty: it says neither which job wrote it nor which "
        "files belong to it, so what is reported are the files that came since the job began."
    ]
    left = yield from temporary_left(root)
    if left:
        warnings.append(left)
    files = yield from files_since(root, expectation.since_ms)
    return Verified("", Committer.CLASSIC.value, files, tuple(warnings))


def _says(report: JobSummary) -> str:
    reason = report.exception.splitlines()[0][:300] if report.exception else "no reason"
    return f"that it failed at stage {report.stage or 'unknown'!r}: {reason}"


def _with_report(error: VerificationError, report: JobSummary | None) -> VerificationError:
    if report is None:
        return error
    return VerificationError(
        f"{error.message} The job's own report says {_says(report)}",
        table=error.table,
        job=error.job,
        key=error.key,
        remedy=error.remedy,
    )


def _check_report(root: TableRoot, job: str, report: JobSummary | None) -> None:
    if report is not None and not report.marker.success:
        raise VerificationError(
            f"There is a marker, and the job's own report says {_says(report)}. A commit that "
            "fails while it cleans up has written its marker before, and its files are there.",
            table=root.url,
            job=job,
            remedy="Look at the application's log. Do not load the rows again before: "
            "they may all be in the table.",
        )
