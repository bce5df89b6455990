"""Settlement of a run's earlier tries: rows loaded twice are what a retry must never make.

The ledger (:mod:`~...s3a.runs.ledger`) says which writes each try began. Whether a write committed
is read from three places, since each can be missing: its own record, which the application writes
after Spark has returned; the ``_SUCCESS`` with its UUID; the committer's report. Of what is left
undecided, recovery makes one or the other. What then still cannot be told is asked of a person
where rows would be doubled (append), and loaded again where it cannot harm (replace).
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ...committer.errors import OutcomeUnknownError, RefusedError, VerificationError
from ...committer.layout import UNPARTITIONED, TableRoot
from ...committer.records.success_marker import SuccessMarker
from ...committer.s3.deletion import remove
from ...committer.s3.requests import Absent, Get, Step
from ...s3a.hadoop.magic_paths import uuids_in_name
from ...s3a.hadoop.settings import Committer
from ...s3a.recovery.plan import Action
from ...s3a.recovery.recover import JobOutcome, RecoveryOptions, recover_jobs
from ...s3a.runs import ledger
from ...s3a.verification.committed_files import files_since, may_be_its

if TYPE_CHECKING:
    from ...committer import Table

_log = logging.getLogger(__name__)
#: Rolled back; files that stay are looked for by name.
_UNDOABLE = (JobOutcome.ROLLED_BACK, JobOutcome.FILES_LEFT)
#: Seconds between two looks at a try that may be writing.
_LOOK_EVERY = 5.0
_SHOWN = 5
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
    :param pause: waits so many seconds for a try's application to be silent for long enough.
    """

    def __init__(
        self,
        table: Table,
        once: str,
        report_of: Callable[[ledger.TryRecord, list[ledger.Known]], dict[str, Any]],
        insist: bool = False,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._table = table
        self._pause = pause
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
        writes = self._writes_of_the_dead(record) or [self._raw_write(known)]
        unsure = [w for w in writes if not is_committed(self._table, w)]
        if unsure:
            forward = self._recover(record, writes) | self._finished_by_others(record)
            unsure = [
                w
                for w in unsure
                if (w.record.uuid not in forward or w.record.empties)
                and not is_committed(self._table, w)
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

    def _writes_of_the_dead(
        self, record: ledger.TryRecord
    ) -> list[ledger.Known[ledger.WriteRecord]]:
        """A try's writes, once its application has been silent for long enough: a killed one is
        so soon, and one at work sends its next heartbeat before.

        :raises OutcomeUnknownError: it sent one.
        """
        seen: dict[str, float] = {}
        while True:
            writes = list(self._table.run(ledger.writes_of(self._table.root, record.uuid)))
            at_work = [w for w in writes if _may_be_writing(w)]
            if not at_work:
                return writes
            rest = max(ledger.HEARTBEAT_TIMEOUT - write.silent_for for write in at_work)
            if not seen:
                _log.info(
                    "Try %s of this run was writing a moment ago; if it sends no heartbeat for "
                    "%.0f s more, its application has ended",
                    record.owner.try_number,
                    rest,
                )
            elif any(seen.get(w.record.uuid) != w.at for w in at_work):
                check_dead(self._table, record, writes)
            seen = {write.record.uuid: write.at for write in writes}
            self._pause(min(rest, _LOOK_EVERY))

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
            if not self._insist and any(write.record.is_adding for write in writes):
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
        done = [w.record.uuid for w in writes if w not in unsure and w.record.is_adding]
        if done:
            reports = ledger.report_prefix(self._table.root, record.uuid, 0).rpartition("/")[0]
            raise self._doubtful(
                record,
                f"{len(done)} of its writes committed and others did not, so loading all again "
                "would add their rows twice",
                f"Remove the files of {', '.join(done)}, which their reports below {reports}/ "
                "name, and submit with on_repeat='append'. Or add what is missing by hand, and "
                "mark the task as successful.",
            )
        for write in unsure:
            if write.record.is_adding:
                self._undo_write(record, write)

    def _undo_write(
        self, record: ledger.TryRecord, write: ledger.Known[ledger.WriteRecord]
    ) -> None:
        job, since_ms = write.record, int(write.since * 1000)
        root = TableRoot.parse(job.destination)
        if Committer(job.committer).is_staging:
            self._remove_own(record, job, self._table.run(files_since(root, since_ms)))
            return
        files = self._table.run(may_be_its(root, job.uuid, since_ms, job.among))
        if files:
            raise self._doubtful(
                record,
                f"since it began, files came to {root.url} that may be its own, since the "
                f"{job.committer} committer does not mark them: {_by_write(files)}",
                "They may hold all of its rows, none, or a part: a commit that fails half-way "
                "takes back some of its files only. Find out which are its own, remove those, and "
                "submit with on_repeat='append'; mark the task as successful only where every row "
                "is there. With mode='overwrite' and a partition a retry needs no such question.",
            )

    def _remove_own(
        self, record: ledger.TryRecord, job: ledger.WriteRecord, files: Iterable[str]
    ) -> None:
        """Remove a staging job's files: their names carry its UUID, so they are no other's."""
        mine = [key for key in files if job.uuid in key]
        left = self._table.run(remove((key, None) for key in mine))
        if left:
            cause = next(iter(left.values()))
            raise self._doubtful(
                record,
                f"its job {job.uuid} left {len(mine)} files in {job.destination}, and the store "
                f"did not confirm that they are removed ({cause})",
                "Let the task be retried when the store allows deletes.",
            )
        if mine:
            _log.warning("Removed %s files of job %s", len(mine), job.uuid)

    def _doubtful(self, record: ledger.TryRecord, why: str, remedy: str) -> RefusedError:
        return RefusedError(
            f"Try {record.owner.try_number} of this run ended without saying what it added: {why}. "
            "Nothing was submitted.",
            table=self._table.root.url,
            job=record.uuid,
            remedy=remedy,
        )


def _by_write(files: Iterable[str]) -> str:
    """Files by the UUID that Spark puts into the names of one write."""
    writes = Counter(" ".join(uuids_in_name(key)[:1]) for key in files)
    return ", ".join(
        f"{count} with {uuid} in their names" if uuid else f"{count} without a UUID"
        for uuid, count in writes.most_common(_SHOWN)
    )


def _may_be_writing(write: ledger.Known[ledger.WriteRecord]) -> bool:
    return write.record.state == ledger.WRITING and write.silent_for < ledger.HEARTBEAT_TIMEOUT


def check_dead(
    table: Table, record: ledger.TryRecord, writes: Sequence[ledger.Known[ledger.WriteRecord]]
) -> None:
    """See that a try's application has stopped writing.

    :raises OutcomeUnknownError: it sent a heartbeat lately.
    """
    for write in writes:
        if _may_be_writing(write):
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
    if record.committer == Committer.CLASSIC or record.empties:
        return False
    root = TableRoot.parse(record.destination)
    if table.run(marker_job(root)) == record.uuid:
        return True
    report = table.run(ledger.read_report(table.root, record))
    return report is not None and report.marker.success


def marker_job(root: TableRoot) -> Step[str | None]:
    """The job whose ``_SUCCESS`` lies at a destination."""
    found = yield Get(root.marker_key(UNPARTITIONED))
    if isinstance(found, Absent):
        return None
    marker = SuccessMarker.parse_or_none(found.body)
    return marker.job if marker is not None and marker.success else None
