"""Recovery of open jobs: each is applied, cleaned up, fenced, or left alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice

from ..commit.abort import abort_own, claimable, claimable_slots, fence, unfinished_abort
from ..commit.apply import finish
from ..commit.close import Swept, delete_open_record, sweep_jobs
from ..commit.first_job import confirm
from ..commit.state.context import Context
from ..commit.state.decide import Decided, read_decision
from ..commit.state.found_table import FoundTable, find_table, read_table
from ..commit.state.heads import ListedHead, all_heads, list_heads
from ..commit.state.job_state import Aborted
from ..commit.state.open_jobs import OpenEntry, list_open, read_open
from ..commit.state.table_kind import refuse_delta
from ..commit.state.tolerance import or_damage, or_error
from ..errors import (
    DamagedError,
    InvalidInputError,
    StoreRefusedError,
    StoreUnfitError,
    UnfinishedAbortError,
    UnfinishedCommitError,
    UnfinishedUpkeepError,
    ZeroRenameError,
    counted,
)
from ..format.job_spec import NOBODY, Coordination, Owner
from ..format.records.decision import Verdict
from ..format.records.head import HeadState, Slot
from ..format.records.store_facts import StoreFacts
from ..store.requests import All, ListObjects, Step

#: How many jobs are recovered at once: their decisions are in memory together.
_AT_ONCE = 64


class Outcome(StrEnum):
    """Outcome for an open job. ``WOULD_FINISH``: it is committed already. ``WOULD_ABORT``: it would
    be aborted, or it is aborted and would be cleaned up."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    LEFT = "left"
    FAILED = "failed"
    WOULD_FINISH = "would-finish"
    WOULD_ABORT = "would-abort"


@dataclass(frozen=True)
class Recovered:
    """Outcome of recovery for one job, with its reason.

    :param lasting: it failed, and will fail again until an operator acts.
    """

    job: str
    outcome: Outcome
    detail: str
    lasting: bool = False

    @staticmethod
    def failed(job: str, error: ZeroRenameError) -> Recovered:
        """Return the outcome of a job whose recovery has failed."""
        return Recovered(job, Outcome.FAILED, str(error), is_lasting(error))


def is_lasting(error: ZeroRenameError) -> bool:
    """Return whether a retry would fail with the same error. Failures of the store, and conflicts
    with other jobs, may pass. An error about unfinished work is as lasting as its cause."""
    unfinished = UnfinishedUpkeepError | UnfinishedCommitError | UnfinishedAbortError
    if isinstance(error, unfinished) and isinstance(error.__cause__, ZeroRenameError):
        return is_lasting(error.__cause__)
    return isinstance(error, DamagedError | InvalidInputError | StoreRefusedError | StoreUnfitError)


@dataclass(frozen=True)
class OpenJob:
    """A job with an open record.

    :param age_seconds: seconds without a heartbeat, by the store's clock.
    :param decided: the verdict of its decision; ``None``: it has no decision that can be read.
    :param damage: the errors of its records that cannot be read; ``""`` if all can.
    :param unpublished: its rows are written, and it waits to be published.
    """

    job: str
    owner: Owner
    age_seconds: float
    decided: Verdict | None
    idempotency_key: str | None
    damage: str = ""
    unpublished: bool = False


#: The weakest guarantees, assumed of a store of which nothing is known.
_LEAST_FACTS = StoreFacts(
    atomic=False, conditional_delete=False, uploads_by_prefix=False, complete_resurrects=True
)


def open_jobs(context: Context) -> Step[list[OpenJob]]:
    """Return the jobs with an open record, the oldest first."""
    jobs = yield from list_open(context)
    found = yield from All(tuple(_open_job(context, job) for job in sorted(jobs)))
    return [job for job in found if job is not None]


