"""Recovery of S3A jobs: find them, judge whether they live, plan, and act where that is asked.

Reports by default. With ``apply``, jobs that are dead or superseded are settled; with ``force``,
those of which nothing is known too; jobs that live are left alone in any case.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from enum import StrEnum

from ...committer.errors import (
    InvalidInputError,
    OutcomeUnknownError,
    RecordDamagedError,
    ZeroRenameError,
    printable,
)
from ...committer.job_spec import NOBODY, Owner
from ...committer.layout import TableRoot
from ...committer.s3.requests import Found, Get, Step
from ..hadoop.staging_dir import StagingFolder
from ..runs.ledger import forget_try, open_tries
from ..runs.try_record import TryRecord
from .direction import read_direction
from .execute import Execution, FileOutcome, carry_out
from .leftover_job import Kind, LeftoverJob
from .leftovers import Leftovers, find_jobs
from .liveness import Judgement, Knowledge, State, judge, rival_of
from .marker import MarkerOutcome, marker_key, read_marker
from .plan import Action, Case, Overrides, Plan, Presence, look_at_files, plan_job
from .unclaimed_files import unclaimed_files

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
class RecoveryOptions:
    """What recovery may do, and what its caller knows.

    :param apply: act; else only report.
    :param force: act on jobs too of which it is not known whether they live.
    :param patience: seconds of silence after which a job of which nothing else is known counts
        as dead; ``None``: such a job stays unknown. Longer than the longest task: one that is
        writing a file is silent.
    :param dead: UUIDs of jobs, or ids of runs, whose application is known to have ended.
    :param mode: ``append`` where the jobs add to what is there.
    :param direction: ``Action.BACK``: roll back even where rolling forward would do; or
        ``Action.FORWARD`` where both would do and only the caller can tell. Either vouches for
        files that are there and cannot be compared.
    :param tasks: how many tasks the job has, where known.
    :param jobs: only these UUIDs; ``None`` for all.
    :param folders: further destinations below the table, as paths relative to its root.
    :param deep: list the whole table for jobs that left nothing but their metadata.
    :param staging: where the directory and partitioned committers keep their pending sets:
        ``fs.s3a.committer.staging.tmp.path``, as :class:`~..hadoop.staging_dir.StagingFolder`
        takes it.
    """

    apply: bool = False
    force: bool = False
    patience: float | None = None
    dead: Collection[str] = frozenset()
    mode: str | None = None
    direction: Action | None = None
    tasks: int | None = None
    jobs: Collection[str] | None = None
    folders: Collection[str] = ()
    deep: bool = False
    staging: str | None = None

    def check(self, root: TableRoot) -> None:
        """:raises InvalidInputError: options that cannot be right."""
        if self.patience is not None and self.patience < 0:
            raise InvalidInputError(f"patience={self.patience} is negative.", table=root.url)
        if self.tasks is not None and self.jobs is None:
            raise InvalidInputError(
                "The number of tasks is one job's, and no job is named.",
                table=root.url,
                remedy="Name the job whose tasks they are.",
            )
        if self.direction not in (None, Action.FORWARD, Action.BACK):
            raise InvalidInputError(f"{self.direction} is no direction.", table=root.url)
        for folder in self.folders:
            if any(part in ("", ".", "..") for part in folder.strip("/").split("/")):
                raise InvalidInputError(f"{folder!r} is no folder of a table.", table=root.url)


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
    options: RecoveryOptions = RecoveryOptions(),
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
        result = yield from _one(root, job, judgement, found.now, options, rival)
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


def _one(
    root: TableRoot,
    job: LeftoverJob,
    judgement: Judgement,
    now: float,
    options: RecoveryOptions,
    rival: str | None,
) -> Step[RecoveredJob]:
    if judgement.state is State.LIVE:
        return _result(
            root, job, judgement, now, JobOutcome.LEFT, "it lives; nothing is done to it"
        )
    try:
        return (yield from _settle(root, job, judgement, now, options, rival))
    except OutcomeUnknownError as error:
        return _result(root, job, judgement, now, JobOutcome.UNKNOWN, str(error))
    except ZeroRenameError as error:
        return _result(root, job, judgement, now, JobOutcome.FAILED, str(error))


def _settle(
    root: TableRoot,
    job: LeftoverJob,
    judgement: Judgement,
    now: float,
    options: RecoveryOptions,
    rival: str | None,
) -> Step[RecoveredJob]:
    overrides = Overrides(options.mode, options.direction, options.tasks)
    try:
        case = yield from _look(root, job, judgement, overrides, rival)
    except RecordDamagedError as error:
        return _result(root, job, judgement, now, JobOutcome.REFUSED, str(error))
    plan = plan_job(case)
    may = judgement.state is not State.UNKNOWN or options.force
    outcome, reason = _without_acting(plan, may, options)
    if outcome is not None:
        return _result(root, job, judgement, now, outcome, reason, plan)
    execution = yield from carry_out(root, plan, case.decided)
    result = _acted(root, job, judgement, now, plan, execution)
    return _with_unclaimed(result, case.unclaimed.keys)


def _look(
    root: TableRoot, job: LeftoverJob, judgement: Judgement, overrides: Overrides, rival: str | None
) -> Step[Case]:
    """:raises RecordDamagedError: an earlier recovery's direction cannot be read."""
    case = Case(root, job, judgement, overrides, rival=rival)
    if job.refusals(root):
        return case  # Nothing that untrusted metadata name is asked for.
    found = yield Get(marker_key(job.destination))
    marker = read_marker(found if isinstance(found, Found) else None)
    unclaimed = yield from unclaimed_files(job, marker)
    case = replace(case, marker=marker, unclaimed=unclaimed)
    if job.tree is None:
        return case
    before = yield from read_direction(job.tree)
    files = yield from look_at_files(job)
    return replace(case, files=files, decided=before)


