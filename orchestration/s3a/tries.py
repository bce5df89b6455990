"""Settlement of a run's earlier tries: rows loaded twice are what a retry must never make.

The try's record (:mod:`~.s3a.runs.ledger`) says which writes it began. Whether a write committed
is read from three places, since each can be missing: its entry there, which the application makes
after Spark has returned; the ``_SUCCESS`` with its UUID; the committer's report. Of what is left
undecided, recovery makes one or the other. What then still cannot be told is asked of a person
where rows would be doubled (append), and loaded again where it cannot harm (replace).

A retry takes an application for dead after :data:`~.try_record.HEARTBEAT_TIMEOUT` seconds of
silence, and nothing in Hadoop's committers refuses the commit of one that was only paused. So the
record is fenced first, on the condition that it is still as silent: from then on the application
ends its writes when it looks. What slips through is found by :func:`refuse_late_commits`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...committer.errors import OutcomeUnknownError, RefusedError, VerificationError, counted
from ...committer.format.layout import TableRoot
from ...committer.store.deletion import remove
from ...s3a.hadoop.settings import STAGING
from ...s3a.recovery.liveness import Action, RecoveryOptions
from ...s3a.recovery.recover import JobOutcome, recover_jobs
from ...s3a.runs import ledger, try_record
from ...s3a.runs.try_record import (
    COMMITTED,
    FENCED,
    SETTLED,
    UNDONE,
    WRITTEN,
    StoredTry,
    TryRecord,
    WriteRecord,
)
from ...s3a.verification.verify import files_since, is_proved, may_be_its

if TYPE_CHECKING:
    from ...committer import Table

_log = logging.getLogger(__name__)
#: Rolled back; files that stay are looked for by name.
_UNDOABLE = (JobOutcome.ROLLED_BACK, JobOutcome.FILES_LEFT)
#: Seconds between two looks at a try that may be writing.
_LOOK_EVERY = 5.0
_SHOWN = 5


class Tries:
    """A run's tries so far.

    :param report_of: makes the report of a try from its committed writes.
    :param insist: load again also where that may double rows; a person has said so.
    :param pause: waits so many seconds for a try's application to be silent for long enough.
    """

    def __init__(
        self,
        table: Table,
        idempotency_key: str,
        report_of: Callable[[TryRecord, Sequence[WriteRecord]], dict[str, Any]],
        insist: bool = False,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._table = table
        self._pause = pause
        self._idempotency_key = idempotency_key
        self._insist = insist
        self._report_of = report_of

    def settle(self) -> TryRecord | None:
        """Make sure of every earlier try. Returns the last that committed.

        :raises OutcomeUnknownError: one is at work, or what it did could not be found out now.
        :raises RefusedError: it may have added rows, and nobody but a person can tell.
        """
        latest = None
        for known in self._table.run(ledger.tries_of(self._table.root, self._idempotency_key)):
            settled = known.record.state in SETTLED
            record = known.record if settled else self._settled(self._fenced(known))
            if record.state == COMMITTED:
                latest = record
        return latest

    def _fenced(self, known: StoredTry) -> StoredTry:
        """A try, once it has been silent for long enough: the application of a killed one is so
        soon, and one at work sends its next heartbeat before.

        :raises OutcomeUnknownError: it sent one.
        """
        first = known.record
        while known.may_be_writing or not self._table.run(
            ledger.swap(known, replace(known.record, state=FENCED))
        ):
            if known.record.beat_at != first.beat_at:
                raise at_work(self._table, known)
            rest = max(0.0, try_record.HEARTBEAT_TIMEOUT - known.silent_for)
            _log.info(
                "Try %s of this run was at work a moment ago; if it sends no heartbeat for %.0f s "
                "more, its application has ended",
                first.owner.try_number,
                rest,
            )
            self._pause(min(rest, _LOOK_EVERY))
            known = self._look(first)
        return self._look(first)

    def _look(self, record: TryRecord) -> StoredTry:
        """The record as it is now.

        :raises OutcomeUnknownError: it is gone.
        """
        known = self._table.run(ledger.find(self._table.root, self._idempotency_key, record.uuid))
        if known is None:
            raise OutcomeUnknownError(
                f"The record of try {record.owner.try_number} of this run was removed while it "
                "was looked at. Nothing was submitted.",
                table=self._table.root.url,
                job=record.uuid,
                remedy="Let the task be retried.",
            )
        return known

    def _settled(self, known: StoredTry) -> TryRecord:
        record = known.record
        writes = _writes_of(self._table.root, record)
        unsure = [w for w in writes if not is_committed(self._table, w)]
        if unsure:
            forward = self._recover(record, writes)
            # Maintenance may have rolled some forward before this try came.
            known = self._look(record)
            forward |= set(known.record.recovered)
            unsure = [w for w in unsure if w.uuid not in forward or w.empties]
            unsure = [w for w in unsure if not is_committed(self._table, w)]
        is_whole = not unsure and writes[-1].part == writes[-1].parts
        report = self._reported(record, writes) if is_whole else None
        if report is not None:
            changes: dict[str, Any] = {"state": COMMITTED, "report": report, "writes": ()}
        else:
            if not self._insist:
                self._undo(record, writes, unsure)
            replaced = tuple(w.uuid for w in writes if w not in unsure)
            changes = {"state": UNDONE, "replaced": replaced}
        done = None
        if known.record.beat_at == record.beat_at:
            done = self._table.run(ledger.settle_try(self._table.root, known, **changes))
        if done is None:
            raise at_work(self._table, self._look(record))
        _log.info("Try %s of this run is %s", record.owner.try_number, done.state)
        return done

    def _reported(self, record: TryRecord, writes: Sequence[WriteRecord]) -> dict[str, Any] | None:
        """The report of a try that committed; ``None`` for one that did not pass verification and
        can be loaded again.

        :raises VerificationError: it did not, and loading again would add its rows twice.
        """
        try:
            return self._report_of(record, writes)
        except VerificationError:
            if not self._insist and any(write.is_adding for write in writes):
                raise
            return None

    def _recover(self, record: TryRecord, writes: Sequence[WriteRecord]) -> set[str]:
        """Roll what the try left forward or back. Returns the jobs rolled forward."""
        root = self._table.root
        options = RecoveryOptions(
            apply=True,
            # Of a staging committer's job, this run's own files are known by their names.
            direction=Action.BACK if record.committer in STAGING else None,
            dead=frozenset({record.uuid}),
            jobs=frozenset(w.uuid for w in writes),
            folders=tuple(sorted({w.partition for w in writes if w.partition})),
        )
        forward = set()
        for job in self._table.tend(recover_jobs(root, options)):
            _log.info("Job %s of an earlier try: %s: %s", job.job, job.outcome, job.reason)
            if job.outcome is JobOutcome.ROLLED_FORWARD:
                forward.add(job.job)
            elif job.outcome not in _UNDOABLE:
                raise OutcomeUnknownError(
                    f"An earlier try left a job that could not be settled ({job.outcome}): "
                    f"{job.reason} Nothing was submitted.",
                    table=root.url,
                    job=job.job,
                    remedy=f"Look at it: zero-rename s3a-recover {root.url}",
                )
        return forward

    def _undo(
        self, record: TryRecord, writes: Sequence[WriteRecord], unsure: Sequence[WriteRecord]
    ) -> None:
        """See that a try that did not commit as a whole has no rows in the table that loading
        again would double.

        :raises RefusedError: it may have.
        """
        done = [w.uuid for w in writes if w not in unsure and w.is_adding]
        if done:
            reports = ledger.reports_prefix(self._table.root, record.uuid)
            raise self._doubtful(
                record,
                f"{len(done)} of its writes committed and others did not, so loading all again "
                "would add their rows twice",
                f"Remove the files of {', '.join(done)}, which their reports below {reports} "
                "name, and submit with on_repeat='append'. Or add what is missing by hand, and "
                "mark the task as successful.",
            )
        for write in (write for write in unsure if write.is_adding):
            root = TableRoot.parse(write.destination)
            if write.committer in STAGING:
                # Their names carry the job's UUID, so they are no other's.
                came = self._table.run(files_since(root, write.since_ms))
                self._remove(record, write, [key for key in came if write.uuid in key])
                continue
            files = self._table.run(may_be_its(root, write.uuid, write.since_ms, write.among))
            if files:
                raise self._doubtful(
                    record,
                    f"since it began, {counted(len(files), 'file')} came to {root.url} that may be "
                    f"its own, since the {write.committer} committer does not mark them: "
                    f"{', '.join(sorted(files)[:_SHOWN])}",
                    "They may hold all of its rows, none, or a part: a commit that fails half-way "
                    "takes back some of its files only. Find out which are its own (Spark gives "
                    "those of one write one UUID), remove them, and submit with "
                    "on_repeat='append'; mark the task as successful only where every row is "
                    "there. With mode='overwrite' and a partition a retry needs no such question.",
                )

    def _remove(self, record: TryRecord, job: WriteRecord, mine: Sequence[str]) -> None:
        left = self._table.run(remove((key, None) for key in mine))
        if left:
            raise self._doubtful(
                record,
                f"its job {job.uuid} left {counted(len(mine), 'file')} in {job.destination}, and "
                f"the store did not confirm that they are removed ({next(iter(left.values()))})",
                "Let the task be retried when the store allows deletes.",
            )
        if mine:
            _log.warning("Removed %s of job %s", counted(len(mine), "file"), job.uuid)

    def _doubtful(self, record: TryRecord, why: str, remedy: str) -> RefusedError:
        return RefusedError(
            f"Try {record.owner.try_number} of this run ended without saying what it added: {why}. "
            "Nothing was submitted.",
            table=self._table.root.url,
            job=record.uuid,
            remedy=f"{remedy} Dagster has no on_repeat: there a new run loads again.",
        )


def at_work(table: Table, known: StoredTry) -> OutcomeUnknownError:
    """The error for a try whose application has not ended."""
    record = known.record
    return OutcomeUnknownError(
        f"The application of try {record.owner.try_number} is still writing: it sent "
        f"a heartbeat {known.silent_for:.0f} s ago. Nothing was submitted.",
        table=table.root.url,
        job=record.uuid,
        remedy="Let the task be retried: what that try commits is then reported. Or "
        "end its application.",
    )


def is_committed(table: Table, write: WriteRecord) -> bool:
    """Whether a write committed, by its entry on record, its marker or its report."""
    if write.state == WRITTEN:
        return True
    if write.empties:
        return False
    return table.run(is_proved(table.root, write))


def raw_write(root: TableRoot, record: TryRecord, **changes: Any) -> WriteRecord:
    """What an application that does not use ``save()`` writes: one job, at the table's root,
    under the try's own UUID. There may have been none."""
    return WriteRecord(
        uuid=record.uuid,
        number=0,
        committer=record.committer,
        destination=root.url,
        mode=record.mode or "",
        opened_at=record.opened_at,
        **{"state": try_record.FAILED, **changes},
    )