def _open_job(context: Context, job: str) -> Step[OpenJob | None]:
    entry = yield from read_open(context, job)
    if entry is None:
        return None
    decided = yield from or_damage(read_decision(context, job))
    verdict = decided.decision.verdict if isinstance(decided, Decided) else None
    met = [error for error in (entry.damage, decided) if isinstance(error, DamagedError)]
    damage = " ".join(str(error) for error in met)
    if entry.record is None:
        return OpenJob(job, NOBODY, entry.silent_for, verdict, None, damage)
    record = entry.record
    return OpenJob(job, record.owner, entry.silent_for, verdict, record.idempotency_key, damage)


def known(context: Context, found: FoundTable | None) -> Step[tuple[Context, Coordination]]:
    """Return the context with the store's guarantees, and the coordination, from ``table.json``.

    A first job that died before its commit leaves records but no table. If it had written
    ``table.json``, the store's guarantees are known from it; otherwise the weakest are assumed.

    :param found: the record at ``table.json``, if there is one.
    :raises TableNotFoundError: there is no table and no record of any job.
    :raises OtherFormatError: it is a Delta table.
    """
    if found is not None and found.counts:
        return context.of(found.record), found.record.coordination
    records = yield from ListObjects(context.root.control_prefix)
    if not records.objects:
        yield from read_table(context)
    if found is None:
        # A Delta table keeps the records of its jobs under the same keys.
        yield from refuse_delta(context.root)
    else:
        context = context.of(found.record)
    facts = _LEAST_FACTS if found is None else found.record.facts
    return replace(context, facts=facts), Coordination.STORE


def recover(context: Context, patience: float | None = None) -> Step[list[Recovered]]:
    """Recover every open job of a table.

    :param patience: seconds that an undecided job may be silent; ``None`` takes each job's own: ten
        of its heartbeat intervals, or its maximum duration if it sends no heartbeats.
    """
    found = yield from find_table(context)
    context, coordination = yield from known(context, found)
    if coordination is Coordination.NONE:
        return (yield from _report_only(context))
    if found is not None and found.counts:
        yield from confirm(context, found)
    return (yield from _recover_jobs(context, sorted((yield from list_open(context))), patience))


def plan_recovery(context: Context, patience: float | None = None) -> Step[list[Recovered]]:
    """Return what :func:`recover` would do, by the same judgement. Changes nothing."""
    context, coordination = yield from known(context, (yield from find_table(context)))
    if coordination is Coordination.NONE:
        return (yield from _report_only(context))
    jobs = sorted((yield from list_open(context)))
    found = yield from All(tuple(or_damage(judge_job(context, job, patience)) for job in jobs))
    return [
        Recovered.failed(job, it) if isinstance(it, DamagedError) else it.plan()
        for job, it in zip(jobs, found, strict=True)
        if it is not None
    ]


def settle_jobs(context: Context, jobs: Collection[str]) -> Step[list[Recovered]]:
    """Recover jobs that the caller knows to be dead (:meth:`.table.Table.settle`). Does nothing on
    a table of coordination *none*, where only its owner may finish a job."""
    context, coordination = yield from known(context, (yield from find_table(context)))
    if coordination is Coordination.NONE:
        return []
    return (yield from _recover_jobs(context, sorted(jobs), 0.0))


def _report_only(context: Context) -> Step[list[Recovered]]:
    """Report the open jobs of a table of coordination *none*, where only the owner may act, with
    the steps that an operator can take."""
    found = yield from open_jobs(context)
    left = []
    for job in found:
        silent = f"silent for {job.age_seconds:.0f} s"
        detail = {
            None: f"undecided, {silent}; nothing of it is visible. If its process is dead, delete "
            f"its open record, then: zero-rename purge {context.root.url} --job {job.job} --apply",
            Verdict.ABORT: f"aborted, its clean-up is not finished, {silent}. If its process is "
            "dead, delete its open record and purge",
            Verdict.COMMIT: f"committed and not finished, {silent}; it may be half visible. If "
            "its process is dead: if it appended, delete the data files with its id in their names "
            "and run it again; if it replaced, load the same partitions again with mode replace; "
            "then delete its open record",
        }[job.decided]
        record = f"{context.root.bucket}/{context.root.open_key(job.job)}"
        left.append(Recovered(job.job, Outcome.LEFT, f"{detail} (s3://{record})"))
    return left


