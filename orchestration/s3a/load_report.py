"""Report of a load by one of Hadoop's committers, in the shape of a native report.

A committer does not count rows: they are read from the files' footers. A partition has no epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ...committer.errors import VerificationError
from ...committer.layout import TableRoot
from ...s3a.runs.ledger import read_report
from ...s3a.runs.try_record import TryRecord, WriteRecord
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
    report = table.run(read_report(table.root, write))
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
