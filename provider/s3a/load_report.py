"""Report of a load by one of Hadoop's committers, in the shape of a native report.

A committer does not count rows: they are read from the files' footers. A partition has no epoch.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...committer.errors import VerificationError
from ...committer.layout import TableRoot
from ...committer.parquet.footers import count_rows
from ...s3a.hadoop.settings import Committer
from ...s3a.runs import ledger
from ...s3a.verification.committed_files import files_since
from ...s3a.verification.expectation import Expectation
from ...s3a.verification.verify import verify_job
from ...s3a.verification.written_rows import check_rows
from .tries import marker_job

if TYPE_CHECKING:
    from ...committer import Table

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Contents:
    """Files of one partition; ``rows`` is ``None`` where they were not counted."""

    files: int = 0
    rows: int | None = 0
    bytes: int = 0

    def __add__(self, other: Contents) -> Contents:
        counted = self.rows is not None and other.rows is not None
        rows = (self.rows or 0) + (other.rows or 0) if counted else None
        return Contents(self.files + other.files, rows, self.bytes + other.bytes)


@dataclass(frozen=True)
class Job:
    """One committed job of a try.

    :param files: how many it committed, of ``bytes`` in all; ``None``: not known any more.
    :param partitions: what it wrote to each, as far as known.
    """

    uuid: str
    files: int | None
    bytes: int | None
    rows: int | None = None
    partitions: dict[str, Contents] = field(default_factory=dict)


def verified(table: Table, writes: Sequence[ledger.Known[ledger.WriteRecord]]) -> tuple[Job, ...]:
    """Verify each write of a try that has just ended.

    :raises VerificationError: one is not what a committed job leaves.
    """
    return tuple(_verified(table, known) for known in writes)


def described(table: Table, writes: Sequence[ledger.Known[ledger.WriteRecord]]) -> tuple[Job, ...]:
    """The jobs of an earlier try that is known to have committed. Its marker may be a later
    job's by now, and its files may be replaced: then what its own report says is told.

    :raises VerificationError: it is not so, and what is there is not what the job should leave.
    """
    jobs = []
    for known in writes:
        try:
            jobs.append(_verified(table, known))
        except VerificationError:
            root = TableRoot.parse(known.record.destination)
            if table.run(marker_job(root)) in (None, known.record.uuid):
                raise
            jobs.append(_reported(table, known.record))
    return tuple(jobs)


def _verified(table: Table, known: ledger.Known[ledger.WriteRecord]) -> Job:
    write = known.record
    root = TableRoot.parse(write.destination)
    if write.dynamic:
        # No marker is written (SPARK-35279): the record says that Spark has returned.
        files = table.run(files_since(table.root, int(known.since * 1000)))
        return _job(table, write, files)
    since_ms = int(known.since * 1000)
    expected = Expectation(write.committer, write.uuid, since_ms, write.rows, write.among)
    reports = ledger.report_dir(table.root, write)
    found = table.run(verify_job(root, expected, report_dir=reports))
    for warning in found.warnings:
        _log.warning("Job %s: %s", write.uuid, warning)
    return _job(table, write, dict(found.sizes))


def _job(table: Table, write: ledger.WriteRecord, files: dict[str, int]) -> Job:
    partitions = {name: Contents() for name in (write.partition, *write.emptied) if name}
    rows = count_rows(table.driver, files)
    for key, size in files.items():
        name = table.root.partition_of_data_key(key)
        if name is not None:
            one = Contents(1, None if rows is None else rows[key], size)
            partitions[name] = partitions.get(name, Contents()) + one
    counted = None if rows is None else sum(rows.values())
    names_none = write.committer == Committer.CLASSIC
    check_rows(table.root, write.uuid, write.rows, counted, at_least=names_none)
    return Job(write.uuid, len(files), sum(files.values()), counted, partitions)


def _reported(table: Table, write: ledger.WriteRecord) -> Job:
    report = table.run(ledger.read_report(table.root, write))
    if report is None:
        return Job(write.uuid, None, None)
    return Job(write.uuid, report.files, report.bytes)


def s3a_report(
    table: Table, committer: str, run: str, jobs: Sequence[Job], decided_at: float
) -> dict[str, Any]:
    """A try's jobs as a dictionary, with the members of :func:`.reports.commit_report` and:
    ``committer``; ``jobs``, the UUIDs. ``job`` is the UUID, of several the try's own.

    :param decided_at: seconds by the store's clock.
    """
    entries: dict[str, Contents] = {}
    for job in jobs:
        for name, contents in job.partitions.items():
            entries[name] = entries.get(name, Contents()) + contents
    partitions = [
        {"partition": name, "epoch": None, **vars(contents), "removed": None}
        for name, contents in sorted(entries.items())
    ]
    return {
        "job": jobs[0].uuid if len(jobs) == 1 else run,
        "table": table.root.url,
        "files": _total(job.files for job in jobs),
        "rows": _total(job.rows for job in jobs),
        "bytes": _total(job.bytes for job in jobs),
        "decided_at": decided_at,
        "repeated": False,
        "partitions": partitions,
        "partition": partitions[0]["partition"] if len(partitions) == 1 else None,
        "epoch": None,
        "committer": committer,
        "jobs": [job.uuid for job in jobs],
    }


def _total(numbers: Iterable[int | None]) -> int | None:
    known = list(numbers)
    return None if None in known else sum(number or 0 for number in known)
