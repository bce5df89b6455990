"""Recovery of S3A jobs: find them, judge whether they live, plan, and act where that is asked.

Reports by default. With ``apply``, jobs that are dead or superseded are settled; with ``force``,
those of which nothing is known too; jobs that live are left alone in any case.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import StrEnum

from ...committer.errors import (
    OutcomeUnknownError,
    RecordDamagedError,
    ZeroRenameError,
    printable,
)
from ...committer.job_spec import NOBODY, Owner
from ...committer.layout import TableRoot
from ...committer.s3.requests import Step
from ..hadoop.staging_dir import StagingFolder
from ..runs.ledger import forget_try, open_tries
from ..runs.try_record import TryRecord
from .execute import NOTHING_DONE, Execution, FileOutcome, carry_out
from .job_files import Presence
from .leftover_job import Kind, LeftoverJob
from .leftovers import Leftovers, find_jobs
from .liveness import Judgement, Knowledge, State, judge, rival_of
from .marker import MarkerOutcome
from .options import REPORT, Action, RecoveryOptions
from .plan import Case, Plan, looked_at, plan_job

_log = logging.getLogger(__name__)


class JobOutcome(StrEnum):
    """What became of a job, or would."""

    ROLLED_FORWARD = "rolled-forward"
    ROLLED_BACK = "rolled-back"
    WOULD_ROLL_FORWARD = "would-roll-forward"
    WOULD_ROLL_BACK = "would-roll-back"
    #: It lives, or is not known not to.
    LEFT = "left"
    #: Only somebody who knows the load can choose. Nothing was done.
    NEEDS_DECISION = "needs-decision"
    #: Rolled back, and files are visible that carry its UUID, which is no proof that they are its.
    FILES_LEFT = "files-left"
    #: Its metadata name what is not its.
    REFUSED = "refused"
    #: The store refused something; a repeat goes on where this stopped.
    FAILED = "failed"
    #: The store did not say what happened; a repeat finds out.
    UNKNOWN = "unknown"


#: Outcomes after which somebody has to look.
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
    """One job: what it is held for, what became of it, and why. Fit to be printed: control
    characters of untrusted records are escaped.

    :param job: the committer's UUID; of uploads alone, the one in their names; ``""`` for none.
    :param left: ``magic``, ``staging`` or ``uploads``.
    :param destination: ``s3://bucket/prefix`` of the job's output.
    :param files: how many its pending sets name, of ``bytes`` in all; ``written`` of them were
        when it was looked at, ``outstanding`` are uploads, ``missing`` neither, and ``unsure``
        such as cannot be compared; ``None`` where nobody looked.
    :param extra: uploads of task attempts that did not commit.
    :param completed: files completed now; ``removed`` and ``aborted`` files and uploads.
    :param kept: keys of files that are visible and were left: not the job's, or not proved to
        be its.
    :param marker: what became of its ``_SUCCESS``.
    """

    job: str
    left: Kind
    destination: str
    state: State
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
    marker: MarkerOutcome | None = None
    silent_for: float = 0.0
    owner: Owner = field(default=NOBODY)


def recover_jobs(
    root: TableRoot,
    options: RecoveryOptions = REPORT,
    ask: Callable[[TryRecord], State | None] | None = None,
) -> Step[tuple[RecoveredJob, ...]]:
    """Find the S3A jobs below a table, and report or settle each.

    :param ask: what has become of a try; ``None`` where that is not known.
    :returns: the jobs, oldest first.
    :raises InvalidInputError: options that cannot be right, or a staging folder that cannot be
        looked at from here.
    """
    options.check(root)
    folders = tuple(f"{root.prefix}/{folder.strip('/')}" for folder in options.folders)
    staging = StagingFolder(options.staging) if options.staging is not None else None
    found: Leftovers = yield from find_jobs(root, folders, options.deep, staging)
    # Tries after jobs: a try says that it begins before its job leaves anything.
    tries = yield from open_tries(root)
    known = Knowledge(tries, options.dead, ask, options.patience)
    judged = [(job, judge(job, found.now, known)) for job in found.jobs]
    results = []
    for job, judgement in judged:
        if options.jobs is not None and job.uuid not in options.jobs:
            continue
        rival = rival_of(job, judged)
        result = yield from _settled(Case(root, job, judgement, options, found.now, rival))
        results.append(result)
        _log.info(
            "S3A job %s at %s: %s (%s: %s): %s",
            result.job or "(no UUID)",
            result.destination,
            result.outcome,
            result.state,
            result.state_reason,
            result.reason,
        )
    yield from _forget_tries(root, judged, results)
    return tuple(results)


def _settled(case: Case) -> Step[RecoveredJob]:
    if case.judgement.state is State.LIVE:
        return _result(case, JobOutcome.LEFT, "it lives; nothing is done to it")
    try:
        try:
            plan = plan_job((yield from looked_at(case)))
        except RecordDamagedError as error:
            return _result(case, JobOutcome.REFUSED, str(error))
        return _without_acting(plan) or _acted(plan, (yield from carry_out(plan)))
    except OutcomeUnknownError as error:
        return _result(case, JobOutcome.UNKNOWN, str(error))
    except ZeroRenameError as error:
        return _result(case, JobOutcome.FAILED, str(error))


def _without_acting(plan: Plan) -> RecoveredJob | None:
    """The result where nothing is done; ``None`` where the plan is to be carried out."""
    case, options = plan.case, plan.case.options
    is_forward = plan.action is Action.FORWARD
    if plan.action is Action.REFUSE:
        return _result(case, JobOutcome.REFUSED, plan.reason, looked=True)
    if plan.action is Action.ASK:
        return _result(case, JobOutcome.NEEDS_DECISION, plan.reason, looked=True)
    if case.judgement.state is State.UNKNOWN and not options.force:
        is_seen = options.apply and case.keys(Presence.WRITTEN)
        outcome = JobOutcome.NEEDS_DECISION if is_seen else JobOutcome.LEFT
        reason = (
            "whether it lives is not known, so it is left unless that is forced, which would roll "
            f"it {'forward' if is_forward else 'back'}: {plan.reason}"
        )
        return _result(case, outcome, reason, looked=True)
    if options.apply:
        return None
    would = JobOutcome.WOULD_ROLL_FORWARD if is_forward else JobOutcome.WOULD_ROLL_BACK
    return _result(case, would, plan.reason, looked=True)


def _acted(plan: Plan, execution: Execution) -> RecoveredJob:
    case, reason = plan.case, plan.reason
    outcome = JobOutcome.ROLLED_BACK
    if execution.moved:
        outcome = JobOutcome.LEFT
        reason = "it changed while it was looked at: it may live, or be recovered by somebody else"
    elif execution.problem:
        outcome = JobOutcome.UNKNOWN if execution.unsure else JobOutcome.FAILED
        reason = f"{execution.problem}. It is kept for a repeat. Meant to {plan.action}: {reason}"
    elif execution.action is Action.FORWARD:
        outcome = JobOutcome.ROLLED_FORWARD
    elif kept := case.unclaimed.keys:
        outcome = JobOutcome.FILES_LEFT
        reason += (
            f". {len(kept)} complete files carry its UUID in their names. A name is no proof, so "
            "they are left to you to remove"
        )
    return _result(case, outcome, reason, looked=True, execution=execution)


def _result(
    case: Case,
    outcome: JobOutcome,
    reason: str,
    looked: bool = False,
    execution: Execution = NOTHING_DONE,
) -> RecoveredJob:
    job, judgement = case.job, case.judgement
    kept = [file.key for file in execution.files if file.outcome is FileOutcome.KEPT]
    kept += case.unclaimed.keys if outcome is JobOutcome.FILES_LEFT else ()

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
        completed=execution.count(FileOutcome.COMPLETED),
        removed=execution.count(FileOutcome.REMOVED),
        aborted=execution.aborted + execution.count(FileOutcome.ABORTED),
        kept=tuple(map(_safe, kept)),
        marker=execution.marker,
        silent_for=max(0.0, case.now - job.newest),
        owner=judgement.owner,
    )


def _safe(text: str) -> str:
    """One line without control characters: it comes from records that others may write."""
    return printable(text).replace("\n", "\\n")


def _forget_tries(
    root: TableRoot,
    judged: Collection[tuple[LeftoverJob, Judgement]],
    results: Collection[RecoveredJob],
) -> Step[None]:
    """Close tries of which nothing stays. One of whose jobs was rolled forward stays open, and its
    record says so, for its run's next try to read; if there is to be one."""
    outcomes = {result.job: result.outcome for result in results}
    of_try: dict[str, tuple[TryRecord, list[JobOutcome | None]]] = {}
    for job, judgement in judged:
        record = judgement.record
        if record is not None:
            of_try.setdefault(record.uuid, (record, []))[1].append(outcomes.get(job.uuid))
    for record, became in of_try.values():
        done = {JobOutcome.ROLLED_BACK} | (
            {JobOutcome.ROLLED_FORWARD} if record.is_alone else set()
        )
        if done.issuperset(became):
            try:
                yield from forget_try(root, record)
            except ZeroRenameError as error:
                # Its jobs are settled all the same, and its run's next try closes it.
                _log.warning("Try %s could not be closed: %s", record.uuid, error)
