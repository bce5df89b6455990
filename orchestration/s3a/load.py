"""A load by one of Hadoop's S3A committers: around the submission, from checks to report.

The report has the shape of a native one; its operator makes it, and sensors ask for it. A committer
does not count rows: they are read from the files' footers. A partition has no version. There is no
decision and no head: what its operator put on record says that a job committed, and of one that no
operator ran, the ``_SUCCESS`` with its UUID.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ...committer.errors import (
    CommitConflictError,
    OutcomeUnknownError,
    RefusedError,
    StoreRefusedError,
    SupersededRunError,
    VerificationError,
    ZeroRenameError,
    counted,
    first_few,
)
from ...committer.format.job_spec import NOBODY, Mode, OnConflict
from ...committer.format.layout import TableRoot
from ...committer.format.run_rank import RunRank
from ...committer.periodic import repeating
from ...committer.store.requests import Step
from ...s3a.hadoop.job_traces import read_marker, uploads_below
from ...s3a.hadoop.settings import Committer
from ...s3a.runs import ledger
from ...s3a.runs.rivals import living_rivals, said_of
from ...s3a.runs.try_record import (
    COMMITTED,
    OPERATOR_INTERVAL,
    SETTLED,
    UNDONE,
    WRITTEN,
    StoredTry,
    TryRecord,
    WriteRecord,
    run_uuid,
)
from ...s3a.verification.verify import CommittedWrite, Contents, verified
from ..runs.outcomes import UnendedJobError
from ..runs.reports import of_partitions, one_line, summary, totals
from ..submit.job_mark import JobMark
from .configuration import LoadRequest
from .conflicts import (
    USUAL,
    ConflictPolicy,
    check_policy,
    conflict_error,
    ended_before,
    find_rivals,
    keeps_its_turn,
    met,
    met_unseen,
    refuse_rivals,
    settled_against,
)
from .tries import Tries, raw_write, refuse_late_commits

if TYPE_CHECKING:
    from ...committer import Table
    from ...committer.format.records.narrowing import Narrowing
    from ...committer.rival_wait import RivalWait
    from ..runs.heartbeat import RepeatableRun

_log = logging.getLogger(__name__)
#: Looks at tries that began in the same second and are to give way, and seconds between two.
_TIE_LOOKS, _TIE_PAUSE = 4, 1.0


def loaded_by_s3a(
    table: Table,
    run: RepeatableRun,
    mode: Mode | None,
    on_repeat: str,
    on_conflict: OnConflict | None = None,
) -> dict[str, Any] | None:
    """Settle a run's earlier tries with Hadoop's committers, whichever it is to use now.

    :param mode: what the run is to do, ``None`` where only its application knows.
    :param on_repeat: as the operator was given it; so too ``on_conflict``.
    :return: the report where nothing is to be loaded.
    :raises OutcomeUnknownError: an earlier try is at work, or cannot be settled just now.
    :raises RefusedError: loading again would double rows.
    :raises CommitConflictError: it has committed beside another run of the same partitions.
    :raises SupersededRunError: so it has, and that conflict was settled against it.
    """

    def report_of(record: TryRecord, writes: Sequence[WriteRecord]) -> dict[str, Any]:
        report = s3a_report(table, record, writes, [described(table, write) for write in writes])
        return _with_conflict(report, met_unseen(table, record, writes), on_conflict)

    found = Tries(table, run.idempotency_key, report_of, insist=on_repeat == "append").settle()
    if found is None:
        return None
    decided, report = run.on_repeat(on_repeat, found.owner), dict(found.report or {})
    if decided == "skip":
        if said := report.get("conflict"):
            settled = settled_against(table, found)
            raise settled or conflict_error(table, str(report["job"]), said, mode)
        refuse_late_commits(table, run.idempotency_key)
        report["repeated"] = True
        _log.info("Not submitted: this run has committed %s", one_line(report))
        _log.info("To load again, clear the task, give on_repeat='append', or start a new run.")
        return report
    if decided == "replace_own" and mode in (Mode.APPEND, None):
        raise RefusedError(
            f"This run has committed already (try {found.owner.try_number}, job "
            f"{report.get('job')}), by the {found.committer} committer, and the rows of one such "
            "job cannot be replaced, only added to. Nothing was submitted.",
            table=table.root.url,
            remedy="Load with mode='overwrite' and a partition, which can be repeated. To report "
            "that commit, or to add the rows once more, give Airflow's operator on_repeat='skip' "
            "or 'append'; in Dagster a new run adds them once more.",
        )
    return None


@dataclass(frozen=True)
class DeferredLoad:
    """A try whose task was deferred, as a trigger's event brings it back.

    :param uuid: the try's.
    :param ended_before: UUIDs of tries of other runs that had ended when it was submitted.
    """

    uuid: str
    ended_before: tuple[str, ...] = ()


def open_try(table: Table, idempotency_key: str, mark: JobMark) -> DeferredLoad | None:
    """Return the try with one of Hadoop's committers that a service's job carries out; ``None``
    where there is none that is not settled."""
    for known in table.run(ledger.tries_of(table.root, idempotency_key)):
        owner = known.record.owner
        its = JobMark.of(table.root.url, idempotency_key, owner.series, owner.try_number or 0)
        if its == mark and known.record.state not in SETTLED:
            return DeferredLoad(known.record.uuid)
    return None


class S3ALoad:
    """One try of a task.

    :param load: what is loaded, by which committer.
    :param policy: what it does about other runs of the same partitions.
    :param rank: how new its run is.
    :param plan: what lets it settle a conflict; ``None``: nothing does.
    :param waiting: how long it waits for other runs of the same partitions; ``None``: not at all.
    """

    def __init__(
        self,
        table: Table,
        run: RepeatableRun,
        load: LoadRequest,
        policy: ConflictPolicy = USUAL,
        rank: RunRank | None = None,
        plan: Narrowing | None = None,
        waiting: RivalWait | None = None,
    ) -> None:
        check_policy(policy, load.mode, bool(load.partitions))
        self.load = load
        self._policy = policy
        self._plan = plan
        self._waiting = waiting
        self._ended_before: frozenset[str] = frozenset()
        self.uuid = run_uuid()
        self._table = table
        self._root = table.root
        self._try = TryRecord(
            uuid=self.uuid,
            idempotency_key=run.idempotency_key,
            owner=run.owner,
            committer=load.committer,
            mode=None if load.mode is None else str(load.mode),
            partitions=load.partitions,
            rank=rank,
            settles={} if plan is None else plan.settles,
            on_conflict=policy.on_conflict,
        )

    @contextmanager
    def submitted(self, settings: Mapping[str, str] | None = None) -> Iterator[None]:
        """On record, with heartbeats, while the application runs.

        :param settings: those of the committer that are in force, for the report.

        Written before anything is submitted: an application that finds a later try's record
        writes nothing, and a later try finds what this one's application writes.
        """
        fresh = replace(self._try, settings=settings, uploads=self._pending_uploads())
        while not self._opened(fresh):
            pass
        with self.waited_for():
            yield

    def _opened(self, fresh: TryRecord) -> bool:
        """Put the try on record, and see that no other run is at work on its partitions.

        :returns: ``False``: it has waited for others, and is to be put on record anew. While it
            waits it is not: nobody waits for a try that waits.
        """
        waiting = self._waiting
        # A try that settles a conflict gives way as under *fail*.
        policy = self._policy if self._plan is None else USUAL
        self._try = self._table.run(ledger.open_try(self._root, fresh))
        try:
            refuse_late_commits(self._table, self._try.idempotency_key, quiet=True)
            waits = waiting is not None and waiting.left > 0
            rivals = self._rivals(policy, waits)
            if not (waits and rivals):
                refuse_rivals(self._table, self._try, policy, rivals, waiting)
                if waiting is not None:
                    waiting.end()
                self._ended_before = ended_before(self._table, self._try)
                return True
        except ZeroRenameError as error:
            self.withdraw(error)
            if isinstance(error, SupersededRunError) and waiting is not None and waiting.waited:
                waited = f"After {waiting.waited:.0f} s of waiting for other runs: "
                error.message = f"{waited}{error.message}"
            raise
        assert waiting is not None, "only such a try waits"
        if left := self._table.run(ledger.remove_try(self._root, self._try)):
            raise OutcomeUnknownError(
                "This try was to wait for other runs, and its record is still there, so others may "
                f"give way to it, or wait for it: {left}. Nothing was submitted.",
                table=self._root.url,
                job=self._try.uuid,
                remedy="Grant s3:DeleteObject below the destination, and let the task be retried.",
            )
        self._try = fresh
        every = replace(fresh, opened_at=math.inf)
        waiting.wait_while(lambda: self._living(every))
        return False

    def _rivals(self, policy: ConflictPolicy, waits: bool) -> tuple[TryRecord, ...]:
        """Find other runs at work. Of those that began in the same second and give way, see that
        they have done so; one that did not see this try is at work, and is waited for."""
        planned = None if self._plan is None else self._plan.partitions
        yields = waits or policy.on_conflict is not OnConflict.LAST_WINS
        for _ in range(_TIE_LOOKS):
            rivals = find_rivals(self._table, self._try, policy, planned, waits)
            if not (yields and rivals and keeps_its_turn(self._try, rivals)):
                break
            time.sleep(_TIE_PAUSE)
        return rivals

    def _living(self, mine: TryRecord) -> list[str]:
        found = self._table.run(living_rivals(self._root, mine))
        return [said_of(it) for it in found.known]

    @contextmanager
    def waited_for(self) -> Iterator[None]:
        """Send the try's heartbeats in the block, in which its application is waited for.

        A task that is deferred in it leaves the try open: its application goes on.

        :raises UnendedJobError: as raised in the block. The try is left open likewise.
        """
        try:
            with repeating(self._send_heartbeat, OPERATOR_INTERVAL):
                yield
        except UnendedJobError:
            self.note_deferred()
            raise
        except Exception:
            self.end()
            raise

    def _pending_uploads(self) -> int | None:
        """Count the uploads that are pending below the table before anything is submitted, and log
        them: other runs' that are at work, and what dead ones left."""
        try:
            found = self._table.run(uploads_below(f"{self._root.prefix}/"))
        except StoreRefusedError as error:
            _log.warning(
                "Pending uploads below %s could not be listed, so nobody knows what dead jobs left "
                "there; the load goes on. Grant s3:ListBucketMultipartUploads: %s",
                *(self._root.url, error),
            )
            return None
        if found:
            oldest = min(found, key=lambda it: it.initiated)
            _log.warning(
                "%s pending below %s as this load begins, the oldest since %s: %s. Those of dead "
                "jobs are aborted by PurgeStaleUploadsOperator or `zero-rename purge`.",
                counted(len(found), "upload is", "uploads are"),
                self._root.url,
                datetime.fromtimestamp(oldest.initiated, UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
                oldest.key,
            )
        return len(found)

    def end(self) -> None:
        """Put on record that the application has ended: what it left is for the next try, or for
        recovery, to settle, without waiting for its silence."""
        self._note(ledger.note_failed(self._root, self._try))

    def withdraw(self, error: ZeroRenameError | None = None) -> None:
        """Close the try: nothing was submitted. One that waits for others is not on record.

        :param error: by which it was refused.
        """
        if not self._try.opened_at:
            return
        met = isinstance(error, CommitConflictError | SupersededRunError)
        undone = {"state": UNDONE, "gave_way": type(error).__name__ if met else ""}
        self._note(ledger.close_try(self._root, self._try, **undone))

    def note_deferred(self) -> None:
        """Put on record that the task is deferred, so that silence does not count as the end."""
        self._note(ledger.note_deferred(self._root, self._try))

    def defer(self) -> DeferredLoad:
        """Return what another process needs to go on waiting for the try."""
        return DeferredLoad(self.uuid, tuple(sorted(self._ended_before)))

    @classmethod
    def resumed(
        cls, table: Table, run: RepeatableRun, policy: ConflictPolicy, deferred: DeferredLoad
    ) -> S3ALoad:
        """Return the load of a try that another process has submitted.

        :raises OutcomeUnknownError: its record is gone.
        """
        known = table.run(ledger.find(table.root, run.idempotency_key, deferred.uuid))
        if known is None:
            raise OutcomeUnknownError(
                "The record of this try was removed while its task was deferred, so nobody knows "
                "what its application has committed.",
                table=table.root.url,
                job=deferred.uuid,
                remedy="Look which rows are there before the task is cleared: it loads again.",
            )
        record = known.record
        mode = None if record.mode is None else Mode.parse(record.mode)
        load = LoadRequest(Committer(record.committer), table.root, mode, record.partitions)
        made = cls(table, run, load, policy, record.rank)
        made.uuid, made._try = record.uuid, record
        made._ended_before = frozenset(deferred.ended_before)
        return made

    def report(self) -> dict[str, Any]:
        """Verify what the application did, put it on record, and say it.

        :raises VerificationError: it is not what a committed job leaves, or there is nothing; or
            an earlier try that counted as dead has committed as well.
        :raises CommitConflictError: another run wrote the same partitions meanwhile.
        """
        known = self._known()
        record = self._try if known is None else known.record
        raw = raw_write(self._root, record, state=WRITTEN, among=record.partitions)
        writes = record.writes or (raw,)
        try:
            self._check(writes)
            jobs = [verified(self._table, self._root, write) for write in writes]
        except ZeroRenameError:
            self._note(ledger.note_failed(self._root, self._try))
            raise
        report = s3a_report(self._table, record, writes, jobs)
        said = met(self._table, self._try, self._ended_before)
        report = _with_conflict(report, said, self._policy.on_conflict)
        done = {"state": COMMITTED, "report": report, "writes": ()}
        while known is not None and not self._table.run(
            ledger.settle_try(self._root, known, **done)
        ):
            known = self._known()
        if known is None:
            self._table.run(ledger.close_try(self._root, self._try, **done))
        left = self._table.run(ledger.remove_reports(self._root, self.uuid))
        if left:
            _log.warning("Reports of this try that nobody needs any more were left: %s", left)
        _log.info("Committed %s", summary(report))
        refuse_late_commits(self._table, self._try.idempotency_key)
        if "conflict" in report:
            said = report["conflict"]
            raise conflict_error(self._table, report["job"], said, self.load.mode)
        return report

    def _known(self) -> StoredTry | None:
        """Read the try's record, unless a later try has settled that this one wrote nothing.

        :raises VerificationError: one has, and loads the same rows or has loaded them.
        """
        known = self._table.run(ledger.find(self._root, self._try.idempotency_key, self.uuid))
        if known is None or known.record.state != UNDONE:
            return known
        refuse_late_commits(self._table, self._try.idempotency_key)
        raise VerificationError(
            "A later try of this run has found this one to be dead, and loads its rows; whether "
            "this one has committed, nothing in the store says.",
            table=self._root.url,
            job=self.uuid,
            remedy="Look which rows are there before the task is marked or cleared.",
        )

    def _check(self, writes: Sequence[WriteRecord]) -> None:
        """See that all writes ended, and went where the task says.

        :raises VerificationError: one did not.
        """
        unfinished = [write for write in writes if write.state != WRITTEN]
        urls = (self._root.url, f"{self._root.url}/")
        mine = [w for w in writes if w.destination == urls[0] or w.destination.startswith(urls[1])]
        named = {w.partition for w in mine if w.partition}
        if not self.load.partitions or self.load.mode is not Mode.REPLACE:
            named = set()
        if unfinished:
            what = f"its record of {unfinished[0].uuid} says {unfinished[0].state}"
            remedy = "An application may not go on after a failed save(). Load again."
        elif not mine:
            what = f"wrote {writes[0].destination} only"
            remedy = "It has to save() to this table: leave its table out, or mend the task's."
        elif others := sorted(named - set(self.load.partitions)):
            what = f"also replaced partitions that its task does not name: {first_few(others)}"
            remedy = "Mend the application's partitions= or the task's partition."
        else:
            return
        raise VerificationError(
            f"The application ended well, and {what}.",
            table=self._root.url,
            job=(unfinished or writes)[0].uuid,
            remedy=remedy,
        )

    def _send_heartbeat(self) -> bool:
        return self._table.run(ledger.send_heartbeat(self._root, self._try)) is not None

    def _note(self, step: Step[Any]) -> None:
        """Put a state on record where that must not hide why the task fails."""
        try:
            self._table.run(step)
        except ZeroRenameError as error:
            _log.warning("What became of this try could not be put on record: %s", error)


def _with_conflict(
    report: dict[str, Any], said: str, on_conflict: OnConflict | None
) -> dict[str, Any]:
    """A report with what is said of other runs that wrote the same partitions, if anything."""
    if not said:
        return report
    _log.warning("%s", said)
    return report | {"overlapped" if on_conflict is OnConflict.LAST_WINS else "conflict": said}


def described(table: Table, write: WriteRecord) -> CommittedWrite:
    """A write of an earlier try that is known to have committed. Its marker may be a later job's
    by now, and its files may be replaced: then what its own report says is told.

    :raises VerificationError: it is not so, and what is there is not what the job should leave.
    """
    try:
        return verified(table, table.root, write)
    except VerificationError:
        marker = table.run(read_marker(TableRoot.parse(write.destination).prefix))
        if marker.committed_job in (None, write.uuid):
            raise
    report = table.run(ledger.read_report(table.root, write))
    if report is None:
        return CommittedWrite(write.uuid, None, None)
    return CommittedWrite(write.uuid, report.files, report.bytes)


def s3a_report(
    table: Table, record: TryRecord, writes: Sequence[WriteRecord], jobs: Sequence[CommittedWrite]
) -> dict[str, Any]:
    """A try's jobs as a dictionary, with the members of :func:`.reports.commit_report` and:
    ``committer``; ``jobs``, the UUIDs; ``started_at`` and ``ended_at``, Unix seconds by the
    store's clock; ``retries``, how often the task was tried before; ``settings``, those of the
    committer that were in force; ``uploads_at_start``, how many were pending below the table.
    ``job`` is the UUID, of several the try's own."""
    entries: dict[str, Contents] = {}
    for job in jobs:
        for name, contents in job.partitions.items():
            entries[name] = entries.get(name, Contents()) + contents
    partitions = [
        {"partition": name, "version": None, **vars(contents), "removed": None}
        for name, contents in sorted(entries.items())
    ]
    ended_at = max(write.ended_at for write in writes) or record.beat_at
    return {
        "job": jobs[0].uuid if len(jobs) == 1 else record.uuid,
        "table": table.root.url,
        "decided_at": ended_at,
        "started_at": record.opened_at or None,
        "ended_at": ended_at,
        "retries": max(0, (record.owner.try_number or 1) - 1),
        "settings": dict(record.settings or {}),
        "uploads_at_start": record.uploads,
        "repeated": False,
        **of_partitions(partitions),
        # What is known by partition may be less.
        **totals([vars(job) for job in jobs]),
        "committer": record.committer,
        "jobs": [job.uuid for job in jobs],
    }


@dataclass(frozen=True)
class RunLook:
    """The rows of a run, as its records in the ledger tell them.

    :param report: of the latest of its tries that committed; ``None``: none has.
    :param loads_again: a sentence about a later try that may have taken those rows away, and whose
        end is not known; ``""`` for none.
    :param is_writing: the application of one of its tries may be at work.
    """

    report: dict[str, Any] | None
    loads_again: str
    is_writing: bool


def look_at_run(table: Table, idempotency_key: str) -> RunLook:
    """Look what a run has committed, and whether that may still be there."""
    tries = table.run(ledger.tries_of(table.root, idempotency_key))
    is_writing = any(it.may_be_writing for it in tries)
    done = [at for at, known in enumerate(tries) if known.record.state == COMMITTED]
    if not done:
        return RunLook(None, "", is_writing)
    record = tries[done[-1]].record
    report = dict(record.report or {})
    if "conflict" in report and (settled := settled_against(table, record)):
        report["settled_against"] = settled.message
    later = [it.record for it in tries[done[-1] + 1 :] if _may_take_away(it.record)]
    said = ""
    if later:
        said = (
            f"Try {later[-1].owner.try_number} of this run has begun since its job "
            f"{report.get('job')} committed, and may have taken its rows away: how that try ended "
            "is not known."
        )
    return RunLook(report, said, is_writing)


def _may_take_away(record: TryRecord) -> bool:
    """Tell whether a try may have replaced what its run had committed before, and was not reported
    since."""
    if record.state in SETTLED:
        return record.state == UNDONE and any(not it.is_adding for it in record.writes)
    return record.may_replace


def report_of_job(table: Table, job: str, partition: str | None) -> dict[str, Any] | None:
    """The report of a job that committed, by its UUID."""
    known = table.run(ledger.find_try(table.root, job))
    if known is not None and known.record.state == COMMITTED:
        report = dict(known.record.report or {})
        if job == report.get("job") or job in report.get("jobs", ()):
            return report
    for place in dict.fromkeys((partition, None)):
        report = _by_marker(table, job, place)
        if report is not None:
            return report
    return None


def _by_marker(table: Table, job: str, place: str | None) -> dict[str, Any] | None:
    folder = table.root.url if place is None else f"{table.root.url}/{place}"
    marker = table.run(read_marker(TableRoot.parse(folder).prefix))
    if marker.said is None or marker.committed_job != job:
        return None
    committer, at = marker.said.marker.committer, marker.said.marker.timestamp_ms / 1000
    write = WriteRecord(job, 0, committer, folder, "", place, ended_at=at)
    try:
        found = verified(table, table.root, write)
    except VerificationError:
        return None
    return s3a_report(table, TryRecord(job, job, NOBODY, committer, None), [write], [found])


def only(report: dict[str, Any], partitions: Sequence[str]) -> dict[str, Any]:
    """A report of these partitions alone; none leaves out nothing."""
    if not partitions:
        return report
    kept = [entry for entry in report["partitions"] if entry["partition"] in partitions]
    return {**report, **of_partitions(kept)}
