"""A job's commit from the tasks' results to the close, and its abort."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ..errors import (
    CommitStateUnknownError,
    JobFencedError,
    RefusedError,
    UnfinishedCommitError,
    ZeroRenameError,
)
from ..job_spec import Coordination, Mode
from ..layout import UNPARTITIONED, job_in_key
from ..records.decision import Decision, PartitionDecision, StoredFile
from ..records.head import HeadState, Slot
from ..records.pending_file import PendingFile, TaskResult
from ..s3.requests import All, Step
from ..state.context import Context
from ..state.data_listing import list_data, list_table
from ..state.decide import decide, read_decision
from ..state.heads import list_heads
from ..state.job_state import Aborted, Committed, OpenedJob
from .abort import abort_slots
from .apply import finish
from .claim import ClaimRequest, claim_all
from .task_results import check_results, destination_exists
from .uncoordinated import abort_uncoordinated, commit_uncoordinated


@dataclass(frozen=True)
class _Target:
    """A partition the job changes.

    :param replaces: whether what it holds goes.
    :param drops: the earlier job of this run whose files go.
    """

    partition: str
    files: tuple[PendingFile, ...] = ()
    replaces: bool = False
    drops: str | None = None


def commit_job(
    context: Context,
    opened: OpenedJob,
    results: Sequence[TaskResult],
    expected_tasks: int | None = None,
) -> Step[Committed]:
    """Claim, list, decide, apply, close.

    :param results: what the successful task attempts report, one a task.
    :param expected_tasks: how many tasks there were, if known.
    :raises TaskResultsError: the results do not add up. Nothing was decided.
    :raises CommitConflictError: another job changed a partition; this one is aborted.
    :raises CommitStateUnknownError: the decision may stand; nothing was cleaned up.
    :raises UnfinishedCommitError: the job *is* committed; recovery finishes applying it.
    """
    if opened.repeated is not None:
        return opened.repeated
    context = replace(context, facts=opened.facts)
    if opened.spec.coordination is Coordination.NONE:
        return (yield from commit_uncoordinated(context, opened, results, expected_tasks))
    targets: tuple[_Target, ...] = ()
    try:
        check_results(opened, results, expected_tasks)
        targets = yield from _targets(context, opened, results)
        held = yield from claim_all(context, opened, _claims(context, opened, targets))
        decision = yield from _decision(context, opened, targets, held)
        decided = yield from decide(context, decision)
    except CommitStateUnknownError:
        raise
    except ZeroRenameError as error:
        outcome = yield from _abort_after(context, opened, _slots(context, opened, targets), error)
        if outcome is None:
            raise
        return outcome
    if not decided.decision.is_commit:
        error = _fenced(opened)
        yield from _abort_after(context, opened, list(held), error)
        raise error
    try:
        return (yield from finish(context, decided, held))
    except RefusedError as error:
        raise UnfinishedCommitError(
            f"The job is committed; applying it stopped: {error.message}",
            table=context.root.url,
            job=opened.job,
            key=error.key,
            remedy=f"Do not run the job again; finish it: zero-rename recover {context.root.url}",
        ) from error


def abort_job(
    context: Context, opened: OpenedJob, results: Sequence[TaskResult]
) -> Step[Aborted | Committed]:
    """Abort an open job, or find it committed: then it is applied and the report says so."""
    if opened.repeated is not None:
        return opened.repeated
    context = replace(context, facts=opened.facts)
    if opened.spec.coordination is Coordination.NONE:
        return (yield from abort_uncoordinated(context, opened))
    targets = yield from _targets(context, opened, results)
    return (yield from abort_slots(context, opened.job, _slots(context, opened, targets)))


def _targets(
    context: Context, opened: OpenedJob, results: Sequence[TaskResult]
) -> Step[tuple[_Target, ...]]:
    """The partitions the job changes: those with rows, those named, and those of the earlier try
    whose files it replaces."""
    replaces = opened.spec.mode is Mode.REPLACE
    files: dict[str, list[PendingFile]] = {}
    for file in (file for result in results for file in result.files):
        files.setdefault(file.partition, []).append(file)
    named = set(opened.spec.replace_partitions)
    if opened.spec.replace_table:
        named |= yield from _all_partitions(context, opened)
    targets = {
        name: _Target(name, tuple(files.get(name, ())), replaces) for name in named | set(files)
    }
    if opened.repeat_of is not None:
        earlier = yield from read_decision(context, opened.repeat_of)
        for change in earlier.decision.partitions if earlier else ():
            target = targets.get(change.partition, _Target(change.partition))
            targets[change.partition] = replace(target, drops=opened.repeat_of)
    return tuple(targets[name] for name in sorted(targets))


def _all_partitions(context: Context, opened: OpenedJob) -> Step[set[str]]:
    """Every partition the table has: those with heads, and directories that hold files."""
    if not opened.partition_by:
        return {UNPARTITIONED}
    heads, listed = yield All((list_heads(context), list_table(context, opened.partition_by)))
    return {*heads, *listed}


def _slots(context: Context, opened: OpenedJob, targets: Iterable[_Target]) -> list[Slot]:
    slots = [Slot.partition(context.root, target.partition) for target in targets]
    if opened.spec.once is not None:
        slots.append(Slot.once(context.root, opened.spec.once))
    return slots


def _claims(context: Context, opened: OpenedJob, targets: Iterable[_Target]) -> list[ClaimRequest]:
    claims = [
        ClaimRequest(
            Slot.partition(context.root, target.partition),
            opened.base.get(target.partition),
            target.replaces,
        )
        for target in targets
    ]
    if opened.spec.once is not None:
        slot = Slot.once(context.root, opened.spec.once)
        claims.append(ClaimRequest(slot, opened.once_base, replaces=False))
    return claims


def _decision(
    context: Context,
    opened: OpenedJob,
    targets: tuple[_Target, ...],
    held: dict[Slot, HeadState],
) -> Step[Decision]:
    """Step 4 and the decision's text: what each partition gets and loses."""
    changes = yield All(
        tuple(
            _change(context, opened, target, held[Slot.partition(context.root, target.partition)])
            for target in targets
        )
    )
    spec = opened.spec
    once_epoch = 0
    if spec.once is not None:
        once_epoch = held[Slot.once(context.root, spec.once)].head.epoch
    return Decision.commit(opened.job, context.write_id(), spec, tuple(changes), once_epoch)


