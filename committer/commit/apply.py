"""Step 6: apply a commit decision.

Applying is idempotent. The owner, another writer, a reader with write access or a maintenance task
may do it, also at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from ..errors import (
    DamagedError,
    DataLostError,
    RefusedError,
    UnfinishedCommitError,
    ZeroRenameError,
)
from ..format.job_spec import SuccessMarkers
from ..format.layout import UNPARTITIONED
from ..format.records.head import HeadState, Slot
from ..format.records.partition_decision import PartitionDecision
from ..format.records.pending_file import PendingFile
from ..format.schema.lost_records import PAGE
from ..store.backoff import Backoff
from ..store.conditional_put import NotWritten, Uncertain
from ..store.requests import Absent, All, Delete, Done, Found, Refused, Step, Unknown
from .close import delete_open_record, sweep_losers
from .complete import MissingFilePolicy, complete_file, lost
from .markers import look_at_marker, write_partition_marker, write_table_marker
from .removal import remove_listed
from .state.context import Context, Count
from .state.decide import Decided, changed_store_remedy, unfinished, why_refused
from .state.heads import head_state, read_head, release_claim, swap_head
from .state.job_state import SMALL, Committed, PartitionCommit
from .state.partition_files import files_now, fold
from .state.tolerance import or_error

_REMOVE = Backoff(tries=4, first=0.5)


def finish(context: Context, decided: Decided) -> Step[Committed]:
    """Apply a commit decision and close its job, as :func:`apply_all`; return the job's report."""
    yield from apply_all(context, decided)
    return committed(context, decided)


def apply_all(
    context: Context, decided: Decided, held: Mapping[Slot, HeadState] | None = None
) -> Step[list[HeadState]]:
    """Apply a commit decision and close its job.

    :param held: the heads as their owner claimed them; ``None`` for any other process, which reads
        them first.
    :returns: the heads of partitions that this process has moved.
    :raises DataLostError: neither the upload nor the object of a decided file is there.
    :raises UnfinishedCommitError: the store's answers leave something open; the job *is* committed
        and any process can finish it.
    """
    decision = decided.decision
    if context.facts.complete_resurrects:
        held = None  # The owner reads the heads too: a Complete would bring a removed file back.
    count = Count(context, decision.job, len(decision.files))
    partitions = (
        _apply_partition(context, decided, change, held, count) for change in decision.partitions
    )
    run = () if decision.idempotency_key is None else (_move_run(context, decided, held),)
    # Uploads that the decision does not name are swept at the same time. If that fails, the markers
    # are written all the same.
    sweeping = or_error(sweep_losers(context, decision))
    moved, _, swept = yield from All((All(tuple(partitions)), All(run), sweeping))
    if wants_table_marker(decided):
        yield from write_table_marker(context, decided)
    if isinstance(swept, ZeroRenameError):
        raise swept
    yield from delete_open_record(context, decision.job)
    return [state for state in moved if state is not None]


def finish_own(
    context: Context, decided: Decided, held: Mapping[Slot, HeadState] | None = None
) -> Step[list[HeadState]]:
    """Apply the commit decision of the caller's own job, as :func:`apply_all` does.

    :raises UnfinishedCommitError: also if the store refused a request, or a record is damaged: an
        error of those kinds would say that the job was not committed.
    :raises DataLostError: as :func:`finish`.
    """
    try:
        return (yield from apply_all(context, decided, held))
    except DataLostError:
        raise
    except (RefusedError, DamagedError) as error:
        what = f"; applying it stopped: {error.message}"
        raise unfinished(context, decided.decision.job, what, error.key) from error


def committed(context: Context, decided: Decided, repeated: bool = False) -> Committed:
    """Build the report of a job from its commit decision."""
    changes = decided.decision.partitions
    partitions = tuple(
        PartitionCommit(
            partition=change.partition,
            version=change.base_version + 1,
            **asdict(change.sums),
            small=sum(file.size < SMALL for file in change.files),
            row_changes=change.row_changes,
        )
        for change in changes
    )
    return Committed(
        decided.decision.job,
        context.root.url,
        partitions,
        decided.date,
        repeated=repeated,
        rewritten=bool(changes) and all(it.leaves_rows for it in changes),
        change_reads=decided.decision.change_reads,
        narrows=decided.decision.narrows,
        left_out=decided.decision.left_out,
        superseded=decided.decision.superseded or {},
    )


def wants_table_marker(decided: Decided) -> bool:
    """Return whether a job writes the table's own marker.

    In an unpartitioned table the only partition's marker is the table's.
    """
    decision = decided.decision
    if decision.success_markers is SuccessMarkers.NONE:
        return False
    return not any(change.partition == UNPARTITIONED for change in decision.partitions)


