"""Purge of orphaned uploads, claims of closed jobs, and old records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from ...commit.apply import finish
from ...commit.close import list_uploads
from ...commit.index.read_index import find_old_parts, read_index, still_true
from ...commit.state.context import Context
from ...commit.state.decide import decide_abort, read_decision
from ...commit.state.found_table import find_table
from ...commit.state.heads import all_heads, list_heads_and_index, read_head, release_claim
from ...commit.state.old_records import KEPT_FOR, find_old_records
from ...commit.state.open_jobs import list_open, read_open
from ...commit.state.tolerance import or_damage, or_error
from ...errors import DamagedError, InvalidInputError, ZeroRenameError
from ...format.job_spec import Coordination
from ...format.layout import is_job_id, job_in_key
from ...format.records.head import HeadState
from ...store.backoff import Backoff
from ...store.deletion import abort_until_gone, is_denied, remove
from ...store.requests import All, Found, Head, ListedObject, ListedUpload, PartsPage, Step
from ...store.upload_parts import parts_held
from ..recovery import Outcome, Recovered, give_up, known, plan_recovery, recover
from .purge_plan import Judged, Wanted, judge_uploads
from .upload_selection import Spared, spare_needed, spare_none

#: How many uploads are measured by listing their parts.
_MEASURED = 100
#: Rounds of aborting. The second follows the first without a pause.
_ROUNDS = Backoff(tries=5, first=0.5, at_once=2)


class PurgeAction(StrEnum):
    """Action on one item: uploads are aborted, records removed. ``FAILED``: it was to be aborted or
    removed, and is still there."""

    ABORTED = "aborted"
    WOULD_ABORT = "would-abort"
    REMOVED = "removed"
    WOULD_REMOVE = "would-remove"
    KEPT = "kept"
    FAILED = "failed"


@dataclass(frozen=True)
class PurgeEntry:
    """Action of a purge on one upload, or on one record below ``_zero_rename/``.

    :param upload_id: ``""`` for a record.
    :param job: the id of this package's job, or the UUID of the S3A job that needs an upload.
    :param initiated: when the upload was begun or the record written; Unix seconds by the store's
        clock.
    :param bytes: the size of an upload to be aborted; ``None`` if it was not measured.
    :param is_denied: the store refused the action for want of a right: repeating does not help.
    """

    key: str
    upload_id: str
    job: str | None
    initiated: float
    action: PurgeAction
    reason: str
    bytes: int | None = None
    is_denied: bool = False


@dataclass(frozen=True)
class PurgeReport:
    """Report of a purge."""

    entries: tuple[PurgeEntry, ...]
    recovered: tuple[Recovered, ...]

    @property
    def failed(self) -> int:
        """The number of uploads and records that could not be removed, and of jobs that could not
        be finished."""
        there = sum(entry.action is PurgeAction.FAILED for entry in self.entries)
        return there + sum(job.outcome is Outcome.FAILED for job in self.recovered)


def purge(
    context: Context,
    *,
    patience: float | None = None,
    foreign_older_than: float | None = None,
    jobs: Collection[str] = (),
    records_older_than: float = KEPT_FOR,
    spared: Spared = spare_none,
    apply: bool = False,
) -> Step[PurgeReport]:
    """Abort orphaned uploads, finish dead jobs and remove old records (:meth:`.table.Table.purge`).

    :param foreign_older_than: abort foreign uploads that are at least so many seconds old; ``None``
        keeps them.
    :param spared: finds those of them that are kept all the same, each with the reason.
    """
    context, coordination = yield from known(context, (yield from find_table(context)))
    yield from _check_named(context, jobs)
    settle = _recovered if apply else _planned
    # Finishing a dead job aborts its uploads; this list lets the report name them all the same.
    before = (yield from list_uploads(context)) if apply and (yield from list_open(context)) else []
    recovered = yield from settle(context, coordination, patience, jobs)
    judged = yield from judge_uploads(context, Wanted(foreign_older_than, frozenset(jobs)))
    judged = [doomed_with_job(it, recovered) for it in judged]
    judged = yield from spare_needed(judged, spared)
    held = yield from _held(judged)
    left: dict[ListedUpload, str] = {}
    if apply:
        doomed = [it.upload for it in judged if it.abort]
        left = yield from abort_until_gone(doomed, partial(list_uploads, context), _ROUNDS)
        if len(doomed) > len(left) and any(it.outcome is Outcome.FAILED for it in recovered):
            # Jobs may have failed because the store was full; the aborts have made room.
            again = yield from _recovered(context, coordination, patience, jobs)
            # The second recovery reports again those that failed, and those that may live.
            ended = (Outcome.COMMITTED, Outcome.ABORTED)
            recovered = [it for it in recovered if it.outcome in ended] + again
    entries = _gone_with_jobs(before, judged, recovered)
    entries += [_entry(it, apply, left.get(it.upload), held.get(it.upload)) for it in judged]
    entries += yield from _old_records(context, records_older_than, apply)
    return PurgeReport(tuple(entries), tuple(recovered))


def doomed_with_job(it: Judged, planned: Sequence[Recovered]) -> Judged:
    """Return the judgement of an upload, as one to abort if its job would be aborted."""
    would = {one.job: one.detail for one in planned if one.outcome is Outcome.WOULD_ABORT}
    if not it.is_open or it.job not in would:
        return it
    return replace(it, abort=True, reason=f"of a job that would be aborted: {would[it.job]}")


def _gone_with_jobs(
    before: Sequence[ListedUpload], judged: Sequence[Judged], recovered: Sequence[Recovered]
) -> list[PurgeEntry]:
    """Return entries for the uploads that disappeared with aborted jobs.

    :param before: the uploads listed before the jobs were aborted; ``judged``: those after it.
    """
    there = {(it.upload.key, it.upload.upload_id) for it in judged}
    gone = {one.job: one.detail for one in recovered if one.outcome is Outcome.ABORTED}
    return [
        PurgeEntry(
            it.key,
            it.upload_id,
            job,
            it.initiated,
            PurgeAction.ABORTED,
            f"of a job that was aborted: {gone[job]}",
        )
        for it in before
        if (job := job_in_key(it.key)) in gone and (it.key, it.upload_id) not in there
    ]


def _check_named(context: Context, jobs: Collection[str]) -> Step[None]:
    """Refuse job ids of which the table has no trace. Otherwise a mistyped id would look like a job
    that has been finished.

    :raises InvalidInputError: a job has no record, no claim and no upload here.
    """
    if not jobs:
        return
    ids, root = [job for job in sorted(jobs) if is_job_id(job)], context.root
    keys = [key for job in ids for key in (root.open_key(job), root.decision_key(job))]
    found = yield from All(tuple(Head(key) for key in keys))
    recorded = {key for key, it in zip(keys, found, strict=True) if isinstance(it, Found)}
    known = {job for job in ids if {root.open_key(job), root.decision_key(job)} & recorded}
    if known >= set(jobs):
        return
    uploads, heads = yield from All((list_uploads(context), all_heads(context)))
    known |= {job_in_key(upload.key) for upload in uploads}
    known |= {state.head.claim for state in heads if isinstance(state, HeadState)}
    for job in sorted(set(jobs) - known):
        raise InvalidInputError(
            f"There is no record, no claim and no upload of a job {job!r} here; nothing was "
            "changed.",
            remedy=f"`zero-rename jobs {root.url}` lists the jobs that are open, `zero-rename "
            f"uploads list {root.url}` the uploads with their jobs.",
        )


def _old_records(context: Context, kept_for: float, apply: bool) -> Step[list[PurgeEntry]]:
    """Remove the records that are not needed any more, or report which these are."""
    old, parts = yield from All(
        (find_old_records(context, kept_for), find_old_parts(context, kept_for))
    )
    found = {it.item: it.reason for it in (*old, *parts)}
    return (yield from remove_objects(found, apply, {it: it.etag for it in found}))


def remove_objects(
    found: Mapping[ListedObject, str], apply: bool, etags: Mapping[ListedObject, str]
) -> Step[list[PurgeEntry]]:
    """Remove objects, or report which would be removed.

    :param found: the reason for each object.
    :param etags: the ETags of those objects that may be removed only if they have not changed.
    """
    failed: Mapping[str, str] = {}
    if apply:
        failed = yield from remove((item.key, etags.get(item)) for item in found)
    action = PurgeAction.REMOVED if apply else PurgeAction.WOULD_REMOVE
    entries = []
    for item, reason in found.items():
        key, done, cause = item.key, action, failed.get(item.key)
        if cause is not None:
            done, reason = PurgeAction.FAILED, f"{reason}; it could not be removed ({cause})"
        denied = cause is not None and is_denied(cause)
        made = PurgeEntry(key, "", job_in_key(key), item.last_modified, done, reason)
        entries.append(replace(made, is_denied=denied))
    return entries


def _recovered(
    context: Context, coordination: Coordination, patience: float | None, dead: Collection[str]
) -> Step[list[Recovered]]:
    """Finish or abort open jobs, those named as dead first, and release claims of closed jobs.

    A job named as dead that cannot be aborted hinders no other one.
    """
    outcomes: list[Recovered] = []
    failed: dict[str, Recovered] = {}
    if coordination is Coordination.STORE:
        for job in dead:
            outcome = yield from or_error(give_up(context, job))
            if isinstance(outcome, Recovered):
                outcomes.append(outcome)
            elif outcome is not None:
                failed[job] = Recovered.failed(job, outcome)
    # A job that could not be aborted is open still. recover() may leave it, as one that may live.
    found = yield from recover(context, patience)
    outcomes += [failed.get(it.job, it) if it.outcome is Outcome.LEFT else it for it in found]
    if coordination is Coordination.STORE:
        outcomes += yield from dead_claims(context, _release)
    return outcomes


def _planned(
    context: Context, coordination: Coordination, patience: float | None, dead: Collection[str]
) -> Step[list[Recovered]]:
    """Return what :func:`_recovered` would do. Changes nothing."""
    outcomes = yield from plan_recovery(context, patience)
    if coordination is Coordination.NONE:
        return outcomes
    outcomes = [
        replace(it, outcome=Outcome.WOULD_ABORT, detail="named as dead")
        if it.job in dead and it.outcome is Outcome.LEFT
        else it
        for it in outcomes
    ]
    return outcomes + (yield from dead_claims(context, _would_release))


def _held(judged: Sequence[Judged]) -> Step[dict[ListedUpload, int]]:
    """Return the sizes of the first hundred uploads to be aborted, which is what a purge frees.

    Uploads whose parts cannot be listed are left out: a purge does not need that right."""
    asked = [it.upload for it in judged if it.abort][:_MEASURED]
    found = yield from All(tuple(or_error(parts_held(it.key, it.upload_id)) for it in asked))
    known = zip(asked, found, strict=True)
    return {it: page.size for it, page in known if isinstance(page, PartsPage)}


def _entry(it: Judged, apply: bool, failure: str | None, size: int | None) -> PurgeEntry:
    tried = f"{_ROUNDS.tries} rounds of aborting"
    action, reason = became_of(it, apply, failure, tried)
    upload, denied = it.upload, failure is not None and is_denied(failure)
    key, upload_id = upload.key, upload.upload_id
    return PurgeEntry(key, upload_id, it.job, upload.initiated, action, reason, size, denied)


def became_of(it: Judged, apply: bool, failure: str | None, tried: str) -> tuple[PurgeAction, str]:
    """Return the action on an upload, done or planned, and its reason.

    :param failure: why the upload is still there after the attempts that ``tried`` describes;
        ``None``: the abort has not failed.
    """
    if failure is not None:
        return PurgeAction.FAILED, f"{it.reason}; it is still listed after {tried} ({failure})"
    if not it.abort:
        return PurgeAction.KEPT, it.reason
    return (PurgeAction.ABORTED if apply else PurgeAction.WOULD_ABORT), it.reason


def recover_all(context: Context, patience: float | None = None) -> Step[list[Recovered]]:
    """Recover open jobs (:func:`.recovery.recover`), and release claims of closed jobs.

    A head whose present state is in the index carries no claim, so only the others are read.
    """
    outcomes = yield from recover(context, patience)
    left = yield from _claims_of_closed_jobs(context, (yield from _unindexed_heads(context)))
    if left:
        context, _ = yield from known(context, (yield from find_table(context)))
        outcomes += yield from _each(context, left, _release)
    return outcomes


def plan_all(context: Context, patience: float | None = None) -> Step[list[Recovered]]:
    """Return what :func:`recover_all` would do. Changes nothing."""
    outcomes = yield from plan_recovery(context, patience)
    left = yield from _claims_of_closed_jobs(context, (yield from _unindexed_heads(context)))
    return outcomes + (yield from _each(context, left, _would_release))


#: A head and the job whose claim it carries; or the error of a head that cannot be read.
_Claim = tuple[HeadState, str] | DamagedError
#: A step that resolves such a claim, or reports how it would be resolved.
_Treat = Callable[[Context, HeadState, str], Step[Recovered]]


def dead_claims(context: Context, treat: _Treat) -> Step[list[Recovered]]:
    """Resolve claims of jobs that have no open record any more: one GET for each head.

    A job that was declared dead while it still wrote may claim a head after its clean-up, and then
    die. Only the head shows this. The next job that claims the head releases such a claim; this
    function releases it in partitions that no job writes.

    :param treat: resolves a claim, or reports how it would be resolved.
    """
    found = yield from _claims_of_closed_jobs(context, (yield from all_heads(context)))
    return (yield from _each(context, found, treat))


def _claims_of_closed_jobs(
    context: Context, states: Sequence[HeadState | DamagedError]
) -> Step[list[_Claim]]:
    """Return the heads with the claim of a job without an open record, and the errors of heads
    that cannot be read."""
    heads = [it for it in states if isinstance(it, HeadState)]
    jobs = sorted({it.head.claim for it in heads if it.head.claim is not None})
    # After the heads: a job may close in between, but a closed job never opens again.
    opened = yield from All(tuple(read_open(context, job) for job in jobs))
    closed = {job for job, entry in zip(jobs, opened, strict=True) if entry is None}
    found: list[_Claim] = []
    for state in states:
        if isinstance(state, DamagedError):
            found.append(state)
        elif (job := state.head.claim) in closed and job is not None:
            found.append((state, job))
    return found


def _unindexed_heads(context: Context) -> Step[list[HeadState]]:
    """Read the heads whose present state the index does not have: they changed later, or carried a
    claim. Heads that cannot be read are left out; verification names them."""
    listing = yield from list_heads_and_index(context)
    known_as_they_are: Collection[str] = ()
    if listing.index is not None:
        known_as_they_are = still_true((yield from read_index(context)).entries, listing.heads)
    slots = [it.slot for name, it in listing.heads.items() if name not in known_as_they_are]
    states = yield from All(tuple(or_damage(read_head(context, slot)) for slot in slots))
    return [state for state in states if isinstance(state, HeadState)]


def _each(context: Context, found: Iterable[_Claim], treat: _Treat) -> Step[list[Recovered]]:
    outcomes = []
    for it in found:
        if isinstance(it, DamagedError):
            outcomes.append(Recovered.failed("", it))
        else:
            outcomes.append((yield from treat(context, *it)))
    return outcomes


def _would_release(context: Context, state: HeadState, job: str) -> Step[Recovered]:
    decided = yield from or_damage(read_decision(context, job))
    if isinstance(decided, DamagedError):
        return Recovered.failed(job, decided)
    if decided is not None and decided.names(state.slot):
        return Recovered(job, Outcome.WOULD_FINISH, f"apply {state.slot.name}")
    is_commit = decided is not None and decided.decision.is_commit
    outcome = Outcome.WOULD_FINISH if is_commit else Outcome.WOULD_ABORT
    return Recovered(job, outcome, f"take its claim off {state.slot.name}")


def _release(context: Context, state: HeadState, job: str) -> Step[Recovered]:
    """Resolve the claim of a closed job. A failure is its outcome, and hinders no other claim."""
    found = yield from or_error(_resolved(context, state, job))
    return Recovered.failed(job, found) if isinstance(found, ZeroRenameError) else found


def _resolved(context: Context, state: HeadState, job: str) -> Step[Recovered]:
    decided = yield from decide_abort(context, job)
    if decided.names(state.slot):
        yield from finish(context, decided)
        return Recovered(job, Outcome.COMMITTED, f"applied {state.slot.name}")
    yield from release_claim(context, state.slot, job)
    outcome = Outcome.COMMITTED if decided.decision.is_commit else Outcome.ABORTED
    return Recovered(job, outcome, f"took its claim off {state.slot.name}")