@dataclass(frozen=True)
class JudgedJob:
    """An open job, with all that recovery needs to choose its action.

    :param allowed: seconds that it may be silent while it is undecided.
    :param owners_alone: only its owner may finish or abort it, however long it is silent. It is a
        first job of a table of coordination *none*: an abort decision would not keep it from
        committing.
    """

    entry: OpenEntry
    decided: Decided | None
    allowed: float
    owners_alone: bool = False

    @property
    def is_committed(self) -> bool:
        return self.decided is not None and self.decided.decision.is_commit

    @property
    def may_live(self) -> bool:
        """True if it is undecided and has not been silent for too long, or is its owner's alone.
        Recovery must leave such a job alone."""
        lives = self.owners_alone or self.entry.silent_for < self.allowed
        return self.decided is None and lives

    @property
    def is_dead(self) -> bool:
        """True if it is to be aborted, or is aborted and not cleaned up yet."""
        return not (self.is_committed or self.may_live)

    @property
    def why_left(self) -> str:
        unread = "; its open record cannot be read" if self.entry.damage else ""
        if self.owners_alone:
            unread = (
                ". Its owner alone may settle it, as its table is to be of coordination=none: if "
                "its process is dead, delete its open record"
            )
        return (
            f"undecided, last heartbeat {self.entry.silent_for:.0f} s ago of {self.allowed:.0f} s "
            f"allowed{unread}"
        )

    @property
    def why_aborted(self) -> str:
        return "" if self.decided else f"silent for {self.entry.silent_for:.0f} s"

    def plan(self) -> Recovered:
        """Return what recovery would do."""
        job = self.entry.job
        if self.may_live:
            return Recovered(job, Outcome.LEFT, self.why_left)
        if self.is_committed:
            return Recovered(job, Outcome.WOULD_FINISH, "it is committed and not finished")
        return Recovered(
            job, Outcome.WOULD_ABORT, self.why_aborted or "aborted, its clean-up is not finished"
        )


def judge_job(context: Context, job: str, patience: float | None) -> Step[JudgedJob | None]:
    """Read what recovery needs to know of a job; ``None``: it is not open. Changes nothing.

    :param patience: as in :func:`recover`.
    :raises DamagedError: the job's decision cannot be read.
    """
    entry = yield from read_open(context, job)
    if entry is None:
        return None
    decided = yield from read_decision(context, job)
    record = entry.record
    uncoordinated = record is not None and record.coordination is Coordination.NONE
    allowed = entry.patience if patience is None else patience
    return JudgedJob(entry, decided, allowed, uncoordinated)


@dataclass(frozen=True)
class _Fenced:
    """A job whose abort decision stands and whose claims are released.

    :param why: the reason of the abort.
    """

    job: str
    why: str


def _recover_jobs(
    context: Context, jobs: Sequence[str], patience: float | None
) -> Step[list[Recovered]]:
    """Recover open jobs, :data:`_AT_ONCE` at a time. If one fails, the others are recovered all the
    same."""
    settled: list[Recovered] = []
    left = iter(jobs)
    while chunk := tuple(islice(left, _AT_ONCE)):
        judged = yield from All(tuple(or_error(judge_job(context, job, patience)) for job in chunk))
        # List the heads before any decision: a claim that comes later is that of a live job.
        dead = any(isinstance(it, JudgedJob) and it.is_dead for it in judged)
        heads = (yield from or_error(list_heads(context))) if dead else {}
        met = yield from All(tuple(or_error(_settle(context, it, heads)) for it in judged))
        closed = yield from _close(context, [it for it in met if isinstance(it, _Fenced)])
        for job, it in zip(chunk, met, strict=True):
            if isinstance(it, ZeroRenameError):
                settled.append(Recovered.failed(job, it))
            elif it is not None:
                settled.append(closed[job] if isinstance(it, _Fenced) else it)
    return settled