def _with_unclaimed(result: RecoveredJob, keys: Collection[str]) -> RecoveredJob:
    """Say which files are visible that may be a job's that was rolled back."""
    if not keys or result.outcome is not JobOutcome.ROLLED_BACK:
        return result
    told = f"{len(keys)} complete files carry its UUID in their names. A name is no proof, so"
    return replace(
        result,
        outcome=JobOutcome.FILES_LEFT,
        reason=f"{result.reason}. {told} they are left to you to remove",
        kept=(*result.kept, *map(_safe, keys)),
    )


def _without_acting(
    plan: Plan, may: bool, options: RecoveryOptions
) -> tuple[JobOutcome | None, str]:
    """The outcome where nothing is done; ``None`` where the plan is to be carried out."""
    if plan.action is Action.REFUSE:
        return JobOutcome.REFUSED, plan.reason
    if plan.action is Action.ASK:
        return JobOutcome.NEEDS_DECISION, plan.reason
    if not may:
        would = "roll it forward" if plan.action is Action.FORWARD else "roll it back"
        is_seen = options.apply and plan.count(Presence.WRITTEN) > 0
        return JobOutcome.NEEDS_DECISION if is_seen else JobOutcome.LEFT, (
            f"whether it lives is not known, so it is left unless that is forced, which would "
            f"{would}: {plan.reason}"
        )
    if not options.apply:
        forward = plan.action is Action.FORWARD
        return JobOutcome.WOULD_ROLL_FORWARD if forward else JobOutcome.WOULD_ROLL_BACK, plan.reason
    return None, ""


def _acted(
    root: TableRoot,
    job: LeftoverJob,
    judgement: Judgement,
    now: float,
    plan: Plan,
    execution: Execution,
) -> RecoveredJob:
    if execution.moved:
        why = "it changed while it was looked at: it may live, or be recovered by somebody else"
        return _result(root, job, judgement, now, JobOutcome.LEFT, why, plan)
    if execution.problem:
        outcome = JobOutcome.UNKNOWN if execution.unsure else JobOutcome.FAILED
        reason = (
            f"{execution.problem}. It is kept for a repeat. Meant to {plan.action}: {plan.reason}"
        )
        return _result(root, job, judgement, now, outcome, reason, plan, execution)
    forward = execution.action is Action.FORWARD
    outcome = JobOutcome.ROLLED_FORWARD if forward else JobOutcome.ROLLED_BACK
    return _result(root, job, judgement, now, outcome, plan.reason, plan, execution)


def _result(
    root: TableRoot,
    job: LeftoverJob,
    judgement: Judgement,
    now: float,
    outcome: JobOutcome,
    reason: str,
    plan: Plan | None = None,
    execution: Execution | None = None,
) -> RecoveredJob:
    kept = [f.key for f in execution.files if f.outcome is FileOutcome.KEPT] if execution else []
    unsure = plan.count(Presence.UNSURE) if plan else None
    missing = plan.count(Presence.MISSING) + plan.count(Presence.FOREIGN) if plan else None
    return RecoveredJob(
        job=_safe(job.uuid),
        left=job.kind,
        destination=_safe(f"s3://{root.bucket}/{job.destination}"),
        state=judgement.state,
        state_reason=_safe(judgement.reason),
        outcome=outcome,
        reason=_safe(reason),
        tasks=len(job.sets),
        files=len(job.commits),
        bytes=sum(commit.length for commit in job.commits),
        written=plan.count(Presence.WRITTEN) if plan else None,
        outstanding=plan.count(Presence.OUTSTANDING) if plan else None,
        missing=missing,
        unsure=unsure,
        extra=len(job.extra),
        completed=execution.count(FileOutcome.COMPLETED) if execution else 0,
        removed=execution.count(FileOutcome.REMOVED) if execution else 0,
        aborted=execution.aborted + execution.count(FileOutcome.ABORTED) if execution else 0,
        kept=tuple(_safe(key) for key in kept),
        marker=execution.marker if execution else None,
        silent_for=max(0.0, now - job.newest),
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
