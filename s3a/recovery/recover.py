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
from ...committer.s3.requests import All, Found, Get, Step
from ..runs.ledger import last_sign
from ..runs.run_record import KnownRecord, RunRecord, list_records, remove_record
from .direction import Decision, read_decision
from .execute import FileOutcome, Rolled, carry_out
from .leftovers import Findings, FoundJob, Kind, find_jobs
from .liveness import Judgement, Knowledge, State, judge
from .marker import MarkerOutcome, marker_key
from .plan import Action, Case, Plan, Presence, Wishes, look_at_files, marker_state, plan_job
from .unclaimed_files import visible_files

_log = logging.getLogger(__name__)
_VISIBLE = {
    Kind.UPLOADS: "complete files carry the UUID of its uploads: it died in its commit, or "
    "committed and left these uploads of other attempts. Nothing in the store says which, so "
    "they are left",
    Kind.MAGIC: "complete files that no readable pending set names carry the UUID of its other "
    "files. A name is no proof, so they are left",
}


class Outcome(StrEnum):
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
class Options:
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
    outcome: Outcome
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
    options: Options = Options(),
    ask: Callable[[RunRecord], State | None] | None = None,
) -> Step[tuple[RecoveredJob, ...]]:
    """Find the S3A jobs below a table, and report or settle each.

    :param ask: what has become of a record's run; ``None`` where that is not known.
    :returns: the jobs, oldest first.
    :raises InvalidInputError: options that cannot be right.
    """
    options.check(root)
    folders = tuple(f"{root.prefix}/{folder.strip('/')}" for folder in options.folders)
    found: Findings = yield from find_jobs(root, folders, options.deep)
    # Records after jobs: a run says that it begins before its job leaves anything.
    records = yield from list_records(root)
    signs = yield from _signs(root, records)
    known = Knowledge(records, options.dead, ask, signs, options.patience)
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
    yield from _forget_runs(root, judged, results)
    return tuple(results)


def _signs(root: TableRoot, records: Collection[KnownRecord]) -> Step[dict[str, float]]:
    """Seconds since the applications of runs said that they write, by record id."""
    runs = [k.record for k in records if k.record is not None and k.record.uuid is not None]
    found = yield All(tuple(last_sign(root, run.uuid or "") for run in runs))
    signs = zip(runs, found, strict=True)
    return {run.id: sign for run, sign in signs if sign is not None}


def _rival(job: FoundJob, judged: Collection[tuple[FoundJob, Judgement]]) -> str | None:
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
    job: FoundJob,
    judgement: Judgement,
    now: float,
    options: Options,
    rival: str | None,
) -> Step[RecoveredJob]:
    if judgement.state is State.LIVE:
        return _result(root, job, judgement, now, Outcome.LEFT, "it lives; nothing is done to it")
    try:
        return (yield from _settle(root, job, judgement, now, options, rival))
    except OutcomeUnknownError as error:
        return _result(root, job, judgement, now, Outcome.UNKNOWN, str(error))
    except ZeroRenameError as error:
        return _result(root, job, judgement, now, Outcome.FAILED, str(error))


def _settle(
    root: TableRoot,
    job: FoundJob,
    judgement: Judgement,
    now: float,
    options: Options,
    rival: str | None,
) -> Step[RecoveredJob]:
    wishes = Wishes(options.mode, options.direction, options.tasks)
    plan, before = yield from _plan(root, job, judgement, wishes, rival)
    visible: tuple[str, ...] = ()
    if plan.action is Action.BACK:
        visible = yield from visible_files(job)
    if visible:
        plan = replace(plan, reason=f"{plan.reason}. {len(visible)} {_VISIBLE[job.kind]}")
    may = judgement.state is not State.UNKNOWN or options.force
    outcome, reason = _without_acting(plan, may, options)
    if outcome is not None:
        return _result(root, job, judgement, now, outcome, reason, plan)
    rolled = yield from carry_out(root, plan, before)
    result = _acted(root, job, judgement, now, plan, rolled)
    return replace(result, kept=(*result.kept, *(_safe(key) for key in visible)))