def _settle(
    context: Context,
    judged: JudgedJob | ZeroRenameError | None,
    heads: Mapping[str, ListedHead] | ZeroRenameError,
) -> Step[Recovered | _Fenced | None]:
    """Finish a committed job, leave one that may live, fence one that is dead.

    :param judged: the job; the error of one that could not be judged, which is raised; or ``None``.
    :param heads: the heads as listed before; or an error, which is raised if they are needed.
    :raises ZeroRenameError: the job cannot be recovered.
    """
    if isinstance(judged, ZeroRenameError):
        raise judged
    if judged is None:
        return None
    job, entry = judged.entry.job, judged.entry
    if judged.decided is not None and judged.is_committed:
        report = yield from finish(context, judged.decided)
        return Recovered(job, Outcome.COMMITTED, f"applied: {counted(report.rows, 'row')}")
    if judged.may_live:
        return Recovered(job, Outcome.LEFT, judged.why_left)
    if isinstance(heads, ZeroRenameError):
        raise heads
    if entry.record is None:
        # Only the heads show what it has claimed. If a head cannot be read either, its claim stays
        # until that head is repaired.
        slots = yield from _claimed_by(context, job)
    else:
        slots = claimable(context.root, entry.record, entry.last_modified, heads)
    committed = yield from fence(context, job, slots, owner=entry.owner)
    if committed is None:
        return _Fenced(job, judged.why_aborted or "its clean-up is finished")
    return Recovered(job, Outcome.COMMITTED, f"decided meanwhile: {counted(committed.rows, 'row')}")


def _close(context: Context, fenced: Sequence[_Fenced]) -> Step[dict[str, Recovered]]:
    """Close fenced jobs. The table's uploads are listed once for all of them."""
    if not fenced:
        return {}
    swept = yield from or_error(sweep_jobs(context, [it.job for it in fenced]))
    if isinstance(swept, ZeroRenameError):
        return {it.job: Recovered.failed(it.job, swept) for it in fenced}
    closed = yield from All(tuple(or_error(_close_one(context, it, swept)) for it in fenced))
    return {
        job: Recovered.failed(job, it) if isinstance(it, ZeroRenameError) else it
        for job, it in zip((it.job for it in fenced), closed, strict=True)
    }


def _close_one(context: Context, fenced: _Fenced, swept: Swept) -> Step[Recovered]:
    error = swept.errors.get(fenced.job)
    if error is not None:
        raise unfinished_abort(error) if isinstance(error, UnfinishedCommitError) else error
    yield from delete_open_record(context, fenced.job)
    uploads = swept.aborted[fenced.job]
    return Recovered(
        fenced.job, Outcome.ABORTED, f"{fenced.why}; {counted(uploads, 'upload')} aborted"
    )


def give_up(context: Context, job: str) -> Step[Recovered | None]:
    """Abort an undecided job that the caller knows to be dead; ``None``: it is not open.

    On a full store its uploads are aborted before the decision, for which there is no room.
    """
    entry = yield from read_open(context, job)
    if entry is None:
        return None
    if entry.record is None:
        slots = yield from _claimed_by(context, job)
    else:
        slots = yield from claimable_slots(context, entry.record, entry.last_modified)
    result = yield from abort_own(context, job, slots, lambda holders: True, owner=entry.owner)
    if isinstance(result, Aborted):
        return Recovered(
            job, Outcome.ABORTED, f"named as dead; {counted(result.uploads, 'upload')} aborted"
        )
    return Recovered(job, Outcome.COMMITTED, f"it was committed: {counted(result.rows, 'row')}")


def _claimed_by(context: Context, job: str) -> Step[list[Slot]]:
    states = yield from all_heads(context)
    return [s.slot for s in states if isinstance(s, HeadState) and s.head.claim == job]
