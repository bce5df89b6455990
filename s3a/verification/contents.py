"""Contents of what a write committed: verified, counted by partition, and compared with its rows.

Spark names a file by task and folder alone: rows that it takes for those of two partitions, and
whose folders have one name, make two files of one key, of which the later one stays. Every
committer reports such a job as committed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from ...committer.errors import VerificationError, counted
from ...committer.format.layout import TableRoot
from ...committer.format.parquet.footers import count_rows
from ...committer.store.requests import Step
from ...committer.table import Table
from ..hadoop.job_traces import read_marker
from ..runs.ledger import read_report, report_dir
from ..runs.try_record import WriteRecord
from .verify import Expectation, verify_job

_log = logging.getLogger("zero_rename.s3a.verification.contents")


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
class CommittedWrite:
    """One committed job of a try.

    :param files: how many it committed, of ``bytes`` in all; ``None``: not known any more.
    :param partitions: what it wrote to each, as far as known.
    """

    uuid: str
    files: int | None
    bytes: int | None
    rows: int | None = None
    partitions: Mapping[str, Contents] = field(default_factory=dict)


def verified(table: Table, records: TableRoot, write: WriteRecord) -> CommittedWrite:
    """Verify a write that has ended, and see that its files hold the rows that Spark wrote.

    :param records: the table beside which the try is on record.
    :raises VerificationError: it is not what a committed job leaves.
    """
    expected = Expectation(write.committer, write.uuid, write.since_ms, write.rows, write.among)
    reports = report_dir(records, write)
    found = table.run(verify_job(TableRoot.parse(write.destination), expected, report_dir=reports))
    for warning in found.warnings:
        _log.warning("Job %s: %s", write.uuid, warning)
    partitions = {name: Contents() for name in (write.partition, *write.emptied) if name}
    rows = count_rows(table.driver, found.sizes)
    for key, size in found.sizes.items():
        name = table.root.partition_of_data_key(key)
        if name is not None:
            one = Contents(1, None if rows is None else rows[key], size)
            partitions[name] = partitions.get(name, Contents()) + one
    hold = None if rows is None else sum(rows.values())
    check_rows(table.root, write.uuid, write.rows, hold)
    return CommittedWrite(write.uuid, found.files, found.bytes, hold, partitions)


def check_rows(root: TableRoot, job: str, wrote: int | None, hold: int | None) -> None:
    """See that no row is missing.

    :param wrote: rows that Spark wrote, ``hold`` those that the job's files hold; ``None``:
        nobody could count them.
    :raises VerificationError: the numbers differ.
    """
    if wrote is None or hold is None or hold == wrote:
        return
    raise VerificationError(
        f"Spark wrote {counted(wrote, 'row')}, and the files of the job hold {hold:,}. Where rows "
        "are missing, two partition values have shared a folder's name, and one file has replaced "
        "another.",
        table=root.url,
        job=job or None,
        remedy="Nothing should read this load. An overwrite can be loaded again once the cause is "
        "mended; after an append, remove the job's files first: its report or its _SUCCESS names "
        "them.",
    )


def is_proved(records: TableRoot, write: WriteRecord) -> Step[bool]:
    """Whether the store itself says that a write committed: its ``_SUCCESS``, or its report."""
    if (yield from marker_job(TableRoot.parse(write.destination))) == write.uuid:
        return True
    report = yield from read_report(records, write)
    return report is not None and report.marker.success


def marker_job(root: TableRoot) -> Step[str | None]:
    """The job whose ``_SUCCESS`` lies at a destination."""
    marker = yield from read_marker(root.prefix)
    return marker.job if marker.said is not None and marker.said.marker.success else None
