"""Recovery of S3A jobs: find them, judge whether they are live, plan, and act if that is asked for.

By default it only reports. With ``apply``, dead and superseded jobs are settled; with ``force``,
also those that are not known to be dead or live. Live jobs are always left alone.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from ...committer.errors import (
    InvalidInputError,
    OutcomeUnknownError,
    RecordDamagedError,
    ZeroRenameError,
    first_few,
    printable,
)
from ...committer.format.job_spec import NOBODY, Owner
from ...committer.format.layout import TableRoot
from ...committer.store.requests import Step
from ..hadoop.staging_dir import StagingFolder
from ..runs.ledger import forget_try, open_tries
from ..runs.rivals import is_at_work, said_of
from .execute import NOTHING_DONE, Execution, FileOutcome, carry_out
from .ledgers import JobJudge, is_strange, placed
from .leftovers import Kind, LeftoverJob, Presence, find_jobs
from .liveness import REPORT, Action, JobLiveness, Judgement, RecoveryOptions
from .plan import Case, named_files, plan_job

_log = logging.getLogger(__name__)


class JobOutcome(StrEnum):
    """Outcome of a job's recovery, or the outcome that it would have."""

    ROLLED_FORWARD = "rolled-forward"
    ROLLED_BACK = "rolled-back"
    WOULD_ROLL_FORWARD = "would-roll-forward"
    WOULD_ROLL_BACK = "would-roll-back"
    #: It is live, or may be; or a later run is at work on its partitions; or its destination is
    #: outside the folder that is recovered.
    LEFT = "left"
    #: Only a person who knows the load can choose. Nothing was done.
    NEEDS_DECISION = "needs-decision"
    #: Rolled back. Files with its UUID are visible, which does not prove that they are its own.
    FILES_LEFT = "files-left"
    #: Its metadata name files that are not its own, or a record cannot be read.
    REFUSED = "refused"
    #: The store refused a request; a repetition continues where this one stopped.
    FAILED = "failed"
    #: The store did not say what happened; a repetition finds out.
    UNKNOWN = "unknown"


#: Outcomes that need action by a person.
UNSETTLED = frozenset(
    {
        JobOutcome.NEEDS_DECISION,
        JobOutcome.FILES_LEFT,
        JobOutcome.REFUSED,
        JobOutcome.FAILED,
        JobOutcome.UNKNOWN,
    }
)


@dataclass(frozen=True)
class RecoveredJob:
    """Report of one job: whether it is live, its outcome, and why.

    It may be printed: control characters of untrusted records are escaped.

    :param job: the committer's UUID; for uploads alone, the one in their names; ``""`` for none.
    :param left: the kind of its traces: ``magic``, ``staging`` or ``uploads``.
    :param destination: ``s3://bucket/prefix`` of the job's output.
    :param tasks: number of its pending sets.
    :param files: number of files that its pending sets name, of ``bytes`` in all. When the job was
        examined, ``written`` of them were visible, ``outstanding`` were uploads, ``missing`` were
        neither, and ``unsure`` could not be compared; these four are ``None`` if it was not
        examined.
    :param extra: number of uploads of task attempts that did not commit.
    :param completed: number of files completed now, ``removed`` of files removed, ``aborted`` of
        uploads aborted.
    :param kept: keys of visible files that were left, because they are not, or may not be, the
        job's.
    :param marker: the outcome of its ``_SUCCESS``.
    :param silent_for: seconds since its last activity, by the store's clock.
    :param lasting: it failed, and will fail again until an operator acts.
    """

    job: str
    left: Kind
    destination: str
    state: JobLiveness
    state_reason: str
    outcome: JobOutcome
    reason: str
    tasks: int = 0
    files: int = 0
    bytes: int = 0
    written: int | None = None
    outstanding: int | None = None
    missing: int | None = None
    unsure: int | None = None
    extra: int = 0
    completed: int = 0
    removed: int = 0
    aborted: int = 0
    kept: tuple[str, ...] = ()
    marker: str | None = None
    silent_for: float = 0.0
    owner: Owner = field(default=NOBODY)
    lasting: bool = False


_Judged = Sequence[tuple[LeftoverJob, Judgement]]


def recover_jobs(
    root: TableRoot, options: RecoveryOptions = REPORT
) -> Step[tuple[RecoveredJob, ...]]:
    """Find the S3A jobs below a table, and report or settle each.

    Returns only the reports of :func:`settle_jobs`.
    """
    return tuple(result for _, result in (yield from settle_jobs(root, options)))