def _writes_of(root: TableRoot, record: TryRecord) -> tuple[WriteRecord, ...]:
    """Return the writes that a try may have committed: without ``save()`` it enters none."""
    return record.writes or (raw_write(root, record),)


def refuse_late_commits(table: Table, idempotency_key: str, quiet: bool = False) -> None:
    """See that none of a run's undone tries has committed since.

    Asked with ``quiet`` when the new try's record is written and before anything is submitted:
    either an application that wakes up finds that record and writes nothing, or its heartbeat is
    found here.

    :param quiet: see also that none is writing.
    :raises OutcomeUnknownError: one has sent a heartbeat.
    :raises VerificationError: one has committed: the rows are there twice where a later try
        loaded. Raised each time until somebody has removed them, for no retry can tell which
        rows to keep.
    """
    for known in table.run(ledger.tries_of(table.root, idempotency_key)):
        record = known.record
        if record.state != UNDONE:
            continue
        if quiet and known.may_be_writing:
            raise at_work(table, known)
        writes = _writes_of(table.root, record)
        others = [w for w in writes if w.uuid not in record.replaced]
        jobs = [w.uuid for w in others if is_committed(table, w)]
        if jobs:
            reports = ledger.reports_prefix(table.root, record.uuid)
            raise VerificationError(
                f"The application of try {record.owner.try_number} was silent for longer than "
                f"{try_record.HEARTBEAT_TIMEOUT:.0f} s and counted as dead, and has committed "
                "after all. Where a later try loaded, the rows are there twice.",
                table=table.root.url,
                job=jobs[0],
                remedy=f"Where a later try loaded, remove the files of {', '.join(jobs)}, which "
                f"their reports below {reports} name. Then mark the task as successful.",
            )
