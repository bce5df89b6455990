"""A load by one of Hadoop's S3A committers: around the submission, from checks to report."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...committer.errors import RefusedError, VerificationError, ZeroRenameError
from ...committer.job_spec import Mode
from ...committer.periodic import repeating
from ...committer.s3.requests import Step
from ...s3a.runs import ledger
from ...s3a.runs.try_record import (
    COMMITTED,
    FAILED,
    OPERATOR_INTERVAL,
    SETTLED,
    UNDONE,
    WRITTEN,
    TryRecord,
    WriteRecord,
    run_uuid,
)
from ...s3a.verification.contents import CommittedWrite, verified
from ..runs.reports import one_line, summary
from .configuration import Load
from .load_report import described, s3a_report
from .tries import Tries, check_come_back, raw_write

if TYPE_CHECKING:
    from ...committer import Table
    from ..runs.task_run import TaskRun

_log = logging.getLogger(__name__)


def loaded_by_s3a(
    table: Table, run: TaskRun, mode: Mode | None, on_repeat: str
) -> dict[str, Any] | None:
    """Settle a run's earlier tries with Hadoop's committers, whichever it is to use now.

    :param mode: what the run is to do, ``None`` where only its application knows.
    :param on_repeat: as the operator was given it.
    :return: the report where nothing is to be loaded.
    :raises OutcomeUnknownError: an earlier try is at work, or cannot be settled just now.
    :raises RefusedError: loading again would double rows.
    """

    def report_of(record: TryRecord, writes: Sequence[WriteRecord]) -> dict[str, Any]:
        return _report(table, record, writes, described(table, writes))

    found = Tries(table, run.once, report_of, insist=on_repeat == "append").settle()
    if found is None:
        return None
    decided = run.on_repeat(on_repeat, found.owner)
    if decided == "skip":
        check_come_back(table, run.once)
        report = dict(found.report or {}) | {"repeated": True}
        _log.info("Not submitted: this run has committed %s", one_line(report))
        _log.info("To load again, clear the task or give on_repeat='append'.")
        return report
    if decided == "replace_own" and mode in (Mode.APPEND, None):
        raise _would_double(table, found)
    return None


def _report(
    table: Table,
    record: TryRecord,
    writes: Sequence[WriteRecord],
    jobs: Sequence[CommittedWrite],
) -> dict[str, Any]:
    decided_at = max(write.ended_at for write in writes) or record.beat_at
    return s3a_report(table, record.committer, record.uuid, jobs, decided_at)


def _would_double(table: Table, found: TryRecord) -> RefusedError:
    job = (found.report or {}).get("job")
    return RefusedError(
        f"This run has committed already (try {found.owner.try_number}, job {job}), by "
        f"the {found.committer} committer, and the rows of one such job cannot be replaced, "
        "only added to. Nothing was submitted.",
        table=table.root.url,
        remedy="Load with mode='overwrite' and a partition, which can be repeated; or give "
        "on_repeat='skip' to report that commit, or 'append' to add the rows once more.",
    )


class S3ALoad:
    """One try of a task.

    :param load: what is loaded, by which committer.
    """

    def __init__(self, table: Table, run: TaskRun, load: Load) -> None:
        self.load = load
        self.uuid = run_uuid()
        self._table = table
        self._try = TryRecord(
            uuid=self.uuid,
            once=run.once,
            owner=run.handoff().owner,
            committer=load.committer,
            mode=None if load.mode is None else str(load.mode),
            partitions=load.partitions,
        )

    @contextmanager
    def submitted(self) -> Iterator[None]:
        """On record, with heartbeats, while the application runs.

        Written before anything is submitted: an application that finds a later try's record
        writes nothing, and a later try finds what this one's application writes.
        """
        root = self._table.root
        self._try = self._table.run(ledger.open_try(root, self._try))
        try:
            check_come_back(self._table, self._try.once, quiet=True)
        except ZeroRenameError:
            # Nothing was submitted.
            self._note(ledger.close_try(root, self._try, state=UNDONE))
            raise
        try:
            with repeating(self._send_heartbeat, OPERATOR_INTERVAL):
                yield
        except Exception:
            # What the application left is for the next try, or for recovery, to settle.
            self._fail()
            raise

    def report(self) -> dict[str, Any]:
        """Verify what the application did, put it on record, and say it.

        :raises VerificationError: it is not what a committed job leaves, or there is nothing; or
            an earlier try that counted as dead has committed as well.
        """
        root = self._table.root
        known = self._table.run(ledger.find(root, self._try.once, self.uuid))
        record = self._try if known is None else known.record
        raw = raw_write(root, record, state=WRITTEN, among=record.partitions)
        writes = record.writes or (raw,)
        try:
            unfinished = [write for write in writes if write.state != WRITTEN]
            if unfinished:
                raise VerificationError(
                    f"The application ended well, and its record of {unfinished[0].uuid} "
                    f"says {unfinished[0].state}.",
                    table=root.url,
                    job=unfinished[0].uuid,
                    remedy="An application may not go on after a failed save(). Load again.",
                )
            self._check_destinations(writes)
            jobs = [verified(self._table, root, write) for write in writes]
        except ZeroRenameError:
            self._fail()
            raise
        report = _report(self._table, record, writes, jobs)
        done = {"state": COMMITTED, "report": report, "writes": ()}
        self._table.run(ledger.close_try(root, self._try, **done))
        left = self._table.run(ledger.remove_reports(root, self.uuid))
        if left:
            _log.warning("Reports of this try that nobody needs any more were left: %s", left)
        _log.info("Committed %s", summary(report))
        check_come_back(self._table, self._try.once)
        return report

    def _check_destinations(self, writes: Sequence[WriteRecord]) -> None:
        root = self._table.root
        mine = [
            w
            for w in writes
            if w.destination == root.url or w.destination.startswith(f"{root.url}/")
        ]
        if not mine:
            raise VerificationError(
                f"The application ended well, and wrote {writes[0].destination} only.",
                table=root.url,
                remedy="It has to save() to this table: leave its table out, or mend the task's.",
            )
        if self.load.partitions and self.load.mode is Mode.REPLACE:
            named = {w.partition for w in mine if w.partition}
            others = sorted(named - set(self.load.partitions))
            if others:
                raise VerificationError(
                    f"The application also replaced partitions that its task does not name: "
                    f"{', '.join(others[:5])}.",
                    table=root.url,
                    remedy="Mend the application's partitions= or the task's partition.",
                )

    def _send_heartbeat(self) -> bool:
        # While the application writes it sends heartbeats itself, and more often.
        sent = ledger.send_heartbeat(self._table.root, self._try, OPERATOR_INTERVAL)
        return self._table.run(sent) is not None

    def _fail(self) -> None:
        def failed(found: TryRecord, _: float) -> TryRecord:
            return found if found.state in SETTLED else replace(found, state=FAILED)

        self._note(ledger.change(self._table.root, self._try, failed))

    def _note(self, step: Step[Any]) -> None:
        """Put a state on record where that must not hide why the task fails."""
        try:
            self._table.run(step)
        except ZeroRenameError as error:
            _log.warning("What became of this try could not be put on record: %s", error)
