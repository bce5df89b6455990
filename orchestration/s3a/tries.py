"""Settlement of a run's earlier attempts: a retry must never load rows twice.

The record of an attempt (:mod:`~.s3a.runs.ledger`) names the writes that it began. There are three
proofs that a write committed, since each can be missing: its entry in the record, which the
application makes after Spark has returned; the ``_SUCCESS`` with its UUID; the committer's report.
Recovery rolls writes without proof forward or back. If it is then still not known whether a write
committed, a retry is refused if it could double rows (append), and loads again if it cannot
(replace).

A retry takes an application for dead after :data:`~.try_record.HEARTBEAT_TIMEOUT` seconds without a
heartbeat. But Hadoop's committers do not refuse the commit of an application that was only paused.
So the record is fenced first, on the condition that no heartbeat has come: an application that
finds its record fenced ends its writes. A commit that still comes later is found by
:func:`refuse_late_commits`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...committer.errors import (
    OutcomeUnknownError,
    RefusedError,
    VerificationError,
    counted,
    first_few,
)
from ...committer.format.layout import TableRoot
from ...committer.store.deletion import remove
from ...s3a.hadoop.settings import STAGING, UNIQUE_KEY
from ...s3a.recovery.liveness import Action, RecoveryOptions
from ...s3a.recovery.recover import JobOutcome, recover_jobs
from ...s3a.runs import ledger, try_record
from ...s3a.runs.try_record import (
    COMMITTED,
    FENCED,
    SETTLED,
    UNDONE,
    StoredTry,
    TryRecord,
    WriteRecord,
)
from ...s3a.verification.verify import files_since, is_proved, may_be_its

if TYPE_CHECKING:
    from ...committer import Table

_log = logging.getLogger(__name__)
#: Outcomes of a job that was rolled back; files that were left are searched by name.
_UNDOABLE = (JobOutcome.ROLLED_BACK, JobOutcome.FILES_LEFT)
#: Seconds between two polls of an attempt that may be writing.
_LOOK_EVERY = 5.0
_SHOWN = 5


class Tries:
    """The attempts of a run so far.

    :param report_of: makes the report of an attempt from its committed writes.
    :param insist: load again even if that may double rows: a user has asked for it.
    :param pause: sleeps so many seconds, between two polls of an attempt's heartbeat.
    :param rolls_back: roll no job of them forward.
    """

    def __init__(
        self,
        table: Table,
        idempotency_key: str,
        report_of: Callable[[TryRecord, Sequence[WriteRecord]], dict[str, Any]],
        insist: bool = False,
        pause: Callable[[float], object] = time.sleep,
        rolls_back: bool = False,
    ) -> None:
        self._table = table
        self._pause = pause
        self._rolls_back = rolls_back
        self._idempotency_key = idempotency_key
        self._insist = insist
        self._report_of = report_of

    def settle(self) -> TryRecord | None:
        """Find out how every earlier attempt ended, and finish or undo it.

        :return: the last attempt that committed; ``None`` if none has.
        :raises OutcomeUnknownError: one is at work, or its end cannot be found out now.
        :raises RefusedError: one may have added rows, and only a person can find out.
        """
        latest, root = None, self._table.root
        for known in self._table.run(ledger.tries_of(root, self._idempotency_key)):
            if known.record.state in SETTLED:
                record = self._table.run(ledger.close_settled(root, known))
            else:
                record = self._settled(self._fenced(known))
            if record.state == COMMITTED:
                latest = record
        return latest

    def _fenced(self, known: StoredTry) -> StoredTry:
        """Fence an attempt once it has sent no heartbeat for long enough.

        A killed application sends none. One at work sends its next heartbeat before that time.

        :return: its record after that.
        :raises OutcomeUnknownError: it sent a heartbeat.
        """
        first = known.record
        while known.may_be_writing or not self._table.run(
            ledger.swap(known, replace(known.record, state=FENCED))
        ):
            if known.record.beat_at != first.beat_at:
                raise at_work(self._table, known)
            rest = max(0.0, try_record.HEARTBEAT_TIMEOUT - known.silent_for)
            _log.info(
                "Attempt %s of this run was at work a moment ago; if it sends no heartbeat for "
                "%.0f s more, its application has ended",
                first.owner.try_number,
                rest,
            )
            self._pause(min(rest, _LOOK_EVERY))
            known = self._look(first)
        return self._look(first)

    def _look(self, record: TryRecord) -> StoredTry:
        """Read the present record of an attempt.

        :raises OutcomeUnknownError: it is missing.
        """
        known = self._table.run(ledger.find(self._table.root, self._idempotency_key, record.uuid))
        if known is None:
            raise OutcomeUnknownError(
                f"The record of attempt {record.owner.try_number} of this run was removed while it "
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
            # Maintenance may have rolled some forward before this attempt began.
            known = self._look(record)
            forward |= set(known.record.recovered)
            unsure = [w for w in unsure if w.uuid not in forward or w.empties]
            unsure = [w for w in unsure if not is_committed(self._table, w)]
        root = self._table.root
        # An application that wrote other tables only has not loaded this one.
        is_loaded = any(w.is_to(root) for w in writes)
        is_whole = is_loaded and not unsure and writes[-1].part == writes[-1].parts
        report = self._reported(record, writes) if is_whole else None
        if report is not None:
            changes: dict[str, Any] = {"state": COMMITTED, "report": report, "writes": ()}
            changes["mode"] = record.mode_of(it for it in writes if it.is_to(root))
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
        _log.info("Attempt %s of this run is %s", record.owner.try_number, done.state)
        return done

    def _reported(self, record: TryRecord, writes: Sequence[WriteRecord]) -> dict[str, Any] | None:
        """Return the report of an attempt that committed.

        :return: ``None`` if it did not pass verification and can be loaded again.
        :raises VerificationError: it did not, and loading again would add its rows twice.
        """
        try:
            return self._report_of(record, writes)
        except VerificationError:
            if not self._insist and any(write.is_adding for write in writes):
                raise
            return None

    def _recover(self, record: TryRecord, writes: Sequence[WriteRecord]) -> set[str]:
        """Roll the jobs of an attempt forward or back; return those rolled forward."""
        from ...tables.files_in_log import files_in_log  # Lazy: it loads Parquet readers.

        root = self._table.root
        options = RecoveryOptions(
            apply=True,
            # The files of a staging committer's job have its UUID in their names, so they can be
            # removed.
            direction=Action.BACK if self._rolls_back or record.committer in STAGING else None,
            dead=frozenset({record.uuid}),
            jobs=frozenset(w.uuid for w in writes),
            folders=tuple(sorted({w.partition for w in writes if w.partition})),
            in_log=files_in_log,
            spares_counted=True,
        )
        forward = set()
        for job in self._table.tend(recover_jobs(root, options)):
            _log.info("Job %s of an earlier attempt: %s: %s", job.job, job.outcome, job.reason)
            if job.outcome is JobOutcome.ROLLED_FORWARD:
                forward.add(job.job)
            elif job.outcome not in _UNDOABLE:
                raise OutcomeUnknownError(
                    f"An earlier attempt left a job that could not be settled ({job.outcome}): "
                    f"{job.reason} Nothing was submitted.",
                    table=root.url,
                    job=job.job,
                    remedy=f"Look at it: zero-rename s3a-recover {root.url}",
                )
        return forward

    def _undo(
        self, record: TryRecord, writes: Sequence[WriteRecord], unsure: Sequence[WriteRecord]
    ) -> None:
        """Make sure that loading again doubles no rows of an attempt without a whole commit.

        Files that are certainly its own are removed.

        :raises RefusedError: the table may have rows of it, and loading again would double them.
        """
        table = self._table.root
        done = [w for w in writes if w not in unsure and w.is_adding]
        if done:
            if any(w.is_to(table) for w in writes):
                why = f"{len(done)} of its writes committed and others did not"
            else:
                places = first_few(sorted({w.destination for w in done}))
                why = f"it wrote nothing to this table, and added rows to {places}"
            raise self._doubtful(
                record,
                f"{why}, so loading all again would add their rows twice",
                f"Remove the files of {', '.join(w.uuid for w in done)}, which their reports "
                f"below {ledger.reports_prefix(table, record.uuid)} name, and submit with "
                "on_repeat='append'. Or add what is missing by hand, and mark the task as "
                "successful.",
            )
        for write in (write for write in unsure if write.is_adding):
            root = write.root
            if root.bucket != table.bucket:
                raise self._doubtful(
                    record,
                    f"whether its write to {write.destination} committed is not on record, and "
                    "that bucket is not read from here",
                    f"Look there for files of {write.uuid}; remove them, and submit with "
                    "on_repeat='append'.",
                )
            if _marks_files(record, write):
                # The files' names have the job's UUID, so they are its own.
                came = self._table.run(files_since(root, write.since_ms))
                self._remove(record, write, [key for key in came if write.uuid in key])
                continue
            files = self._table.run(may_be_its(root, write.uuid, write.since_ms, write.among))
            if files:
                raise self._doubtful(
                    record,
                    f"since it began, {counted(len(files), 'file')} came to {root.url} that may be "
                    f"its own, since {_unmarked(write)}: "
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
            f"Attempt {record.owner.try_number} of this run ended without saying what it added: "
            f"{why}. Nothing was submitted.",
            table=self._table.root.url,
            job=record.uuid,
            remedy=f"{remedy} Dagster has no on_repeat: there a new run loads again.",
        )


def at_work(table: Table, known: StoredTry) -> OutcomeUnknownError:
    """Build the error for an attempt whose application has not ended."""
    record = known.record
    return OutcomeUnknownError(
        f"The application of attempt {record.owner.try_number} is still writing: it sent "
        f"a heartbeat {known.silent_for:.0f} s ago. Nothing was submitted.",
        table=table.root.url,
        job=record.uuid,
        remedy="Let the task be retried: what that attempt commits is then reported. Or "
        "end its application.",
    )


def is_committed(table: Table, write: WriteRecord) -> bool:
    """Return whether a write committed, by its entry in the record, its marker or its report."""
    if write.is_done:
        return True
    if write.empties:
        return False
    return table.run(is_proved(table.root, write))


def raw_write(root: TableRoot, record: TryRecord, **changes: Any) -> WriteRecord:
    """Return the write of an application that does not use ``save()``.

    It is one job at the table's root, with the attempt's UUID. The application may not have made
    it.
    """
    given: dict[str, Any] = {"state": try_record.FAILED, **changes}
    return WriteRecord(
        uuid=record.uuid,
        number=0,
        committer=record.committer,
        destination=root.url,
        mode=record.mode or "",
        opened_at=record.opened_at,
        **given,
    )


def _writes_of(root: TableRoot, record: TryRecord) -> tuple[WriteRecord, ...]:
    """Return the writes that an attempt may have committed.

    Its record has none if its application does not use ``save()``, or did not come to it: then it
    is :func:`raw_write`, in the partitions that the attempt may write.
    """
    raw = raw_write(root, record)
    return record.writes or (replace(raw, among=record.partitions if raw.is_adding else ()),)


def _marks_files(record: TryRecord, write: WriteRecord) -> bool:
    """Return whether the names of a write's files have the UUID of its job.

    The staging committers add it. ``save()`` sees to that for each of its writes; for an
    application without ``save()`` the settings of its attempt count. If the job of a service has
    the setting itself, its value is not among them.
    """
    said = {UNIQUE_KEY: "true"} if record.settings is None else record.settings
    is_on = said.get(UNIQUE_KEY, "false").strip().lower() != "false"
    return write.committer in STAGING and (write.number > 0 or is_on)


def _unmarked(write: WriteRecord) -> str:
    """Explain why the names of a write's files do not show that they are its own."""
    if write.committer in STAGING:
        return f"the job has its own {UNIQUE_KEY}, so their names may have no job's UUID"
    return f"the {write.committer} committer does not mark them"


def refuse_late_commits(table: Table, idempotency_key: str, quiet: bool = False) -> None:
    """Check that no undone attempt of a run has committed since it was undone.

    It is called with ``quiet`` after the new attempt's record is written and before anything is
    submitted. So either an application that wakes up finds that record and writes nothing, or its
    heartbeat is found here.

    :param quiet: check also that no undone attempt is writing.
    :raises OutcomeUnknownError: one has sent a heartbeat.
    :raises VerificationError: one has committed, so if a later attempt loaded, the rows are there
        twice. Each retry raises this until the rows are removed: no retry can find out which rows
        to keep.
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
                f"The application of attempt {record.owner.try_number} was silent for longer than "
                f"{try_record.HEARTBEAT_TIMEOUT:.0f} s and counted as dead, and has committed "
                "after all. Where a later attempt loaded, the rows are there twice.",
                table=table.root.url,
                job=jobs[0],
                remedy=f"Where a later attempt loaded, remove the files of {', '.join(jobs)}, "
                f"which their reports below {reports} name. Then mark the task as successful.",
            )
