"""Decisions of jobs, written and read. The verdict that is read back counts, from any process."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from ...errors import (
    CommitStateUnknownError,
    DamagedError,
    OutcomeUnknownError,
    RefusedError,
    StoreUnfitError,
    StoreUnreachableError,
    TaskLateError,
    UnfinishedCommitError,
)
from ...format.job_spec import NOBODY, Owner
from ...format.layout import TableRoot
from ...format.records.decision import (
    Decision,
    DecisionPart,
    PartReference,
    join_parts,
    split_into_parts,
)
from ...format.records.head import HeadState, Slot
from ...format.records.partition_decision import PartitionDecision
from ...store.conditional_put import NotWritten, Uncertain, Written, put_record
from ...store.requests import LIST_BYTES, Absent, All, Delete, Found, Get, Head, Put, Step
from .context import Context
from .probe import what_changed

_log = logging.getLogger("zero_rename.committer.commit.state.decide")


@dataclass(frozen=True)
class Decided:
    """Decision that stands.

    :param etag: the decision object's ETag.
    :param date: the time when it was written, by the store's clock, Unix seconds.
    """

    decision: Decision
    etag: str
    date: float

    @cached_property
    def changes(self) -> Mapping[str, list[PartitionDecision]]:
        """The decision's changes, by partition."""
        found: dict[str, list[PartitionDecision]] = {}
        for change in self.decision.partitions:
            found.setdefault(change.partition, []).append(change)
        return found

    def names(self, slot: Slot) -> bool:
        """Return whether the decision is a commit that moves the head of a slot."""
        if not self.decision.is_commit:
            return False
        if slot.is_run:
            return self.decision.idempotency_key == slot.name
        return slot.name in self.changes

    def finds_put_back(self, state: HeadState, change: PartitionDecision) -> bool:
        """Return whether the head of a partition was put back to a state before this commit's claim
        of it: from a version, a backup, or an older copy of the bucket.

        A job claims its heads before it decides, and a head's version only grows. So each head
        carries the claim, or has moved since. A head that was lost is made anew by a later replace,
        from version 0 on: that one has moved, too.

        :param state: the head, which was read after the decision.
        :param change: what the commit decides about its partition.
        """
        head = state.head
        if state.etag is None or head.claim == self.decision.job:
            return False
        is_older = head.replaced_at is None or head.replaced_at < self.date
        return head.version <= change.base_version and is_older


def read_decision(context: Context, job: str) -> Step[Decided | None]:
    """Read a job's decision with all its parts; return ``None`` while it is undecided."""
    found = yield from Get(context.root.decision_key(job), most=LIST_BYTES)
    if isinstance(found, Absent):
        return None
    return (yield from _whole(context, job, found))


def _whole(context: Context, job: str, found: Found) -> Step[Decided]:
    """Read the parts of a decision.

    If it was condensed since it was read, its parts are removed. Then it is read again.
    """
    while True:
        try:
            return (yield from _decoded(context, job, found))
        except DamagedError:
            now = yield from Get(found.key, most=LIST_BYTES)
            if isinstance(now, Absent) or now.etag == found.etag:
                raise
            found = now


def _decoded(context: Context, job: str, found: Found) -> Step[Decided]:
    decision = Decision.decode(found.body, found.key, context.root, job)
    if decision.parts:
        parts = yield from All(tuple(_read_part(context, job, part) for part in decision.parts))
        decision = join_parts(decision, parts)
    written = decision.decided_at
    return Decided(decision, found.etag, found.last_modified if written is None else written)


def _read_part(context: Context, job: str, part: PartReference) -> Step[DecisionPart]:
    found = yield from Get(part.key, most=LIST_BYTES)
    if isinstance(found, Absent) or found.etag != part.etag:
        raise DamagedError(
            "A part of a job's decision is missing or is not the one that was decided; nothing "
            "was changed.",
            job=job,
            key=part.key,
            remedy="Restore the object from a version or backup, then run recovery again.",
        )
    return DecisionPart.decode(found.body, part.key, context.root, job)


def decide_abort(context: Context, job: str, *, owner: Owner = NOBODY) -> Step[Decided]:
    """Decide that a job is aborted, unless it is decided; return the decision that stands.

    It first looks for a decision, so that one also stands on a store that no longer keeps its
    conditions.

    :param owner: the job's, if it is known.
    :raises OutcomeUnknownError: as :func:`decide`.
    """
    standing = yield from read_decision(context, job)
    if standing is not None:
        return standing
    return (yield from decide(context, Decision.abort(job, context.write_id(), owner)))


def decide(context: Context, decision: Decision) -> Step[Decided]:
    """Write a job's decision, unless one stands; return the one that stands.

    A store without conditional writes has only tables of coordination *none*. There only the owner
    decides, and the decision is a plain journal.

    :raises CommitStateUnknownError: the store never said; nothing may be cleaned up.
    :raises OutcomeUnknownError: the same, of an abort decision.
    """
    compact = yield from _write_parts(context, decision)
    key = context.root.decision_key(decision.job)
    put = Put(key, compact.encode(), if_none_match=context.facts.conditional_put)
    outcome = yield from put_record(put, decision.write_id)
    match outcome:
        case Written():
            return Decided(decision, outcome.etag, outcome.date)
        case NotWritten(current=Found() as current):
            if compact.parts:
                # Parts of a decision that was not written, since another one stands.
                yield from All(tuple(Delete(part.key) for part in compact.parts))
            return (yield from _whole(context, decision.job, current))
        case NotWritten():
            raise _unknown(context, decision, "the decision was there and is gone")
        case Uncertain():
            raise _unknown(context, decision, outcome.cause)