def settle_jobs(
    root: TableRoot, options: RecoveryOptions = REPORT
) -> Step[list[tuple[LeftoverJob, RecoveredJob]]]:
    """Find the S3A jobs below a table, and report or settle each.

    :returns: the traces and the report of each, the oldest first.
    :raises InvalidInputError: invalid options, or a staging folder that cannot be read from here.
    """
    options.check(root)
    folders = tuple(f"{root.prefix}/{folder.strip('/')}" for folder in options.folders)
    staging = StagingFolder(options.staging) if options.staging is not None else None
    found, now = yield from find_jobs(root, folders, options.deep, staging, options.without)
    # Attempts after jobs: an attempt's record is written before its job leaves any trace.
    tries = yield from open_tries(root)
    judge = JobJudge(root, now, tries, options)
    judged: list[tuple[LeftoverJob, Judgement]] = []
    for job in found:
        judgement = yield from judge.judged(job)
        judged.append((placed(job, root, judgement), judgement))
    settled: list[tuple[LeftoverJob, RecoveredJob]] = []
    named = None if options.jobs is None else {uuid.lower() for uuid in options.jobs}
    for job, judgement in judged:
        if named is not None and job.uuid.lower() not in named:
            continue
        if not options.strangers and judgement.record is None and is_strange(job):
            continue
        rival = _rival_of(job, judged)
        result = yield from _settled(Case(root, job, judgement, options, now, rival))
        settled.append((job, result))
        _log.info(
            "S3A job %s at %s: %s (%s: %s): %s",
            result.job or "(no UUID)",
            result.destination,
            result.outcome,
            result.state,
            result.state_reason,
            result.reason,
        )
    yield from _forget_tries(root, judged, settled)
    return settled


def _rival_of(job: LeftoverJob, judged: _Judged) -> str | None:
    """Find a living job near a job's destination that began after the job's last task.

    Near means within the destination or around it. Returns its UUID.
    """
    last, mine = job.last_set or job.newest, f"{job.destination}/"
    for other, judgement in judged:
        theirs = f"{other.destination}/"
        near = theirs.startswith(mine) or mine.startswith(theirs)
        if (
            other is not job
            and judgement.state is JobLiveness.LIVE
            and near
            and other.oldest >= last
        ):
            return other.uuid or "of uploads that name none"
    return None


#: Outcomes of a plan that is not carried out, and of one that is (``_DONE``).
_SAID = {
    Action.REFUSE: JobOutcome.REFUSED,
    Action.ASK: JobOutcome.NEEDS_DECISION,
    Action.WAIT: JobOutcome.LEFT,
    Action.FORWARD: JobOutcome.WOULD_ROLL_FORWARD,
    Action.BACK: JobOutcome.WOULD_ROLL_BACK,
}
_DONE = {Action.FORWARD: JobOutcome.ROLLED_FORWARD, Action.BACK: JobOutcome.ROLLED_BACK}


def _settled(case: Case) -> Step[RecoveredJob]:
    if case.judgement.state is JobLiveness.LIVE:
        return _result(case, JobOutcome.LEFT, "it lives; nothing is done to it")
    if not case.job.is_within(case.root):
        where = f"s3://{case.root.bucket}/{case.job.destination}"
        return _result(case, JobOutcome.LEFT, f"its destination is {where}: recover it there")
    try:
        planned = yield from plan_job(case)
        outcome, reason = _unless_it_acts(planned)
        if outcome is not None:
            return _result(planned, outcome, reason, looked=True)
        done = yield from carry_out(planned)
        return _result(planned, *_acted(planned, done), done, looked=True)
    except RecordDamagedError as error:
        return _result(case, JobOutcome.REFUSED, str(error))
    except OutcomeUnknownError as error:
        return _result(case, JobOutcome.UNKNOWN, str(error))
    except ZeroRenameError as error:
        # Imported on use: processes that only parse DAG files need not load it.
        from ...committer.upkeep.recovery import is_lasting

        return replace(_result(case, JobOutcome.FAILED, str(error)), lasting=is_lasting(error))


def _unless_it_acts(case: Case) -> tuple[JobOutcome | None, str]:
    """Return the outcome if nothing is to be done, or ``None`` to carry the plan out; and why."""
    options, acts = case.options, case.action in _DONE
    if acts and case.judgement.state is JobLiveness.UNKNOWN and not options.force:
        is_seen = options.apply and case.keys(Presence.WRITTEN)
        outcome = JobOutcome.NEEDS_DECISION if is_seen else JobOutcome.LEFT
        why = "whether it lives is not known, so it is left unless that is forced, which would"
        return outcome, f"{why} {case.action.replace('-', ' it ')}: {case.reason}"
    return None if acts and options.apply else _SAID[case.action], case.reason


