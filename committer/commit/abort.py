"""Step 7: abort a job, or find it committed, finish it and report that."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from ..errors import (
    CommitStateUnknownError,
    DataLostError,
    OutcomeUnknownError,
    StoreFullError,
    StoreRefusedError,
    StoreUnreachableError,
    UnfinishedAbortError,
    UnfinishedCommitError,
    ZeroRenameError,
)
from ..format.job_spec import NOBODY, Owner
from ..format.layout import TableRoot
from ..format.records.head import Slot
from ..format.records.open_record import OpenRecord
from ..store.listing import list_objects
from ..store.requests import All, Delete, Step
from .apply import committed, finish_own
from .close import close, sweep
from .state.context import Context
from .state.decide import Decided, decide_abort, read_decision
from .state.heads import ListedHead, list_heads, read_head, release_claim
from .state.job_state import Aborted, Committed


def abort_slots(
    context: Context, job: str, slots: Iterable[Slot], *, owner: Owner = NOBODY
) -> Step[Aborted | Committed]:
    """Write the abort decision unless the job is committed, then clean up as the decision says.

    :param slots: the slots that the job may have claimed.
    :param owner: the job's, if it is known.
    :returns: :class:`Committed` when the job is committed after all; it is then applied.
    """
    finished = yield from fence(context, job, slots, owner=owner)
    return finished or (yield from close_aborted(context, job))


def fence(
    context: Context, job: str, slots: Iterable[Slot], *, owner: Owner = NOBODY
) -> Step[Committed | None]:
    """Write the abort decision unless the job is committed, and release the job's claims.

    After that only its uploads and its open record are left, for :func:`close_aborted`.

    :param slots: as in :func:`abort_slots`; so is ``owner``.
    :returns: the report of a job that is committed after all.
    """
    decided = yield from decide_abort(context, job, owner=owner)
    if decided.decision.is_commit:
        yield from finish_own(context, decided)
        # The job's commit was called twice, and this call had claimed more than the other one.
        more = [slot for slot in slots if not decided.names(slot)]
        if more:
            yield from All(tuple(release_claim(context, slot, job) for slot in more))
        return committed(context, decided)
    yield from take_off(context, job, slots)
    return None


def abort_own(
    context: Context,
    job: str,
    slots: Collection[Slot],
    may_sweep: Callable[[Collection[str]], bool],
    *,
    owner: Owner = NOBODY,
) -> Step[Aborted | Committed]:
    """Abort a job as its owner, or for a caller that knows its process to be dead.

    Like :func:`abort_slots`, with two additions. On a full store even an abort decision has no
    room. Then the job's uploads are aborted first, which makes room, if no other process can commit
    the job.

    A job may be committed in two processes, and one of them may lose its connection to the store.
    So if the abort decision could not be written, the other process's decision is read back.

    :param may_sweep: whether uploads may be aborted before the decision. It gets the processes
        whose claims of the job are on the heads of ``slots``.
    :raises StoreFullError: there is no room. The job stays open.
    :raises CommitStateUnknownError: another process is committing the job.
    :raises ZeroRenameError: the store refuses the decision, or does not say.
    """
    try:
        try:
            return (yield from abort_slots(context, job, slots, owner=owner))
        except StoreFullError:
            # Heads first, then the decision: a process that had moved its heads by then has
            # decided.
            holders = yield from _holders(context, job, slots)
            decided = yield from read_decision(context, job)
            if decided is not None or not may_sweep(holders):
                raise
            yield from sweep(context, job)
        return (yield from abort_slots(context, job, slots, owner=owner))
    except (StoreRefusedError, StoreUnreachableError, OutcomeUnknownError) as error:
        found = yield from _read_back(context, job, slots, error)
        if found is None:
            raise
        yield from finish_own(context, found)
        return committed(context, found)


def _read_back(
    context: Context, job: str, slots: Collection[Slot], error: ZeroRenameError
) -> Step[Decided | None]:
    """Read the commit decision of a job whose abort decision could not be written.

    :returns: ``None``: there is no commit decision, or it cannot be read either.
    :raises CommitStateUnknownError: the job is undecided, and another process holds claims of it.
    """
    try:
        holders = yield from _holders(context, job, slots)
        decided = yield from read_decision(context, job)
    except ZeroRenameError:
        return None
    if decided is not None:
        return decided if decided.decision.is_commit else None
    if holders <= {context.process()}:
        return None
    raise CommitStateUnknownError(
        "Another process is committing this very job, and this one, which is not, cannot abort "
        f"it: {error.message}",
        job=job,
        remedy="Do not run the job again before recovery has settled it: "
        f"zero-rename recover {context.root.url} --apply",
    ) from error


def _holders(context: Context, job: str, slots: Collection[Slot]) -> Step[set[str]]:
    """Find the processes whose claims of a job are on heads."""
    states = yield from All(tuple(read_head(context, slot) for slot in slots))
    return {state.head.holder or "" for state in states if state.head.claim == job}


def take_off(context: Context, job: str, slots: Iterable[Slot]) -> Step[None]:
    """Release the claims of an aborted job, and delete the parts of its commit decision.

    That commit decision was never made. The claims are released before the uploads are aborted: the
    uploads show a recovering process which partitions may carry a claim.
    """
    yield from All(tuple(release_claim(context, slot, job) for slot in slots))
    listing = yield from list_objects(f"{context.root.decisions_prefix}{job}.")
    parts = [key for key in listing.keys if key != context.root.decision_key(job)]
    yield from All(tuple(Delete(key) for key in parts))


def close_aborted(context: Context, job: str) -> Step[Aborted]:
    """Abort the remaining uploads of an aborted job, and close it. Its claims are released already.

    :raises UnfinishedAbortError: uploads of it are still listed; the job stays open.
    """
    try:
        swept = yield from close(context, job)
    except UnfinishedCommitError as error:
        raise unfinished_abort(error) from error
    return Aborted(job, context.root.url, swept)


def unfinished_abort(error: UnfinishedCommitError) -> UnfinishedAbortError:
    """Build the error of an aborted job whose uploads are still listed."""
    return UnfinishedAbortError(
        f"The job is aborted, and {error.message}",
        job=error.job,
        key=error.key,
        remedy=f"The job may be run again. {error.remedy}",
    )


def abort_after(
    error: ZeroRenameError, aborting: Step[Aborted | Committed], meanwhile: str = ""
) -> Step[Committed | None]:
    """Abort a job because of ``error``. An error of the abort is attached to ``error`` as a note.

    :param meanwhile: a clause for that note, which follows "failed too" and begins with a comma.
    :returns: the report of a job that was found committed.
    :raises UnfinishedCommitError: another process committed the job, and it cannot be finished now.
        This replaces ``error``, after which the job would be run again.
    :raises DataLostError: the same, and a file of it is lost.
    :raises CommitStateUnknownError: another process may have committed it by now.
    """
    try:
        outcome = yield from aborting
    except (UnfinishedCommitError, DataLostError, CommitStateUnknownError):
        raise
    except ZeroRenameError as failure:
        error.add_note(f"Aborting the job failed too{meanwhile}: {failure}")
        return None
    return outcome if isinstance(outcome, Committed) else None


def abort_job_id(
    context: Context, record: OpenRecord, last_modified: float
) -> Step[Aborted | Committed]:
    """Abort a job of which only the open record is known.

    :param last_modified: of the open record, by the store's clock.
    """
    slots = yield from claimable_slots(context, record, last_modified)
    return (yield from abort_slots(context, record.job, slots, owner=record.owner))


def claimable_slots(context: Context, record: OpenRecord, last_modified: float) -> Step[list[Slot]]:
    """List the heads and return the slots that a job may have claimed (:func:`claimable`)."""
    heads = yield from list_heads(context)
    return claimable(context.root, record, last_modified, heads)


def claimable(
    root: TableRoot, record: OpenRecord, last_modified: float, heads: Mapping[str, ListedHead]
) -> list[Slot]:
    """Return the slots that a job may have claimed.

    These are the heads changed since it opened, and its run's head.

    Both times are the store's. A first open record carries no time of its own: its Last-Modified is
    the time of the opening.
    """
    opened_at = record.opened_at if record.opened_at is not None else last_modified
    slots = [listed.slot for listed in heads.values() if listed.last_modified >= opened_at - 1]
    if record.idempotency_key is not None:
        slots.append(Slot.run(root, record.idempotency_key))
    return slots