def amend(context: Context, decided: Decided, changed: Decision) -> Step[Decided]:
    """Write a commit decision again in which files moved from ``files`` to ``lost``.

    The verdict and its date stay. A process that still has the former text completes the same files
    except the lost ones, and stops at those.

    :raises UnfinishedCommitError: the decision is not the one that was read, or the store did not
        say.
    """
    changed = replace(changed, write_id=context.write_id(), parts=(), decided_at=decided.date)
    key, cause = context.root.decision_key(changed.job), "it was changed meanwhile"
    try:
        compact = yield from _write_parts(context, changed)
    except (StoreUnfitError, StoreUnreachableError):
        cause = "a part of it was not confirmed"  # Their "nothing is decided" is not true here.
    else:
        put = Put(key, compact.encode(), if_match=decided.etag)
        outcome = yield from put_record(put, changed.write_id)
        if isinstance(outcome, Written):
            return Decided(changed, outcome.etag, decided.date)
        cause = outcome.cause if isinstance(outcome, Uncertain) else cause
    raise UnfinishedCommitError(
        f"The decision could not be written again ({cause}). Its verdict stands.",
        job=changed.job,
        key=key,
        remedy="Run the repair again.",
    )


def _write_parts(context: Context, decision: Decision) -> Step[Decision]:
    """Write the parts of a decision that is too long for one object; return its main object."""
    parts = split_into_parts(decision, context.limits.files_per_object)
    if not parts:
        return decision
    written = yield from All(tuple(_write_part(context, decision.job, part) for part in parts))
    return replace(decision, parts=tuple(written))


def _write_part(context: Context, job: str, part: DecisionPart) -> Step[PartReference]:
    key = context.root.decision_part_key(job, part.write_id, part.number)
    put = Put(key, part.encode(), if_none_match=context.facts.conditional_put)
    outcome = yield from put_record(put, part.write_id)
    if not isinstance(outcome, Written):
        if not isinstance(outcome, Uncertain):
            outcome = Uncertain("another object is there")
        raise (yield from not_confirmed(context, key, "a part of the decision", outcome))
    return PartReference(key, outcome.etag)


def not_confirmed(context: Context, key: str, what: str, outcome: Uncertain) -> Step[RefusedError]:
    """Build the error of an unconfirmed record that a job needs before its decision.

    The store did not say whether it was written; or it refused the write without a reason, since it
    no longer keeps its conditions.
    """
    what_now = yield from why_refused(context, outcome)
    undecided = "Nothing is decided, so nothing of this job is visible."
    if what_now is not None:
        return StoreUnfitError(
            f"The store refuses {what} though nobody else has written there. {what_now} "
            f"{undecided}",
            key=key,
            remedy=changed_store_remedy(context),
        )
    return StoreUnreachableError(
        f"The store did not say whether {what} was written ({outcome.cause}). {undecided}",
        key=key,
        remedy="Try the job again when the store answers.",
    )


def why_refused(context: Context, outcome: Uncertain) -> Step[str | None]:
    """Describe the lost guarantee of the store, if it refused a write for that reason.

    :returns: a sentence; ``None``: there is another reason, or none was found.
    """
    if not outcome.refused:
        return None
    return (yield from what_changed(context.root, context.write_id, context.facts))


def unfinished(
    context: Context, job: str, what: str, key: str | None = None, remedy: str = ""
) -> UnfinishedCommitError:
    """Build the error of a committed job of which something is left to do.

    :param remedy: what to do besides finishing it; continues the sentence that says to finish.
    """
    finish = f"Do not run the job again; finish it: zero-rename recover {context.root.url} --apply"
    return UnfinishedCommitError(
        f"The job is committed{what}", job=job, key=key, remedy=f"{finish}{remedy}"
    )


def changed_store_remedy(context: Context) -> str:
    """Return the remedy for a store that no longer keeps its conditions."""
    return (
        "Undo what was changed, such as the bucket's versioning, before anybody writes again; "
        f"zero-rename doctor {context.root.url} says what the store keeps."
    )


def _unknown(context: Context, decision: Decision, cause: str) -> OutcomeUnknownError:
    error = CommitStateUnknownError if decision.is_commit else OutcomeUnknownError
    return error(
        f"The {decision.verdict} decision was sent and the store did not say whether it stands "
        f"({cause}). The job may be committed. Nothing was cleaned up.",
        job=decision.job,
        key=context.root.decision_key(decision.job),
        remedy="Do not run the job again before recovery has settled it: "
        f"zero-rename recover {context.root.url} --apply",
    )


def refuse_late(root: TableRoot, job: str, task: int) -> Step[None]:
    """Refuse a task's attempt whose job was decided while the attempt wrote.

    To be called when everything is uploaded. Spark aborts a job while other tasks of it still run.
    The decision comes before the sweep of the job's uploads. So an attempt that finds no decision
    has uploads that the sweep will list. An attempt that finds one has uploads that the sweep may
    have missed. The same holds for a commit, in which an attempt that has not reported has no part.

    :raises TaskLateError: there is a decision; the attempt's uploads are to be aborted.
    """
    try:
        found = yield from Head(root.decision_key(job))
    except RefusedError as error:
        # The commit will report it. The uploads of a late attempt are invisible, and purge finds
        # them.
        _log.warning("Whether job %s still goes on was not seen: %s", job, error)
        return
    if not isinstance(found, Absent):
        raise TaskLateError(
            f"Task {task} ended after its job was decided without it: the job had failed of "
            "another error, or was done with another attempt of this task, or another process "
            "declared it dead. Nothing of this attempt is in the table.",
            job=job,
            remedy=f"See what became of the job: zero-rename jobs {root.url}. Where it is aborted, "
            "and Spark shows no other error of it, run it again; send heartbeats or a longer "
            "maximum duration.",
        )
