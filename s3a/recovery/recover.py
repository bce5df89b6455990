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
    StoreUnreachableError,
    ZeroRenameError,
    printable,
)
from ...committer.job_spec import NOBODY, Owner
from ...committer.layout import TableRoot
from ...committer.s3.requests import All, Found, Get, Step
from ..runs.ledger import TryRecord, last_heartbeat
from ..runs.open_tries import OpenTry, forget_try, open_tries
from .direction import Direction, read_direction
from .execute import Execution, FileOutcome, carry_out
from .leftovers import Kind, LeftoverJob, Leftovers, find_jobs
from .liveness import Judgement, Knowledge, State, judge
from .marker import MarkerOutcome, marker_key
from .plan import Action, Case, Overrides, Plan, Presence, look_at_files, plan_job, read_marker
from .unclaimed_files import visible_files

_log = logging.getLogger(__name__)
_VISIBLE = {
    Kind.UPLOADS: "complete files carry the UUID of its uploads: it died in its commit, or "
    "committed and left these uploads of other attempts. Nothing in the store says which, so "
    "they are left",
    Kind.MAGIC: "complete files that no readable pending set names carry the UUID of its other "
    "files. A name is no proof, so they are left",
}


class JobOutcome(StrEnum):
    """What became of a job, or would."""

    ROLLED_FORWARD = "rolled-forward"
    ROLLED_BACK = "rolled-back"
    WOULD_ROLL_FORWARD = "would-roll-forward"
    WOULD_ROLL_BACK = "would-roll-back"
    #: It lives, or is not known not to, or only somebody who knows the load can choose.
    LEFT = "left"
    #: Its metadata name what is not its.
    REFUSED = "refused"
    #: The store refused something; a repeat goes on where this stopped.
    FAILED = "failed"
    #: The store did not say what happened; a repeat finds out.
    UNKNOWN = "unknown"


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
        ``Action.FORWARD`` where both would do and only the caller can tell.
    :param tasks: how many tasks the job has, where known.
    :param jobs: only these UUIDs; ``None`` for all.
    :param folders: further destinations below the table, as paths relative to its root.
    :param deep: list the whole table for jobs that left nothing but their metadata.
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
    :param left: ``magic`` or ``uploads``.
    :param destination: ``s3://bucket/prefix`` of the job's output.
    :param files: how many its pending sets name, of ``bytes`` in all; ``written`` of them were
        when it was looked at, ``outstanding`` are uploads, ``missing`` neither; ``None`` where
        nobody looked.
    :param extra: uploads of task attempts that did not commit.
    :param completed: files completed now; ``removed`` and ``aborted`` files and uploads.
    :param kept: keys of files that are visible and were left: not the job's, or of uploads
        alone perhaps committed.
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
    :raises InvalidInputError: options that cannot be right.
    """
    options.check(root)
    folders = tuple(f"{root.prefix}/{folder.strip('/')}" for folder in options.folders)
    found: Leftovers = yield from find_jobs(root, folders, options.deep)
    # Tries after jobs: a try says that it begins before its job leaves anything.
    tries = yield from open_tries(root)
    heartbeats = yield from _heartbeats(root, tries)
    known = Knowledge(tries, options.dead, ask, heartbeats, options.patience)
    judged = [(job, judge(job, found.now, known)) for job in found.jobs]
    results = []
    for job, judgement in judged:
        if options.jobs is not None and job.uuid not in options.jobs:
            continue
        rival = _rival(job, judged)
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


def _heartbeats(root: TableRoot, tries: Collection[OpenTry]) -> Step[dict[str, float]]:
    """Seconds since the applications of tries said that they write, by the tries' UUIDs."""
    runs = [known.record.uuid for known in tries if known.record is not None]
    found = yield All(tuple(last_heartbeat(root, run) for run in runs))
    return {run: silent for run, silent in zip(runs, found, strict=True) if silent is not None}


def _rival(job: LeftoverJob, judged: Collection[tuple[LeftoverJob, Judgement]]) -> str | None:
    """A job that lives and began after this one's last task, within its destination or around
    it."""
    last = max((one.last_modified for one in job.sets), default=job.newest)
    for other, judgement in judged:
        near = f"{other.destination}/".startswith(f"{job.destination}/")
        near = near or f"{job.destination}/".startswith(f"{other.destination}/")
        if other is not job and judgement.state is State.LIVE and near and other.oldest >= last:
            return other.uuid or "of uploads that name none"
    return None


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
    plan, before = yield from _plan(root, job, judgement, overrides, rival)
    visible: tuple[str, ...] = ()
    if plan.action is Action.BACK:
        visible = yield from visible_files(job)
    if visible:
        plan = replace(plan, reason=f"{plan.reason}. {len(visible)} {_VISIBLE[job.kind]}")
    may = judgement.state is not State.UNKNOWN or options.force
    outcome, reason = _without_acting(plan, may, options)
    if outcome is not None:
        return _result(root, job, judgement, now, outcome, reason, plan)
    execution = yield from carry_out(root, plan, before)
    result = _acted(root, job, judgement, now, plan, execution)
    return replace(result, kept=(*result.kept, *(_safe(key) for key in visible)))


def _plan(
    root: TableRoot, job: LeftoverJob, judgement: Judgement, overrides: Overrides, rival: str | None
) -> Step[tuple[Plan, Direction | None]]:
    if job.refusals(root) or job.kind is Kind.UPLOADS:
        # Nothing that untrusted metadata name is asked for.
        return plan_job(Case(root, job, judgement, overrides)), None
    assert job.tree is not None
    try:
        before = yield from read_direction(job.tree)
    except RecordDamagedError as error:
        return Plan(job, judgement, Action.REFUSE, str(error)), None
    files = yield from look_at_files(job)
    found = yield Get(marker_key(job.destination))
    marker = read_marker(found if isinstance(found, Found) else None)
    case = Case(root, job, judgement, overrides, files, marker, before, rival)
    return plan_job(case), before


def _without_acting(
    plan: Plan, may: bool, options: RecoveryOptions
) -> tuple[JobOutcome | None, str]:
    """The outcome where nothing is done; ``None`` where the plan is to be carried out."""
    if plan.action is Action.REFUSE:
        return JobOutcome.REFUSED, plan.reason
    if plan.action is Action.ASK:
        return JobOutcome.LEFT, plan.reason
    if not may:
        would = "roll it forward" if plan.action is Action.FORWARD else "roll it back"
        return JobOutcome.LEFT, (
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
    record says so, for its run's next try to read."""
    outcomes = {result.job: result.outcome for result in results}
    of_try: dict[str, tuple[TryRecord, list[JobOutcome | None]]] = {}
    for job, judgement in judged:
        record = judgement.record
        if record is not None:
            of_try.setdefault(record.uuid, (record, []))[1].append(outcomes.get(job.uuid))
    for record, became in of_try.values():
        if all(one is JobOutcome.ROLLED_BACK for one in became):
            try:
                yield from forget_try(root, record)
            except StoreUnreachableError as error:
                # Its jobs are settled all the same, and its run's next try closes it.
                _log.warning("Try %s could not be closed: %s", record.uuid, error)
