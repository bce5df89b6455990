"""Settlement of a run's earlier tries: rows loaded twice are what a retry must never make.

The ledger (:mod:`~...s3a.runs.ledger`) says which writes each try began. Whether a write committed
is read from three places, since each can be missing: its own record, which the application writes
after Spark has returned; the ``_SUCCESS`` with its UUID; the committer's report. Of what is left
undecided, recovery makes one or the other. What then still cannot be told is asked of a person
where rows would be doubled (append), and loaded again where it cannot harm (replace).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ...committer.errors import OutcomeUnknownError, RefusedError, VerificationError
from ...committer.job_spec import Mode
from ...committer.layout import UNPARTITIONED, TableRoot
from ...committer.records.success_marker import SuccessMarker
from ...committer.s3.deletion import remove
from ...committer.s3.requests import Absent, Get, Step
from ...s3a.hadoop.settings import Committer
from ...s3a.recovery.plan import Action
from ...s3a.recovery.recover import JobOutcome, RecoveryOptions, recover_jobs
from ...s3a.runs import ledger
from ...s3a.verification.committed_files import files_since

if TYPE_CHECKING:
    from ...committer import Table

_log = logging.getLogger(__name__)
#: Rolled back; files that stay are looked for by name.
_UNDOABLE = (JobOutcome.ROLLED_BACK, JobOutcome.FILES_LEFT)
_SETTLED = (ledger.COMMITTED, ledger.UNDONE)


@dataclass(frozen=True)
class Earlier:
    """The latest of a run's tries that committed."""

    record: ledger.TryRecord

    @property
    def try_number(self) -> int | None:
        return self.record.owner.try_number

    @property
    def report(self) -> dict[str, Any]:
        return dict(self.record.report or {})


class Tries:
    """A run's tries so far.

    :param report_of: makes the report of a try's committed writes.
    :param insist: load again also where that may double rows; a person has said so.
    """

    def __init__(
        self,
        table: Table,
        once: str,
        report_of: Callable[[ledger.TryRecord, list[ledger.Known]], dict[str, Any]],
        insist: bool = False,
    ) -> None:
        self._table = table
        self._once = once
        self._insist = insist
        self._report_of = report_of

    def settle(self) -> Earlier | None:
        """Make sure of every earlier try. Returns the last that committed.

        :raises OutcomeUnknownError: one is at work, or what it did could not be found out now.
        :raises RefusedError: it may have added rows, and nobody but a person can tell.
        """
        latest = None
        for known in self._table.run(ledger.tries_of(self._table.root, self._once)):
            record = known.record
            if record.state not in _SETTLED:
                record = self._settled(known)
            if record.state == ledger.COMMITTED:
                latest = Earlier(record)
        return latest

    def _settled(self, known: ledger.Known[ledger.TryRecord]) -> ledger.TryRecord:
        record, root = known.record, self._table.root
        writes = list(self._table.run(ledger.writes_of(root, record.uuid)))
        check_dead(self._table, record, writes)
        if not writes:
            writes = [self._raw_write(known)]
        unsure = [w for w in writes if not is_committed(self._table, w)]
        if unsure:
            forward = self._recover(record, writes) | self._finished_by_others(record)
            unsure = [
                w
                for w in unsure
                if w.record.uuid not in forward and not is_committed(self._table, w)
            ]
        last = writes[-1].record
        report = self._reported(record, writes) if not unsure and last.part == last.parts else None
        if report is not None:
            done = replace(record, state=ledger.COMMITTED, report=report, opened_at=known.since)
        else:
            self._undo(record, writes, unsure)
            replaced = tuple(w.record.uuid for w in writes if w not in unsure)
            done = replace(record, state=ledger.UNDONE, opened_at=known.since, replaced=replaced)
        self._table.run(ledger.close_try(root, done))
        _log.info("Try %s of this run is %s", record.owner.try_number, done.state)
        return done

    def _reported(
        self, record: ledger.TryRecord, writes: list[ledger.Known[ledger.WriteRecord]]
    ) -> dict[str, Any] | None:
        """The report of a try that committed; ``None`` for one that did not pass verification and
        can be loaded again.

        :raises VerificationError: it did not, and loading again would add its rows twice.
        """
        try:
            return self._report_of(record, writes)
        except VerificationError:
            if not self._insist and any(_adds(write.record) for write in writes):
                raise
            return None

    def _raw_write(self, known: ledger.Known[ledger.TryRecord]) -> ledger.Known:
        """What an application that does not use ``save()`` would have written: one job, at the
        table's root, under the try's own UUID. There may have been none."""
        record = known.record
        write = ledger.WriteRecord(
            uuid=record.uuid,
            run=record.uuid,
            number=0,
            committer=record.committer,
            destination=self._table.root.url,
            mode=record.mode or "",
            state=ledger.FAILED,
            opened_at=known.since,
        )
        return ledger.Known(write, known.silent_for, known.since, known.at)

    def _recover(
        self, record: ledger.TryRecord, writes: list[ledger.Known[ledger.WriteRecord]]
    ) -> frozenset[str]:
        """Roll what the try left forward or back. Returns the jobs rolled forward."""
        if record.committer == Committer.CLASSIC:
            return frozenset()
        forward = set()
        root = self._table.root
        folders = {w.record.partition for w in writes if w.record.partition}
        # Of a staging committer's job, this run's own files are known by their names.
        staged = Committer(record.committer).is_staging
        options = RecoveryOptions(
            apply=True,
            direction=Action.BACK if staged else None,
            dead=frozenset({record.uuid}),
            jobs=frozenset(w.record.uuid for w in writes),
            folders=tuple(sorted(folders)),
        )
        for job in self._table.run(recover_jobs(root, options)):
            _log.info("Job %s of an earlier try: %s: %s", job.job, job.outcome, job.reason)
            if job.outcome is JobOutcome.ROLLED_FORWARD:
                forward.add(job.job)
            if job.outcome not in _UNDOABLE and job.outcome is not JobOutcome.ROLLED_FORWARD:
                raise OutcomeUnknownError(
                    f"An earlier try left a job that could not be settled ({job.outcome}): "
                    f"{job.reason} Nothing was submitted.",
                    table=root.url,
                    job=job.job,
                    remedy=f"Look at it: zero-rename s3a-recover {root.url}",
                )

        return frozenset(forward)

    def _finished_by_others(self, record: ledger.TryRecord) -> frozenset[str]:
        """The try's jobs that maintenance rolled forward before this try came."""
        for known in self._table.run(ledger.tries_of(self._table.root, self._once)):
            if known.record.uuid == record.uuid:
                return frozenset(known.record.recovered)
        return frozenset()

    def _undo(
        self,
        record: ledger.TryRecord,
        writes: list[ledger.Known[ledger.WriteRecord]],
        unsure: list[ledger.Known[ledger.WriteRecord]],
    ) -> None:
        """See that a try that did not commit as a whole has no rows in the table that loading
        again would double.

        :raises RefusedError: it may have.
        """
        if self._insist:
            return
        done = [w for w in writes if w not in unsure and _adds(w.record)]
        if done:
            raise self._doubtful(
                record,
                f"{len(done)} of its writes committed and others did not, so loading all again "
                "would add their rows twice",
            )
        for write in unsure:
            if _adds(write.record):
                self._undo_write(record, write)

    def _undo_write(
        self, record: ledger.TryRecord, write: ledger.Known[ledger.WriteRecord]
    ) -> None:
        root = TableRoot.parse(write.record.destination)
        files = self._table.run(files_since(root, int(write.since * 1000)))
        if Committer(write.record.committer).is_staging:
            # Their names carry the job's UUID, so these are its files and no other's.
            mine = [key for key in files if write.record.uuid in key]
            left = self._table.run(remove((key, None) for key in mine))
            if left:
                cause = next(iter(left.values()))
                raise self._doubtful(
                    record,
                    f"its job {write.record.uuid} left {len(mine)} files in {root.url}, and the "
                    f"store did not confirm that they are removed ({cause})",
                )
            if mine:
                _log.warning("Removed %s files of job %s", len(mine), write.record.uuid)
            return
        if files:
            raise self._doubtful(
                record,
                f"since it began, {len(files)} files came to {root.url}, such as {min(files)}; "
                f"they may be its own, which the {write.record.committer} committer does not mark",
            )

    def _doubtful(self, record: ledger.TryRecord, why: str) -> RefusedError:
        return RefusedError(
            f"Try {record.owner.try_number} of this run ended without saying what it added: {why}. "
            "Nothing was submitted.",
            table=self._table.root.url,
            job=record.uuid,
            remedy="See whether its rows are there. If they are not, submit with "
            "on_repeat='append'; if they are, mark the task as successful. With mode='overwrite' "
            "and a partition a retry needs no such question.",
        )


