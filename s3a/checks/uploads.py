"""Uploads that this job or another still needs and something would abort; and those left over."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import inf

from ...committer.doctor import DAY, RECOVERY
from ...committer.job_spec import JobSpec
from ...committer.layout import TableRoot
from ...committer.s3.lifecycle import least_abort_days
from ...committer.s3.requests import ListLifecycleRules, Step, Unknown
from ..hadoop.settings import ABORT_UPLOADS_KEY
from .check import ALL, COMMITTERS, Severity, check
from .job_facts import JobFacts

_PURGE, _PURGE_AGE = "fs.s3a.multipart.purge", "fs.s3a.multipart.purge.age"
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "": 1}


def lifecycle_days(root: TableRoot) -> Step[float | None]:
    """Days after which the bucket aborts uploads below ``root``; infinite: never, ``None``: the
    store does not tell."""
    found = yield ListLifecycleRules()
    if isinstance(found, Unknown):
        return None
    return least_abort_days(found.rules, f"{root.prefix}/")


def _seconds(text: str) -> float | None:
    """A duration as Hadoop writes it: ``24h``; seconds where it has no unit."""
    match = re.fullmatch(r"(\d+)\s*(ms|s|m|h|d|)", text.strip().lower())
    return int(match[1]) * _UNITS[match[2]] if match else None


def _longest(c: JobFacts) -> float:
    return c.longest_job_seconds or JobSpec.max_duration


def _needed(c: JobFacts) -> str:
    return f"a job may take {_longest(c) / 3600:.0f} h, its recovery {RECOVERY / 3600:.0f} h more"


@check(
    "multipart-purge",
    Severity.ERROR,
    "uploads of the whole bucket are aborted by age",
    reason="Each start of the file system, in every executor, aborts the bucket's uploads that "
    "are older than purge.age: those of running jobs, of jobs that wait for their recovery, and "
    "of other applications.",
    source="S3AFileSystem.initMultipartUploads; Hadoop's page on third-party stores (deprecated)",
    remedy=f"Set spark.hadoop.{_PURGE}=false and use a lifecycle rule.",
    committers=ALL,
)
def multipart_purge(c: JobFacts) -> Iterator[str]:
    age = _seconds(c.value(_PURGE_AGE))
    if c.is_on(_PURGE) and (age is None or age < _longest(c) + RECOVERY):
        yield f"{c.describe(_PURGE, _PURGE_AGE)}; {_needed(c)}"


@check(
    "lifecycle-too-short",
    Severity.ERROR,
    "a lifecycle rule that aborts the uploads of running jobs",
    reason="The rule counts from an upload's start, so the first files of a long job go first; "
    "its commit then fails for files that were written whole.",
    source="S3: AbortIncompleteMultipartUpload; CommitOperations.innerCommit",
    remedy="Set DaysAfterInitiation to the longest job and a day for its recovery.",
    committers=COMMITTERS,
)
def lifecycle_too_short(c: JobFacts) -> Iterator[str]:
    if c.lifecycle_days is not None and c.lifecycle_days * DAY < _longest(c):
        yield f"{c.lifecycle_days} days; {_needed(c)}"


@check(
    "lifecycle-tight",
    Severity.WARNING,
    "a lifecycle rule that leaves no time for recovery",
    reason="A job that died while it committed can be rolled forward only while its uploads are "
    "there.",
    source="S3: AbortIncompleteMultipartUpload; docs/s3a-recovery.md",
    remedy="Set DaysAfterInitiation to the longest job and a day for its recovery.",
    committers=COMMITTERS,
)
def lifecycle_tight(c: JobFacts) -> Iterator[str]:
    if c.lifecycle_days is None:
        return
    given = c.lifecycle_days * DAY
    if _longest(c) <= given < _longest(c) + RECOVERY:
        yield f"{c.lifecycle_days} days; {_needed(c)}"


@check(
    "lifecycle-missing",
    Severity.WARNING,
    "no lifecycle rule for uploads that nobody completes",
    reason="Killed tasks leave uploads, and with abort.pending.uploads off every failed job of the "
    "magic committer leaves those of all its tasks that had ended: they are stored, paid for, and "
    "seen by no listing of files.",
    source="AbstractS3ACommitter.abortPendingUploadsInCleanup; tried with hadoop-aws 3.5.0; S3: "
    "AbortIncompleteMultipartUpload",
    remedy="Add a rule with AbortIncompleteMultipartUpload, of the longest job's days and one more "
    "for recovery; zero-rename s3a-recover removes them sooner.",
    committers=COMMITTERS,
)
def lifecycle_missing(c: JobFacts) -> Iterator[str]:
    if c.lifecycle_days == inf and not c.is_on(ABORT_UPLOADS_KEY):
        yield c.describe(ABORT_UPLOADS_KEY)
