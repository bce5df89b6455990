"""A sensor's query for a job of one of Hadoop's committers.

There is no decision and no head: what its operator put on record says that a job committed, and
of one that no operator ran, the ``_SUCCESS`` with its UUID.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...committer.errors import VerificationError
from ...committer.job_spec import NOBODY
from ...committer.layout import TableRoot
from ...s3a.hadoop.job_reports import read_marker
from ...s3a.runs import ledger
from ...s3a.runs.try_record import COMMITTED, TryRecord, WriteRecord
from ...s3a.verification.contents import verified
from .load_report import s3a_report

if TYPE_CHECKING:
    from ...committer import Table


def report_of_run(table: Table, once: str) -> dict[str, Any] | None:
    """The report of the latest of a run's tries that committed."""
    tries = table.run(ledger.tries_of(table.root, once))
    done = [known.record for known in tries if known.record.state == COMMITTED]
    return dict(done[-1].report or {}) if done else None


def report_of_job(table: Table, job: str, partition: str | None) -> dict[str, Any] | None:
    """The report of a job that committed, by its UUID."""
    known = table.run(ledger.find_try(table.root, job))
    if known is not None and known.record.state == COMMITTED:
        report = dict(known.record.report or {})
        if job == report.get("job") or job in report.get("jobs", ()):
            return report
    for place in dict.fromkeys((partition, None)):
        report = _by_marker(table, job, place)
        if report is not None:
            return report
    return None


def _by_marker(table: Table, job: str, place: str | None) -> dict[str, Any] | None:
    folder = table.root.url if place is None else f"{table.root.url}/{place}"
    said = table.run(read_marker(TableRoot.parse(folder).prefix)).said
    if said is None or said.marker.job != job or not said.marker.success:
        return None
    committer, at = said.marker.committer, said.marker.timestamp_ms / 1000
    write = WriteRecord(job, 0, committer, folder, "", place, ended_at=at)
    try:
        found = verified(table, table.root, write)
    except VerificationError:
        return None
    return s3a_report(table, TryRecord(job, job, NOBODY, committer, None), [write], [found])
