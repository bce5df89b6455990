"""Lookup of a job's summary report among others."""

from __future__ import annotations

from collections.abc import Iterable

from ...committer.errors import RecordDamagedError
from ...committer.s3.requests import Absent, Get, Step
from .commit_files import JobSummary


def summary_of(job: str, keys: Iterable[str]) -> Step[JobSummary | None]:
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
