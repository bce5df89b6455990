"""Tries that were settled as having left nothing, and may come back.

A retry takes an application for dead after :data:`~...s3a.runs.ledger.HEARTBEAT_TIMEOUT` seconds
of silence, and nothing in Hadoop's committers refuses the commit of one that was only paused. The
application looks for itself (its write's fence); what slips through is found here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...committer.errors import VerificationError
from ...s3a.runs import ledger
from .tries import check_dead, is_committed

if TYPE_CHECKING:
    from ...committer import Table

_Undone = tuple[ledger.TryRecord, tuple[ledger.Known[ledger.WriteRecord], ...]]


def check_silent(table: Table, once: str) -> None:
    """See that none of a run's undone tries writes or has committed since.

    Asked when the new try's record is written and before anything is submitted: either such an
    application finds the record and writes nothing, or its heartbeat is found here.

    :raises OutcomeUnknownError: one has sent a heartbeat.
    :raises VerificationError: one has committed.
    """
    for record, writes in _undone(table, once):
        check_dead(table, record, writes)
        _check_uncommitted(table, record, writes)


def check_come_back(table: Table, once: str) -> None:
    """See that none of a run's undone tries has committed since.

    :raises VerificationError: one has: the rows are there twice where a later try loaded. Raised
        each time until somebody has removed them, for no retry can tell which rows to keep.
    """
    for record, writes in _undone(table, once):
        _check_uncommitted(table, record, writes)


def _check_uncommitted(
    table: Table, record: ledger.TryRecord, writes: tuple[ledger.Known[ledger.WriteRecord], ...]
) -> None:
    others = [write for write in writes if write.record.uuid not in record.replaced]
    done = [write.record.uuid for write in others if is_committed(table, write)]
    if done:
        raise _come_back(table, record, done)


def _undone(table: Table, once: str) -> Iterator[_Undone]:
    run = table.run
    for known in run(ledger.tries_of(table.root, once)):
        if known.record.state == ledger.UNDONE:
            yield known.record, run(ledger.writes_of(table.root, known.record.uuid))


def _come_back(table: Table, record: ledger.TryRecord, jobs: list[str]) -> VerificationError:
    reports = ledger.report_prefix(table.root, record.uuid, 0).rpartition("/")[0]
    return VerificationError(
        f"The application of try {record.owner.try_number} was silent for longer than "
        f"{ledger.HEARTBEAT_TIMEOUT:.0f} s and counted as dead, and has committed after all. Where "
        "a later try loaded, the rows are there twice.",
        table=table.root.url,
        job=jobs[0],
        remedy=f"Where a later try loaded, remove the files of {', '.join(jobs)}, which their "
        f"reports below {reports}/ name. Then mark the task as successful.",
    )