def _acted(case: Case, done: Execution) -> tuple[JobOutcome, str]:
    if done.moved:
        why = "it changed while it was looked at: it may live, or be recovered by somebody else"
        return JobOutcome.LEFT, why
    if done.problem:
        outcome = JobOutcome.UNKNOWN if done.unsure else JobOutcome.FAILED
        why = f"{done.problem}. It is kept for a repeat. Meant to {case.action}: {case.reason}"
        return outcome, why
    kept = case.visible
    if case.action is Action.FORWARD or not kept:
        return _DONE[case.action], case.reason
    why = f"{case.reason}. {named_files(kept)}, so all such are left to you to remove"
    return JobOutcome.FILES_LEFT, why


def _result(
    case: Case,
    outcome: JobOutcome,
    reason: str,
    done: Execution = NOTHING_DONE,
    looked: bool = False,
) -> RecoveredJob:
    job, judgement = case.job, case.judgement
    kept = done.keys(FileOutcome.KEPT)
    kept += (case.unclaimed or ()) if outcome is JobOutcome.FILES_LEFT else ()

    def count(*presences: Presence) -> int | None:
        return len(case.keys(*presences)) if looked else None

    return RecoveredJob(
        job=_safe(job.uuid),
        left=job.kind,
        destination=_safe(f"s3://{case.root.bucket}/{job.destination}"),
        state=judgement.state,
        state_reason=_safe(judgement.reason),
        outcome=outcome,
        reason=_safe(reason),
        tasks=len(job.sets),
        files=len(job.commits),
        bytes=sum(commit.length for commit in job.commits),
        written=count(Presence.WRITTEN),
        outstanding=count(Presence.OUTSTANDING),
        missing=count(Presence.MISSING, Presence.FOREIGN),
        unsure=count(Presence.UNSURE),
        extra=len(job.extra),
        completed=len(done.keys(FileOutcome.COMPLETED)),
        removed=len(done.keys(FileOutcome.REMOVED)),
        aborted=done.aborted + len(done.keys(FileOutcome.ABORTED)),
        kept=tuple(map(_safe, kept)),
        marker=done.marker,
        silent_for=max(0.0, case.now - job.newest),
        owner=judgement.record.owner if judgement.record is not None else NOBODY,
    )


def _safe(text: str) -> str:
    """Make one line without control characters from text in records that others may write."""
    return printable(text).replace("\n", "\\n")


def _forget_tries(
    root: TableRoot, judged: _Judged, settled: Sequence[tuple[LeftoverJob, RecoveredJob]]
) -> Step[None]:
    """Close the attempts of which nothing is left.

    If a job of an attempt was rolled forward, the attempt stays open with a note of this, for its
    run's next attempt to read. But a ``save()`` without an operator has no next attempt, so its
    attempt is closed.
    """
    # Not by UUID: an application that writes without save() may give one to several jobs.
    became = {id(job): result.outcome for job, result in settled}
    # An attempt in the ledger of a destination around this one may have jobs outside the root.
    of_try = {
        one.record.uuid: (one.record, one.ledger or root)
        for _, one in judged
        if one.record is not None and one.ledger not in root.around
    }
    for uuid, (record, ledger) in of_try.items():
        jobs = [job for job, one in judged if one.record and one.record.uuid == uuid]
        done = {JobOutcome.ROLLED_BACK} | (
            {JobOutcome.ROLLED_FORWARD} if record.is_alone else set()
        )
        if done.issuperset(became.get(id(job)) for job in jobs):
            try:
                yield from forget_try(ledger, record)
            except ZeroRenameError as error:
                # Its jobs are settled nevertheless, and its run's next attempt closes it.
                _log.warning("Attempt %s could not be closed: %s", uuid, error)


def refuse_left_jobs(root: TableRoot) -> Step[None]:
    """Refuse to adopt a directory if a job of Hadoop's committers is at work or left traces there.

    Such a job, or its recovery, may complete or remove files later, and no record of this package
    would show this.

    ``zero-rename adopt`` calls this itself. In Python call it before :meth:`.Table.adopt` and
    :meth:`.DeltaTable.adopt`::

        table.run(refuse_left_jobs(table.root))
        table.adopt(apply=True)

    :raises InvalidInputError: there is one. Nothing was changed.
    """
    left = yield from recover_jobs(root, RecoveryOptions(strangers=False))
    tries = (yield from open_tries(root)).known
    said = [f"the job {it.job}, which has left {it.left} files" for it in left]
    said += [f"{said_of(it.record)}, which is at work" for it in tries if is_at_work(it)]
    if said:
        raise InvalidInputError(
            f"Here is a job of Hadoop's committers that has not ended: {first_few(said)}. The "
            "table would not count what it completes later, or would count what is taken back. "
            "Nothing was changed.",
            table=root.url,
            remedy=f"See what is left: zero-rename s3a-jobs {root.url}; settle it: zero-rename "
            f"s3a-recover {root.url} --apply.",
        )