def _plan(
    root: TableRoot, job: FoundJob, judgement: Judgement, wishes: Wishes, rival: str | None
) -> Step[tuple[Plan, Decision | None]]:
    if job.refusals(root) or job.kind is Kind.UPLOADS:
        # Nothing that untrusted metadata name is asked for.
        return plan_job(Case(root, job, judgement, wishes)), None
    assert job.tree is not None
    try:
        before = yield from read_decision(job.tree)
    except RecordDamagedError as error:
        return Plan(job, judgement, Action.REFUSE, str(error)), None
    files = yield from look_at_files(job)
    found = yield Get(marker_key(job.destination))
    marker = marker_state(found if isinstance(found, Found) else None)
    case = Case(root, job, judgement, wishes, files, marker, before, rival)
    return plan_job(case), before


def _without_acting(plan: Plan, may: bool, options: Options) -> tuple[Outcome | None, str]:
    """The outcome where nothing is done; ``None`` where the plan is to be carried out."""
    if plan.action is Action.REFUSE:
        return Outcome.REFUSED, plan.reason
    if plan.action is Action.ASK:
        return Outcome.LEFT, plan.reason
    if not may:
        would = "roll it forward" if plan.action is Action.FORWARD else "roll it back"
        return Outcome.LEFT, (
            f"whether it lives is not known, so it is left unless that is forced, which would "
            f"{would}: {plan.reason}"
        )
    if not options.apply:
        forward = plan.action is Action.FORWARD
        return Outcome.WOULD_ROLL_FORWARD if forward else Outcome.WOULD_ROLL_BACK, plan.reason
    return None, ""


def _acted(
    root: TableRoot, job: FoundJob, judgement: Judgement, now: float, plan: Plan, rolled: Rolled
) -> RecoveredJob:
    if rolled.moved:
        why = "it changed while it was looked at: it may live, or be recovered by somebody else"
        return _result(root, job, judgement, now, Outcome.LEFT, why, plan)
    if rolled.problem:
        outcome = Outcome.UNKNOWN if rolled.unsure else Outcome.FAILED
        reason = f"{rolled.problem}. It is kept for a repeat. Meant to {plan.action}: {plan.reason}"
        return _result(root, job, judgement, now, outcome, reason, plan, rolled)
    forward = rolled.action is Action.FORWARD
    outcome = Outcome.ROLLED_FORWARD if forward else Outcome.ROLLED_BACK
    return _result(root, job, judgement, now, outcome, plan.reason, plan, rolled)


def _result(
    root: TableRoot,
    job: FoundJob,
    judgement: Judgement,
    now: float,
    outcome: Outcome,
    reason: str,
    plan: Plan | None = None,
    rolled: Rolled | None = None,
) -> RecoveredJob:
    kept = [f.key for f in rolled.files if f.outcome is FileOutcome.KEPT] if rolled else []
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
        completed=rolled.count(FileOutcome.COMPLETED) if rolled else 0,
        removed=rolled.count(FileOutcome.REMOVED) if rolled else 0,
        aborted=rolled.aborted + rolled.count(FileOutcome.ABORTED) if rolled else 0,
        kept=tuple(_safe(key) for key in kept),
        marker=rolled.marker if rolled else None,
        silent_for=max(0.0, now - job.newest),
        owner=judgement.owner,
    )


def _safe(text: str) -> str:
    """One line without control characters: it comes from records that others may write."""
    return printable(text).replace("\n", "\\n")


def _forget_runs(
    root: TableRoot,
    judged: Collection[tuple[FoundJob, Judgement]],
    results: Collection[RecoveredJob],
) -> Step[None]:
    """Forget runs of which nothing stays. One of whose jobs was rolled forward keeps its record,
    which says so, for the run's next try to read."""
    outcomes = {result.job: result.outcome for result in results}
    of_record: dict[str, list[Outcome | None]] = {}
    for job, judgement in judged:
        if judgement.record is not None:
            of_record.setdefault(judgement.record, []).append(outcomes.get(job.uuid))
    for record, became in of_record.items():
        if all(one is Outcome.ROLLED_BACK for one in became):
            yield from remove_record(root, record)