def wants_marker(decided: Decided, partition: str) -> bool:
    """Return whether a job writes a partition's marker."""
    markers = decided.decision.success_markers
    if partition == UNPARTITIONED:
        return markers is not SuccessMarkers.NONE
    return markers is SuccessMarkers.PARTITION_AND_TABLE


def _apply_partition(
    context: Context,
    decided: Decided,
    change: PartitionDecision,
    held: Mapping[Slot, HeadState] | None,
    count: Count,
) -> Step[HeadState | None]:
    """Apply a decision to one partition.

    :returns: the head, if this process has moved it.
    """
    slot = Slot.partition(context.root, change.partition)
    # The decision that stands may be of another call of this commit, with other partitions.
    state = (held or {}).get(slot) or (yield from read_head(context, slot))
    if state.etag is None:
        raise _headless(context, decided, slot)
    marker = moved = None
    if _awaits(state, decided.decision.job, change.base_version):
        due = wants_marker(decided, change.partition)
        # Read the marker before the head moves. The swap then proves that the head carried this
        # job's claim after the marker was read.
        looks = [look_at_marker(context, change.partition)] if due else []
        files = [_complete(context, decided.decision.job, slot, f, count) for f in change.files]
        _, markers = yield from All((All(tuple(files)), All(tuple(looks))))
        marker = next(iter(markers), None)
        moved = yield from _move(context, decided, change, state)
    elif decided.finds_put_back(state, change):
        raise _put_back(context, decided, state, change)
    elif state.head.claim == decided.decision.job:
        # A commit that was called again claimed after its job had moved the head.
        yield from release_claim(context, slot, decided.decision.job)
    yield from remove_listed(context, change.removals)
    if wants_marker(decided, change.partition):
        # Last: a reader that waits for the marker then lists exactly the files that it describes.
        seen = marker if moved else None
        yield from write_partition_marker(context, decided, change, seen)
    return moved


def _awaits(state: HeadState, job: str, base_version: int) -> bool:
    """Return whether a head carries the claim of the job's decision, and not a later claim."""
    return state.head.claim == job and state.head.version == base_version


def _complete(
    context: Context, job: str, slot: Slot, file: PendingFile, count: Count
) -> Step[None]:
    """Complete one pending file, unless another applier has moved the head.

    In that case the file was completed before, and may have been replaced since.
    """

    def is_seen_to(answer: Refused | Unknown, found: Found | Absent) -> Step[bool]:
        # If the head still carries the claim, our answer was lost, or another applier is at work.
        state = yield from read_head(context, slot)
        return state.head.claim != job

    def failure(answer: Refused | Unknown, found: Found | Absent) -> ZeroRenameError:
        return _incomplete(context, job, file, answer, found)

    missing = MissingFilePolicy(is_seen_to, failure)
    done = yield from complete_file(context, job, file, missing)
    if context.facts.complete_resurrects:
        # Whatever the answer was: a Complete whose answer was lost may have brought the file back.
        yield from _delete_resurrected(context, job, slot, file)
    if done is not None:
        count.one_more()


def _incomplete(
    context: Context, job: str, file: PendingFile, answer: Refused | Unknown, found: Found | Absent
) -> ZeroRenameError:
    url = context.root.url
    if isinstance(answer, Refused):
        return lost(
            job,
            file,
            answer,
            found,
            "Its partition keeps its former state and this job's claim.",
            " (zero-rename doctor). The job's other files are safe in their uploads; to go on "
            f"without the lost ones: zero-rename repair {url} --job {job} --accept-loss "
            "(--patience 0 where the job's process has ended)",
        )
    what = f", and the store did not say whether a file's upload was completed ({answer.cause})"
    return unfinished(context, job, f"{what}. Nothing is lost.", file.key)


def _delete_resurrected(context: Context, job: str, slot: Slot, file: PendingFile) -> Step[None]:
    """Delete a removed file again if our Complete has brought it back.

    Only for stores whose repeated Complete brings a deleted file back. If the head no longer
    carries the claim, another applier has moved it. If the head no longer names the file either,
    the file had been removed, and our Complete brought it back.

    :raises UnfinishedCommitError: it did, and the store does not let it be removed.
    """
    state = yield from read_head(context, slot)
    if state.head.claim == job:
        return
    current = yield from files_now(context, slot)
    if file.key in {f.key for f in current}:
        return
    answer: Refused | Unknown = Unknown("nothing was sent")
    for attempt in _REMOVE.attempts():
        yield from _REMOVE.pause(attempt)
        # Without a condition: a key with a job's id is written once.
        deleted = yield from Delete(file.key)
        if isinstance(deleted, Done):
            return
        answer = deleted
    cause = answer.code if isinstance(answer, Refused) else answer.cause
    raise UnfinishedCommitError(
        "The job is committed and applied; a file of it that was replaced since came back, and "
        f"could not be removed again ({cause}). Readers that list see it; readers "
        "through heads do not.",
        job=job,
        key=file.key,
        remedy="Delete this object when the store allows deletes; it stays named by: "
        f"zero-rename verify {context.root.url}",
    )


