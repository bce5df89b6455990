"""Load by one of Hadoop's S3A committers: everything around the submission, and the report.

The report has the same form as that of the native committer. The operator makes it, and sensors
read it. Hadoop's committers do not count rows, so rows are counted in the files' footers. A
partition has no version. There is no decision and no head: the operator's record proves that a job
committed, or, if no operator ran the job, a ``_SUCCESS`` with its UUID.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
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
from ...committer.format.run_rank import RunRank
from ...committer.periodic import repeating
from ...committer.store.requests import Step
from ...s3a.hadoop.job_traces import read_marker, uploads_below
from ...s3a.hadoop.settings import Committer
from ...s3a.runs import ledger
from ...s3a.runs.rivals import (
    living_rivals,
    loaded_of,
    loads_of_others,
    replaces,
    said_of,
    written_at,
    written_rivals,
)
from ...s3a.runs.try_record import (
    COMMITTED,
    OPERATOR_INTERVAL,
    SETTLED,
    SUBMITTED,
    UNDONE,
    WRITTEN,
    StoredTry,
    TryRecord,
    WriteRecord,
    run_uuid,
)
from ...s3a.verification.verify import (
    CommittedWrite,
    Contents,
    committed_there,
    remembered,
    verified,
)
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
    from ...committer.format.layout import TableRoot
    from ...committer.format.records.narrowing import Narrowing
    from ...committer.rival_wait import RivalWait
    from ...s3a.hadoop.commit_files import JobSummary
    from ..runs.heartbeat import RepeatableRun

_log = logging.getLogger(__name__)
#: The number of polls for attempts that began in the same second and must give way, and the seconds
#: between two polls.
_TIE_LOOKS, _TIE_PAUSE = 4, 1.0


def loaded_by_s3a(
    table: Table,
    run: RepeatableRun,
    mode: Mode | None,
    on_repeat: str,
    on_conflict: OnConflict | None = None,
    partitions: Collection[str] = (),
    *,
    has_log: bool = False,
) -> dict[str, Any] | None:
    """Finish or undo a run's earlier attempts with any of Hadoop's committers.

    The committer of the new attempt does not matter.

    :param mode: of the new attempt; ``None`` if only its application knows it.
    :param on_repeat: the operator's argument.
    :param on_conflict: the operator's argument.
    :param partitions: that the new attempt names; empty for any.
    :param has_log: the directory was adopted as a Delta table. Jobs without an end are rolled back
        then: no reader would see the files that are completed now, as the log does not name them.
    :return: the report of an earlier attempt if nothing is to be loaded, else ``None``.
    :raises OutcomeUnknownError: an earlier attempt is at work, or its end cannot be found out now.
    :raises RefusedError: loading again would double rows, or leave rows of the run beside the new
        ones in partitions that it does not name any more.
    :raises CommitConflictError: the run has committed while another run wrote the same partitions.
    :raises SupersededRunError: the same, and that conflict was settled against this run.
    """

    def report_of(record: TryRecord, writes: Sequence[WriteRecord]) -> dict[str, Any]:
        mine = [it for it in writes if it.is_to(table.root)]
        report = s3a_report(
            table, record, mine, [described(table, record, write) for write in mine]
        )
        return _with_conflict(report, met_unseen(table, record, mine), on_conflict)

    insist = on_repeat == "append"
    found = Tries(table, run.idempotency_key, report_of, insist, rolls_back=has_log).settle()
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
            f"This run has committed already (attempt {found.owner.try_number}, job "
            f"{report.get('job')}), by the {found.committer} committer, and the rows of one such "
            "job cannot be replaced, only added to. Nothing was submitted.",
            table=table.root.url,
            remedy="Load with mode='overwrite' and a partition, which can be repeated. To report "
            "that commit, or to add the rows once more, give Airflow's operator on_repeat='skip' "
            "or 'append'; in Dagster a new run adds them once more.",
        )
    if decided == "replace_own" and mode is Mode.REPLACE and partitions:
        _refuse_rows_elsewhere(table, found, partitions)
    return None


def _refuse_rows_elsewhere(table: Table, found: TryRecord, partitions: Collection[str]) -> None:
    """Refuse to load a run again while rows of its commit lie in partitions that it names no more.

    An overwrite by Hadoop's committers only replaces the partitions that it names.

    :param found: the attempt that committed.
    :raises RefusedError: there may be such rows: no other run has replaced them since.
    """
    entries = (found.report or {}).get("partitions") or ()
    names = {it["partition"] for it in entries if it.get("files")}
    elsewhere = tuple(sorted(names.difference(partitions)))
    if not elsewhere:
        return
    loads = table.run(loads_of_others(table.root, replace(found, partitions=elsewhere))).partitions
    at = written_at(found)
    gone = {name for name, it in loads.items() if replaces(it.by) and written_at(it.by) > at}
    left = [name for name in elsewhere if name not in gone]
    if left:
        raise RefusedError(
            f"This run has committed rows in {first_few(left)} (attempt {found.owner.try_number}), "
            f"and now names {first_few(sorted(partitions))}: an overwrite by one of Hadoop's "
            "committers would leave those rows beside the new ones. Nothing was submitted.",
            table=table.root.url,
            job=(found.report or {}).get("job"),
            remedy="Name those partitions, too: the load empties those that get no row. To keep "
            "those rows, give on_repeat='append'.",
        )


@dataclass(frozen=True)
class DeferredLoad:
    """An attempt whose task was deferred, as a trigger's event returns it.

    :param uuid: of the attempt.
    :param ended_before: UUIDs of other runs' attempts that had ended when it was submitted.
    """

    uuid: str
    ended_before: tuple[str, ...] = ()


def open_try(table: Table, idempotency_key: str, mark: JobMark) -> DeferredLoad | None:
    """Return the open attempt, with one of Hadoop's committers, that a service's job carries out.

    :return: ``None`` if there is no such attempt, or if its record is closed.
    """
    for known in table.run(ledger.tries_of(table.root, idempotency_key)):
        owner = known.record.owner
        its = JobMark.of(table.root.url, idempotency_key, owner.series, owner.try_number or 0)
        if its == mark and known.record.state not in SETTLED:
            return DeferredLoad(known.record.uuid)
    return None


def deferred_try(table: Table, idempotency_key: str) -> DeferredLoad | None:
    """Return a run's last attempt if it was at work when its task was deferred, and no process has
    judged it since."""
    tries = table.run(ledger.tries_of(table.root, idempotency_key))
    last = tries[-1].record if tries else None
    if last is None or not last.deferred or last.state != SUBMITTED:
        return None
    return DeferredLoad(last.uuid)


class S3ALoad:
    """One attempt of a task to load by one of Hadoop's committers.

    :param load: the destination, the mode, the partitions and the committer.
    :param policy: for other runs of the same partitions.
    :param rank: of the run: a higher rank is newer.
    :param plan: lets the attempt settle a conflict; ``None``: there is no such plan.
    :param waiting: the wait for other runs of the same partitions; ``None``: do not wait.
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
        """Record the attempt, and send its heartbeats while the block runs the application.

        The record is written before anything is submitted. An application that finds the record of
        a later attempt writes nothing, and a later attempt finds what this application writes.

        :param settings: of the committer, as they are in force, for the report.
        """
        fresh = replace(self._try, settings=settings, uploads=self._pending_uploads())
        while not self._opened(fresh):
            pass
        with self.waited_for():
            yield

    def _opened(self, fresh: TryRecord) -> bool:
        """Record the attempt, and check that no other run is at work on its partitions.

        :return: ``False`` if it has waited for others: then it must be recorded again. While it
            waits, it has no record, since others must not wait for an attempt that waits.
        """
        waiting = self._waiting
        # An attempt that settles a conflict gives way as under *fail*.
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
        assert waiting is not None, "only such an attempt waits"
        if left := self._table.run(ledger.remove_try(self._root, self._try)):
            raise OutcomeUnknownError(
                "This attempt was to wait for other runs, and its record is still there, so others "
                f"may give way to it, or wait for it: {left}. Nothing was submitted.",
                table=self._root.url,
                job=self._try.uuid,
                remedy="Grant s3:DeleteObject below the destination, and let the task be retried.",
            )
        self._try = fresh
        every = replace(fresh, opened_at=math.inf)
        waiting.wait_while(lambda: self._living(every))
        return False

    def _rivals(self, policy: ConflictPolicy, waits: bool) -> tuple[TryRecord, ...]:
        """Find other runs at work.

        Runs that began in the same second and must give way get a few seconds to do so. A run that
        has not seen this attempt does not, and stays in the result.
        """
        planned = None if self._plan is None else self._plan.partitions
        yields = waits or policy.on_conflict is not OnConflict.LAST_WINS
        rivals: tuple[TryRecord, ...] = ()
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
        """Send the attempt's heartbeats while the block waits for its application.

        If the task is deferred in the block, the attempt stays open: its application goes on.

        :raises UnendedJobError: raised in the block; then the attempt stays open, too.
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
        """Count and log the pending uploads below the table, before anything is submitted.

        They are of other runs at work, or of dead ones. ``None`` if they cannot be listed.
        """
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
        """Record that the application has ended.

        So the next attempt, or recovery, can finish or undo its jobs at once, without waiting for
        the end of its heartbeats.
        """
        self._note(ledger.note_failed(self._root, self._try))

    def withdraw(self, error: ZeroRenameError | None = None) -> None:
        """Close an attempt that submitted nothing.

        An attempt that waits for others has no record; then there is nothing to do.

        :param error: the error that refused it.
        """
        if not self._try.opened_at:
            return
        met = isinstance(error, CommitConflictError | SupersededRunError)
        undone = {"state": UNDONE, "gave_way": type(error).__name__ if met else ""}
        self._note(ledger.close_try(self._root, self._try, **undone))

    def note_deferred(self) -> None:
        """Record that the task is deferred: missing heartbeats then do not count as its end."""
        self._note(ledger.note_deferred(self._root, self._try))

    def defer(self) -> DeferredLoad:
        """Return the data with which another process can go on waiting for the attempt."""
        return DeferredLoad(self.uuid, tuple(sorted(self._ended_before)))

    @classmethod
    def resumed(
        cls, table: Table, run: RepeatableRun, policy: ConflictPolicy, deferred: DeferredLoad
    ) -> S3ALoad:
        """Return the load of an attempt that another process has submitted.

        Its record says from now on that its task is not deferred, so it counts as dead soon after
        this process has died.

        :raises OutcomeUnknownError: its record is missing.
        """
        known = table.run(ledger.find(table.root, run.idempotency_key, deferred.uuid))
        if known is None:
            raise OutcomeUnknownError(
                "The record of this attempt was removed while its task was deferred, so nobody "
                "knows what its application has committed.",
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
        made._note(ledger.note_resumed(table.root, record))
        return made

    def report(self) -> dict[str, Any]:
        """Verify what the application wrote, record it, and return the report.

        :raises VerificationError: the files are not what a committed job leaves, or there are none;
            or an earlier attempt that counted as dead has committed as well.
        :raises CommitConflictError: another run wrote the same partitions meanwhile.
        """
        known = self._known()
        record = self._try if known is None else known.record
        raw = raw_write(self._root, record, state=WRITTEN, among=record.partitions)
        writes = record.writes or (raw,)
        try:
            self._check(writes)
            jobs = self._verified(writes)
        except ZeroRenameError:
            self._note(ledger.note_failed(self._root, self._try))
            raise
        mine = [it for it in writes if it.is_to(self._root)]
        report = s3a_report(self._table, record, mine, [jobs[it.uuid] for it in mine])
        said = met(self._table, self._try, self._ended_before)
        report = _with_conflict(report, said, self._policy.on_conflict)
        done = {"state": COMMITTED, "report": report, "writes": (), "mode": record.mode_of(mine)}
        while known is not None and not self._table.run(
            ledger.settle_try(self._root, known, **done)
        ):
            known = self._known()
        if known is None:
            self._table.run(ledger.close_try(self._root, self._try, **done))
        left = self._table.run(ledger.remove_reports(self._root, self.uuid))
        if left:
            _log.warning("Reports of this attempt that nobody needs any more were left: %s", left)
        _log.info("Committed %s", summary(report))
        refuse_late_commits(self._table, self._try.idempotency_key)
        if "conflict" in report:
            said = report["conflict"]
            raise conflict_error(self._table, report["job"], said, self.load.mode)
        return report

    def _known(self) -> StoredTry | None:
        """Read the attempt's record.

        :return: ``None`` if there is no record.
        :raises VerificationError: a later attempt has found this one dead and undone it. It loads
            the same rows, or has loaded them.
        """
        known = self._table.run(ledger.find(self._root, self._try.idempotency_key, self.uuid))
        if known is None or known.record.state != UNDONE:
            return known
        refuse_late_commits(self._table, self._try.idempotency_key)
        raise VerificationError(
            "A later attempt of this run has found this one to be dead, and loads its rows; "
            "whether this one has committed, nothing in the store says.",
            table=self._root.url,
            job=self.uuid,
            remedy="Look which rows are there before the task is marked or cleared.",
        )

    def _verified(self, writes: Sequence[WriteRecord]) -> dict[str, CommittedWrite]:
        """Verify writes, of other tables, too; return them by their UUIDs.

        Another bucket is not read from here. The application itself has verified a write there.
        """
        mine, records = self._table, self._root
        here = (it for it in writes if it.root.bucket == records.bucket)
        return {it.uuid: verified(mine, records, it, _known_to_log) for it in here}

    def _check(self, writes: Sequence[WriteRecord]) -> None:
        """Check that all writes have ended, and went to the table and partitions of the task.

        :raises VerificationError: one did not.
        """
        unfinished = [write for write in writes if not write.is_done]
        mine = [write for write in writes if write.is_to(self._root)]
        named = {w.partition for w in mine if w.partition}
        if not self.load.partitions or self.load.mode is not Mode.REPLACE:
            named = set()
        if unfinished:
            first = unfinished[0]
            what = f"its record of {first.uuid} says {first.state}"
            what += ", and partitions that got no row could not be emptied" * first.unfinished
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
        """Record a state; an error is only logged, since it must not hide why the task fails."""
        try:
            self._table.run(step)
        except ZeroRenameError as error:
            _log.warning("What became of this attempt could not be put on record: %s", error)


def _with_conflict(
    report: dict[str, Any], said: str, on_conflict: OnConflict | None
) -> dict[str, Any]:
    """Add the description of other runs that wrote the same partitions to a report.

    :param said: the result of :func:`.conflicts.met`; ``""``: the report stays as it is.
    """
    if not said:
        return report
    _log.warning("%s", said)
    return report | {"overlapped" if on_conflict is OnConflict.LAST_WINS else "conflict": said}


def _known_to_log(root: TableRoot, keys: Collection[str]) -> Step[Collection[str]]:
    """Return the keys that the log of a Delta table knows, of those given."""
    from ...tables.files_in_log import known_to_log  # Lazy: it loads Parquet readers.

    return known_to_log(root, keys)


def described(table: Table, record: TryRecord, write: WriteRecord) -> CommittedWrite:
    """Describe a write of an earlier attempt that is known to have committed.

    Other runs may have replaced files of it since. Then the result has what its own report says.

    :param record: of that attempt.
    :raises VerificationError: no other run has replaced files, and they are not what the job should
        leave.
    """
    try:
        return verified(table, table.root, write, _known_to_log)
    except VerificationError:
        report = table.run(ledger.read_report(table.root, write))
        if not _is_replaced(table, record, write, report):
            raise
    return remembered(table, write, report, _known_to_log)


def _is_replaced(
    table: Table, record: TryRecord, write: WriteRecord, report: JobSummary | None
) -> bool:
    """Return whether other jobs have replaced files of a committed write, or are about to.

    The marker of the destination shows it, or the ledger: a job in a partition's folder leaves no
    marker at the root.
    """
    marker = table.run(read_marker(write.root.prefix))
    if marker.committed_job not in (None, write.uuid):
        return True
    if report is None:
        return False
    there = table.run(committed_there(write.root, report))
    named = {name.removeprefix("/") for name in report.marker.filenames}
    gone = {table.root.partition_of_data_key(key) or "" for key in named.difference(there)}
    since = replace(record, opened_at=written_at(record))
    rivals = [it for it in table.run(written_rivals(table.root, since)) if replaces(it)]
    loaded = {name for it in rivals for name in loaded_of(it, gone)}
    return bool(gone) and gone <= loaded


def s3a_report(
    table: Table, record: TryRecord, writes: Sequence[WriteRecord], jobs: Sequence[CommittedWrite]
) -> dict[str, Any]:
    """Return the jobs of an attempt as a dictionary.

    It has the members of :func:`.reports.commit_report`; ``job`` is the UUID of the job or, if
    there are several, of the attempt. It also has:

    * ``committer``
    * ``jobs``: the UUIDs
    * ``started_at`` and ``ended_at``: Unix seconds, store clock
    * ``retries``: the number of earlier attempts of the task
    * ``settings``: those of the committer, as they were in force
    * ``uploads_at_start``: the number of uploads that were pending below the table
    """
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
        # The jobs' totals: the partitions may have less, for a job whose own are not known.
        **totals([vars(job) for job in jobs]),
        "committer": record.committer,
        "jobs": [job.uuid for job in jobs],
    }


@dataclass(frozen=True)
class RunLook:
    """State of a run's rows, by its records in the ledger.

    :param report: of its last attempt that committed; ``None``: none has.
    :param loads_again: a sentence about a later attempt that may have removed those rows and whose
        end is not known; ``""`` if there is none.
    :param is_writing: the application of one of its attempts may be at work.
    """

    report: dict[str, Any] | None
    loads_again: str
    is_writing: bool


def look_at_run(table: Table, idempotency_key: str) -> RunLook:
    """Read what a run has committed, and whether those rows may still be there."""
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
            f"Attempt {later[-1].owner.try_number} of this run has begun since its job "
            f"{report.get('job')} committed, and may have taken its rows away: how that attempt "
            "ended is not known."
        )
    return RunLook(report, said, is_writing)


def _may_take_away(record: TryRecord) -> bool:
    """Return whether an attempt may have removed rows that its run had committed before."""
    if record.state in SETTLED:
        return record.state == UNDONE and any(not it.is_adding for it in record.writes)
    return record.may_replace


def report_of_job(table: Table, job: str, partition: str | None) -> dict[str, Any] | None:
    """Return the report of a committed job by its UUID; ``None`` if none is found.

    :param partition: a folder whose ``_SUCCESS`` may name the job; that at the root is read, too.
    """
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
    below = "" if place is None else f"/{place}"
    marker = table.run(read_marker(f"{table.root.prefix}{below}"))
    if marker.said is None or marker.committed_job != job:
        return None
    committer, at = marker.said.marker.committer, marker.said.marker.timestamp_ms / 1000
    write = WriteRecord(job, 0, committer, f"{table.root.url}{below}", "", place, ended_at=at)
    try:
        found = verified(table, table.root, write, _known_to_log)
    except VerificationError:
        return None
    return s3a_report(table, TryRecord(job, job, NOBODY, committer, None), [write], [found])


def only(report: dict[str, Any], partitions: Sequence[str]) -> dict[str, Any]:
    """Return a report with these partitions only; with all if ``partitions`` is empty."""
    if not partitions:
        return report
    kept = [entry for entry in report["partitions"] if entry["partition"] in partitions]
    return {**report, **of_partitions(kept)}