def _change(
    context: Context, opened: OpenedJob, target: _Target, state: HeadState
) -> Step[PartitionDecision]:
    first = state.head.epoch == 0
    change = PartitionDecision(
        partition=target.partition,
        base_epoch=state.head.epoch,
        replace=target.replaces,
        files=target.files,
        dropped_job=target.drops,
    )
    exclusive = opened.spec.mode is Mode.FAIL_IF_EXISTS
    if not (first or target.replaces or target.drops or exclusive):
        return change
    listed = yield from list_data(context.root, target.partition)
    there = tuple(StoredFile(item.key, item.etag, item.size) for item in listed)
    if exclusive and there:
        raise destination_exists(opened, target.partition, there)
    if target.replaces:
        return replace(change, removals=there)
    own = tuple(f for f in there if target.drops and job_in_key(f.key) == target.drops)
    adopted = tuple(f for f in there if f not in own) if first else ()
    return replace(change, removals=own, adopted=adopted)


def _abort_after(
    context: Context, opened: OpenedJob, slots: list[Slot], error: ZeroRenameError
) -> Step[Committed | None]:
    """Abort because of ``error``; a failing abort is attached to it and never replaces it.

    :returns: the report of a job that another process found committed.
    """
    try:
        outcome = yield from abort_slots(context, opened.job, slots)
    except ZeroRenameError as failure:
        error.add_note(f"Aborting the job failed too, recovery will finish it: {failure}")
        return None
    return outcome if isinstance(outcome, Committed) else None


def _fenced(opened: OpenedJob) -> JobFencedError:
    return JobFencedError(
        "Another process declared this job dead before it decided; nothing of it is visible.",
        table=opened.root.url,
        job=opened.job,
        remedy="Run the job again; give signs of life or a longer maximum duration.",
    )
