"""Report of a load by one of Hadoop's committers, in the shape of a native report: made by its
operator, and asked for by sensors.

A committer does not count rows: they are read from the files' footers. A partition has no epoch.
There is no decision and no head: what its operator put on record says that a job committed, and of
one that no operator ran, the ``_SUCCESS`` with its UUID.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ...committer.errors import VerificationError
from ...committer.format.job_spec import NOBODY
from ...committer.format.layout import TableRoot
from ...s3a.hadoop.job_traces import read_marker
from ...s3a.runs import ledger
from ...s3a.runs.try_record import COMMITTED, TryRecord, WriteRecord
from ...s3a.verification.contents import CommittedWrite, Contents, marker_job, verified

if TYPE_CHECKING:
    from ...committer import Table


def described(table: Table, write: WriteRecord) -> CommittedWrite:
    """A write of an earlier try that is known to have committed. Its marker may be a later job's
    by now, and its files may be replaced: then what its own report says is told.

    :raises VerificationError: it is not so, and what is there is not what the job should leave.
    """
    try:
        return verified(table, table.root, write)
    except VerificationError:
        if table.run(marker_job(TableRoot.parse(write.destination))) in (None, write.uuid):
            raise
    report = table.run(ledger.read_report(table.root, write))
    if report is None:
        return CommittedWrite(write.uuid, None, None)
    return CommittedWrite(write.uuid, report.files, report.bytes)


def s3a_report(
    table: Table, record: TryRecord, writes: Sequence[WriteRecord], jobs: Sequence[CommittedWrite]
) -> dict[str, Any]:
    """A try's jobs as a dictionary, with the members of :func:`.reports.commit_report` and:
    ``committer``; ``jobs``, the UUIDs. ``job`` is the UUID, of several the try's own."""
    entries: dict[str, Contents] = {}
    for job in jobs:
        for name, contents in job.partitions.items():
            entries[name] = entries.get(name, Contents()) + contents
    partitions = [
        {"partition": name, "epoch": None, **vars(contents), "removed": None}
        for name, contents in sorted(entries.items())
    ]
    return {
        "job": jobs[0].uuid if len(jobs) == 1 else record.uuid,
        "table": table.root.url,
        "files": _total(job.files for job in jobs),
        "rows": _total(job.rows for job in jobs),
        "bytes": _total(job.bytes for job in jobs),
        "decided_at": max(write.ended_at for write in writes) or record.beat_at,
        "repeated": False,
        "partitions": partitions,
        "partition": partitions[0]["partition"] if len(partitions) == 1 else None,
        "epoch": None,
        "committer": record.committer,
        "jobs": [job.uuid for job in jobs],
    }


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


def only(report: dict[str, Any], partitions: Sequence[str]) -> dict[str, Any]:
    """A report of these partitions alone; none leaves out nothing."""
    if not partitions:
        return report
    kept = [entry for entry in report["partitions"] if entry["partition"] in partitions]
    totals = {name: _total(entry[name] for entry in kept) for name in ("files", "rows", "bytes")}
    alone = kept[0]["partition"] if len(kept) == 1 else None
    return {**report, **totals, "partitions": kept, "partition": alone}


def _total(numbers: Iterable[int | None]) -> int | None:
    known = list(numbers)
    return None if None in known else sum(number or 0 for number in known)