def check_dead(
    table: Table, record: ledger.TryRecord, writes: Sequence[ledger.Known[ledger.WriteRecord]]
) -> None:
    """See that a try's application has stopped writing.

    :raises OutcomeUnknownError: it sent a heartbeat lately.
    """
    for write in writes:
        if write.record.state == ledger.WRITING and write.silent_for < ledger.HEARTBEAT_TIMEOUT:
            raise OutcomeUnknownError(
                f"The application of try {record.owner.try_number} is still writing: it sent "
                f"a heartbeat {write.silent_for:.0f} s ago. Nothing was submitted.",
                table=table.root.url,
                job=write.record.uuid,
                remedy="Let the task be retried: what that try commits is then reported. Or "
                "end its application.",
            )


def is_committed(table: Table, write: ledger.Known[ledger.WriteRecord]) -> bool:
    """Whether a write committed, by its record, its marker or its report."""
    record = write.record
    if record.state == ledger.WRITTEN:
        return True
    if record.committer == Committer.CLASSIC:
        return False
    root = TableRoot.parse(record.destination)
    if table.run(marker_job(root)) == record.uuid:
        return True
    report = table.run(ledger.read_report(table.root, record))
    return report is not None and report.marker.success


def _adds(record: ledger.WriteRecord) -> bool:
    """Whether the same write once more would add its rows to those that are there. Otherwise what
    is there is replaced, or met by fail-if-exists."""
    return record.mode not in (Mode.REPLACE, Mode.FAIL_IF_EXISTS)


def marker_job(root: TableRoot) -> Step[str | None]:
    """The job whose ``_SUCCESS`` lies at a destination."""
    found = yield Get(root.marker_key(UNPARTITIONED))
    if isinstance(found, Absent):
        return None
    marker = SuccessMarker.parse_or_none(found.body)
    return marker.job if marker is not None and marker.success else None