def _move(
    context: Context, decided: Decided, change: PartitionDecision, state: HeadState
) -> Step[HeadState | None]:
    """Move a head from this job's claim to its new state; ``None`` if another applier did."""
    job = decided.decision.job
    while True:
        if state.etag is None:
            raise _headless(context, decided, state.slot)
        if not _awaits(state, job, change.base_version):
            return None
        version = decided.decision.schema_version
        new = state.head.moved(job, change, context.write_id(), state.etag, decided.date, version)
        folded = None
        if len(new.decisions) > context.limits.decisions_per_head:
            new, folded = yield from fold(context, state, new, new.decisions, (decided,))
        outcome = yield from swap_head(state, new)
        if isinstance(outcome, HeadState):
            return outcome
        if not isinstance(outcome, NotWritten):
            # The swap may still arrive, so the manifest that it names must stay.
            raise (yield from _unmoved(context, decided, state.slot, outcome))
        state = head_state(context, state.slot, outcome.current)
        if folded is not None and folded not in {it.key for it in state.head.manifests}:
            # Delete only the manifest that this process wrote, and only if the head does not name
            # it. The head does name it if the swap was carried out, its answer was lost, and
            # another job has claimed the head since. A swap still under way meets another ETag.
            yield from Delete(folded)


def _move_run(
    context: Context, decided: Decided, held: Mapping[Slot, HeadState] | None
) -> Step[None]:
    """Move the run's head, so that another attempt of the run is a repeat from now on."""
    idempotency_key = decided.decision.idempotency_key
    if idempotency_key is None:
        return
    job = decided.decision.job
    slot = Slot.run(context.root, idempotency_key)
    state = (held or {}).get(slot) or (yield from read_head(context, slot))
    while state.etag is not None and _awaits(state, job, decided.decision.run_version):
        new = state.head.moved(job, None, context.write_id(), state.etag, decided.date)
        outcome = yield from swap_head(state, new)
        if isinstance(outcome, HeadState):
            return
        if not isinstance(outcome, NotWritten):
            raise (yield from _unmoved(context, decided, slot, outcome))
        state = head_state(context, slot, outcome.current)
    if state.head.claim == job:
        yield from release_claim(context, slot, job)


def _headless(context: Context, decided: Decided, slot: Slot) -> UnfinishedCommitError:
    url = context.root.url
    return UnfinishedCommitError(
        "The job is committed, and a head that it had claimed is gone, so its rows in that "
        "partition are not visible. Nothing is lost: they are in its files or uploads.",
        job=decided.decision.job,
        key=slot.key,
        remedy="Do not run the job again. Restore the object from a version or backup and run "
        f"zero-rename recover {url} --apply, or build it again: zero-rename repair {url} --apply. "
        f"{PAGE}",
    )


def _put_back(
    context: Context, decided: Decided, state: HeadState, change: PartitionDecision
) -> UnfinishedCommitError:
    """Build the error of a head that is older than this job's claim: somebody has put it back."""
    return UnfinishedCommitError(
        f"The job is committed on version {change.base_version} of {change.partition!r}, and the "
        f"head is at version {state.head.version} without the job's claim: it was put back to a "
        "former state. Nothing of the job was applied there, since the files that it replaces are "
        "named by that head.",
        job=decided.decision.job,
        key=state.slot.key,
        remedy="Restore the object's newest version and run zero-rename recover "
        f"{context.root.url} --apply. {PAGE}",
    )


def _unmoved(
    context: Context, decided: Decided, slot: Slot, outcome: Uncertain
) -> Step[UnfinishedCommitError]:
    what_now = yield from why_refused(context, outcome)
    why = f"did not say whether a partition's head was moved ({outcome.cause})."
    remedy = ""
    if what_now is not None:
        why = f"refuses to move a partition's head. {what_now}"
        remedy = f". {changed_store_remedy(context)}"
    what = f", and the store {why} Nothing is lost."
    return unfinished(context, decided.decision.job, what, slot.key, remedy)
