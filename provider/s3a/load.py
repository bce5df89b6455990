"""A load by one of Hadoop's S3A committers: around the submission, from checks to report."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...committer.errors import RefusedError, VerificationError, ZeroRenameError
from ...committer.job_spec import Mode
from ...committer.periodic import repeating
from ...committer.s3.requests import Step
from ...s3a.hadoop.staging_dir import staging_left
from ...s3a.runs import ledger
from ...s3a.runs.open_tries import renew_try
from ..runs.reports import one_line, summary
from .configuration import Load
from .late_commits import check_come_back, check_silent
from .load_report import described, s3a_report, verified
from .tries import Earlier, Tries

if TYPE_CHECKING:
    from ...committer import Table
    from ..runs.task_run import TaskRun

_log = logging.getLogger(__name__)
#: Seconds between the operator's heartbeats.
INTERVAL = 30.0


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

    def report_of(
        record: ledger.TryRecord, writes: list[ledger.Known[ledger.WriteRecord]]
    ) -> dict[str, Any]:
        jobs = described(table, writes)
        at = max(known.at for known in writes)
        return s3a_report(table, record.committer, record.uuid, jobs, at)

    found = Tries(table, run.once, report_of, insist=on_repeat == "append").settle()
    if found is None:
        return None
    decided = run.on_repeat(on_repeat, found.record.owner)
    if decided == "skip":
        check_come_back(table, run.once)
        report = found.report | {"repeated": True}
        _log.info("Not submitted: this run has committed %s", one_line(report))
        _log.info("To load again, clear the task or give on_repeat='append'.")
        return report
    if decided == "replace_own" and mode in (Mode.APPEND, None):
        raise _would_double(table, found)
    return None


def _would_double(table: Table, found: Earlier) -> RefusedError:
    return RefusedError(
        f"This run has committed already (try {found.try_number}, job {found.report['job']}), by "
        f"the {found.record.committer} committer, and the rows of one such job cannot be replaced, "
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
        self.uuid = ledger.run_uuid()
        self._table = table
        self._try = ledger.TryRecord(
            uuid=self.uuid,
            once=run.once,
            owner=run.handoff().owner,
            committer=load.committer,
            mode=None if load.mode is None else str(load.mode),
            partitions=load.partitions,
            interval=INTERVAL,
        )

    @contextmanager
    def submitted(self) -> Iterator[None]:
        """On record, with heartbeats, while the application runs.

        Written before anything is submitted: an application that finds a later try's record
        writes nothing, and a later try finds what this one's application writes.
        """
        self._try = self._table.run(ledger.open_try(self._table.root, self._try))
        try:
            check_silent(self._table, self._try.once)
        except ZeroRenameError:
            # Nothing was submitted.
            self._note(ledger.close_try(self._table.root, replace(self._try, state=ledger.UNDONE)))
            raise
        try:
            with repeating(self._send_heartbeat, INTERVAL):
                yield
        except Exception:
            # What the application left is for the next try, or for recovery, to settle.
            self._note(self._changed(state=ledger.FAILED))
            raise

    def report(self, staging: Path | None = None) -> dict[str, Any]:
        """Verify what the application did, put it on record, and say it.

        :param staging: the staging folder, where it can be seen from here.
        :raises VerificationError: it is not what a committed job leaves, or there is nothing; or
            an earlier try that counted as dead has committed as well.
        """
        root = self._table.root
        writes = list(self._table.run(ledger.writes_of(root, self.uuid)))
        try:
            if not writes:
                writes = [self._raw_write()]
            unfinished = [w for w in writes if w.record.state != ledger.WRITTEN]
            if unfinished:
                raise VerificationError(
                    f"The application ended well, and its record of {unfinished[0].record.uuid} "
                    f"says {unfinished[0].record.state}.",
                    table=root.url,
                    job=unfinished[0].record.uuid,
                    remedy="An application may not go on after a failed save(). Load again.",
                )
            self._check_destinations(writes)
            jobs = verified(self._table, writes)
        except ZeroRenameError:
            self._note(self._changed(state=ledger.FAILED))
            raise
        for job in jobs if staging is not None else ():
            left = staging_left(str(staging), job.uuid)
            if left:
                _log.warning("Job %s left %s files in %s", job.uuid, len(left), staging)
        decided_at = max(known.at for known in writes)
        report = s3a_report(self._table, self.load.committer, self.uuid, jobs, decided_at)
        done = replace(self._try, state=ledger.COMMITTED, report=report)
        self._table.run(ledger.close_try(root, done))
        left = self._table.run(ledger.remove_writes(root, self.uuid))
        if left:
            _log.warning("Records of this try that nobody needs any more were left: %s", left)
        _log.info("Committed %s", summary(report))
        check_come_back(self._table, self._try.once)
        return report

    def _check_destinations(self, writes: list[ledger.Known[ledger.WriteRecord]]) -> None:
        root = self._table.root
        mine = [
            w
            for w in writes
            if w.record.destination == root.url or w.record.destination.startswith(f"{root.url}/")
        ]
        if not mine:
            raise VerificationError(
                f"The application ended well, and wrote {writes[0].record.destination} only.",
                table=root.url,
                remedy="It has to save() to this table: leave its table out, or mend the task's.",
            )
        if self.load.partitions and self.load.mode is Mode.REPLACE:
            named = {w.record.partition for w in mine if w.record.partition}
            others = sorted(named - set(self.load.partitions))
            if others:
                raise VerificationError(
                    f"The application also replaced partitions that its task does not name: "
                    f"{', '.join(others[:5])}.",
                    table=root.url,
                    remedy="Mend the application's partitions= or the task's partition.",
                )

    def _raw_write(self) -> ledger.Known[ledger.WriteRecord]:
        """An application that does not use ``save()`` makes one write, at the table's root, under
        the try's own UUID."""
        write = ledger.WriteRecord(
            uuid=self.uuid,
            run=self.uuid,
            number=0,
            committer=self.load.committer,
            destination=self._table.root.url,
            mode=self._try.mode or "",
            state=ledger.WRITTEN,
            among=self.load.partitions,
        )
        return ledger.Known(write, 0.0, self._try.opened_at, self._try.opened_at)

    def _send_heartbeat(self) -> None:
        self._table.run(self._changed(interval=INTERVAL))

    def _changed(self, **changes: Any) -> Step[bool]:
        return renew_try(self._table.root, self._try, **changes)

    def _note(self, step: Step[Any]) -> None:
        """Put a state on record where that must not hide why the task fails."""
        try:
            self._table.run(step)
        except ZeroRenameError as error:
            _log.warning("What became of this try could not be put on record: %s", error)
