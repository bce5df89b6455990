"""A job's commit, from the results of its tasks to its close, and its abort."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from ..errors import CommitStateUnknownError, DamagedError, JobFencedError, ZeroRenameError
from ..format.job_spec import Coordination, Mode, SchemaMode
from ..format.layout import UNPARTITIONED
from ..format.records.decision import Decision
from ..format.records.head import HeadState, Slot
from ..format.records.partition_decision import PartitionDecision
from ..format.records.pending_file import TaskResult
from ..store.requests import All, Step
from .abort import abort_after, abort_own
from .apply import committed, finish_own
from .changes import Target, compose_decision, targets_of
from .claim import ClaimRequest, claim_all, let_others_decide, refuse_moved_reads, tell_overtaken
from .evolve import evolve, see_columns, withdraw
from .first_job import confirm, establish
from .index.write_index import Moved, look_after_index
from .state.context import Context
from .state.data_listing import list_table
from .state.decide import Decided, decide, read_decision
from .state.found_table import FoundTable
from .state.heads import list_heads
from .state.job_state import Aborted, Committed, OpenedJob
from .state.task_results import check_results
from .state.tolerance import or_damage, or_error
from .uncoordinated import abort_uncoordinated, commit_uncoordinated

logger = logging.getLogger("zero_rename.committer.commit.commit")


def commit_job(
    context: Context,
    opened: OpenedJob,
    results: Sequence[TaskResult],
    expected_tasks: int | None = None,
) -> Step[Committed]:
    """Claim, list, decide, apply, close.

    :param results: the reports of the successful task attempts, one for each task.
    :param expected_tasks: how many tasks there were, if known.
    :raises TaskResultsError: the results do not add up. Nothing was decided.
    :raises CommitConflictError: another job changed a partition; this one is aborted.
    :raises CommitStateUnknownError: the decision may stand; nothing was cleaned up.
    :raises UnfinishedCommitError: the job *is* committed; recovery finishes applying it.
    """
    if opened.repeated is not None:
        return opened.repeated
    context = context.of(opened)
    if opened.spec.coordination is Coordination.NONE:
        return (yield from commit_uncoordinated(context, opened, results, expected_tasks))
    targets: list[Target] = []
    try:
        check_results(opened, results, expected_tasks)
        targets += yield from _targets(context, opened, results)
        held, decision, made = yield from _ready(context, opened, targets)
        decision = _with_what_it_left(opened, results, targets, decision)
        decided = yield from decide(context, decision)
    except CommitStateUnknownError:
        raise
    except ZeroRenameError as failure:
        error = yield from _fenced_or(context, opened, failure)
        error.job = error.job or opened.job
        outcome = yield from _aborted(context, opened, _slots(context, opened, targets), error)
        if outcome is None:
            yield from tell_overtaken(context, opened, _claims(context, opened, targets), error)
            if error is failure:
                raise
            raise error from failure
        return outcome
    if not decided.decision.is_commit:
        error = fenced(opened)
        yield from _aborted(context, opened, list(held), error)
        yield from tell_overtaken(context, opened, _claims(context, opened, targets), error)
        raise error
    moved = yield from finish_own(context, decided, held)
    yield from confirm(context, made)
    if opened.index_behind or len(moved) >= context.limits.heads_without_index:
        done = Moved(decided, moved)
        yield from look_after_index(context, "the job is committed", done, bool(opened.base))
    return committed(context, decided)


def _ready(
    context: Context, opened: OpenedJob, targets: list[Target]
) -> Step[tuple[dict[Slot, HeadState], Decision, FoundTable | None]]:
    """Make the claims (step 3) and the decision (step 4); make or change the table if needed.

    :returns: the claimed heads, the decision, and the table's record if this job makes or changes
        it.
    :param targets: gets those partitions added that come while a replace of the whole table claims.
    """
    while True:
        yield from let_others_decide(context, opened)
        claims = yield from claim_all(context, opened, _claims(context, opened, targets))
        while more := (yield from _come_meanwhile(context, opened, targets)):
            targets += (Target(name, replaces=True) for name in more)
            claims = yield from claim_all(context, opened, _claims(context, opened, targets))
        held = claims.held
        yield from refuse_moved_reads(context, opened, held)
        own = [it for it in targets if Slot.partition(context.root, it.partition) in held]
        decision = yield from _decision(context, opened, own, held)
        decision = replace(decision, superseded=claims.superseded or None)
        made = yield from establish(context, opened, [target.partition for target in own])
        if made is not None:
            return held, decision, made
        if opened.spec.schema_mode is SchemaMode.KEEP:
            yield from see_columns(context, opened, held)
            return held, decision, None
        made, version = yield from evolve(context, opened)
        decision = replace(decision, schema_version=version)
        if made is None or not (yield from _come_beside(context, opened, targets)):
            return held, decision, made
        yield from withdraw(context, opened)


def _with_what_it_left(
    opened: OpenedJob, results: Sequence[TaskResult], targets: Sequence[Target], decision: Decision
) -> Decision:
    """Add to a decision the number of rows that the job leaves out, and the run's former job.

    The job leaves out partitions that a plan has excluded, and those that newer runs have loaded.
    They keep what the run's former job wrote there, so the decision names that job (``narrows``).
    """
    written = {change.partition for change in decision.partitions}
    left = [target for target in targets if target.partition not in written]
    if opened.narrowed is None and not left:
        return decision
    rows = sum(result.left_out for result in results)
    rows += sum(file.rows for target in left for file in target.files)
    return replace(decision, narrows=opened.repeat_of, left_out=rows)


def _come_beside(context: Context, opened: OpenedJob, targets: Iterable[Target]) -> Step[list[str]]:
    """Find partitions that came before others could see this job's overwriting of the columns."""
    if opened.spec.schema_mode is not SchemaMode.OVERWRITE:
        return []
    return (yield from _come_meanwhile(context, opened, targets))


def abort_job(
    context: Context, opened: OpenedJob, results: Sequence[TaskResult]
) -> Step[Aborted | Committed]:
    """Abort an open job, or find it committed: then it is applied, and its report is returned."""
    if opened.repeated is not None:
        return opened.repeated
    context = context.of(opened)
    if opened.spec.coordination is Coordination.NONE:
        return (yield from abort_uncoordinated(context, opened))
    found = yield from or_damage(_targets(context, opened, results))
    # If the targets cannot be found out, there is no claim either: a commit finds them first.
    slots = _slots(context, opened, () if isinstance(found, DamagedError) else found)

    def may_sweep(holders: Collection[str]) -> bool:
        # If another process has claims of this job, its decision may be under way.
        return set(holders) <= {context.process()}

    owner = opened.spec.owner
    return (yield from abort_own(context, opened.job, slots, may_sweep, owner=owner))


def _targets(
    context: Context, opened: OpenedJob, results: Sequence[TaskResult]
) -> Step[tuple[Target, ...]]:
    """Find the partitions that the job changes, each with the run's earlier attempt to replace."""
    only, every = opened.narrowed, {*opened.spec.adopt_partitions, *opened.spec.settles}
    if opened.spec.mode is Mode.REPLACE:
        # If the run that is to stand has no rows in a partition now, the others' rows still go.
        every |= opened.settles.keys()
    if opened.spec.empties_unnamed:
        there = only if only is not None else opened.empties_only
        if there is None:
            there = yield from _all_partitions(context, opened)
        every |= opened.spec.emptied(there)
    targets = targets_of(opened, results, every)
    for job, change in (yield from _own_before(context, opened)):
        target = targets.get(change.partition, Target(change.partition))
        targets[change.partition] = replace(target, drops=job, shared=bool(change.merged))
    return tuple(targets[name] for name in sorted(targets) if only is None or name in only)


def _own_before(context: Context, opened: OpenedJob) -> Step[list[tuple[str, PartitionDecision]]]:
    """Find the run's earlier changes: for each partition the run's last job there, and its change.

    A job that loaded only some of the partitions again left the others to the job before it.

    :raises DamagedError: the decision of such a job is missing.
    """
    found: dict[str, tuple[str, PartitionDecision]] = {}
    job = opened.repeat_of
    while job is not None:
        earlier = yield from read_decision(context, job)
        if earlier is None:
            raise DamagedError(
                "The decision of an earlier attempt of this run is gone: rows of it would be there "
                "twice. Nothing was changed.",
                job=job,
                key=context.root.decision_key(job),
                remedy="Restore the object from a version or backup.",
            )
        for change in earlier.decision.partitions:
            found.setdefault(change.partition, (job, change))
        job = earlier.decision.narrows
    return list(found.values())


def _all_partitions(context: Context, opened: OpenedJob) -> Step[set[str]]:
    """Find every partition of the table: those with heads, and directories that hold files."""
    if not opened.partition_by:
        return {UNPARTITIONED}
    heads, listed = yield from All((list_heads(context), list_table(context, opened.partition_by)))
    return {*heads, *listed}


def _come_meanwhile(
    context: Context, opened: OpenedJob, targets: Iterable[Target]
) -> Step[list[str]]:
    """Find partitions that a replace of the whole table, or by a condition, has not claimed yet.

    It is called once the job has claimed the others. Another job that changes a claimed and a new
    partition is before this job in both, or after it in both: if it is before, its claim on the new
    head was there before this job got the claimed one.
    """
    if not opened.spec.empties_unnamed or not opened.partition_by or opened.narrowed is not None:
        return []
    if opened.empties_only is not None:
        return []
    heads = yield from list_heads(context)
    return sorted(opened.spec.emptied(heads) - {target.partition for target in targets})


def _slots(context: Context, opened: OpenedJob, targets: Iterable[Target]) -> list[Slot]:
    return [claim.slot for claim in _claims(context, opened, targets)]


def _claims(context: Context, opened: OpenedJob, targets: Iterable[Target]) -> list[ClaimRequest]:
    adopted = frozenset(opened.spec.adopt_partitions)
    claims = [
        ClaimRequest(
            Slot.partition(context.root, target.partition),
            opened.base.get(target.partition),
            target.replaces,
            _read_version(opened, target.partition),
            opened.read.get(target.partition),
            bool(target.files) or target.replaces or target.partition in adopted,
        )
        for target in targets
    ]
    if opened.spec.idempotency_key is not None:
        slot = Slot.run(context.root, opened.spec.idempotency_key)
        claims.append(ClaimRequest(slot, opened.run_base, replaces=False))
    return claims


def _read_version(opened: OpenedJob, partition: str) -> int | None:
    """Return the version of a partition that the job's rows, or its plan, were made from.

    :returns: ``None``: they were made from none.
    """
    read = None if opened.spec.base is None else opened.spec.base.version(partition)
    planned = opened.planned.get(partition)
    # Versions only grow, and a head must be at both versions. Testing the lower one is enough.
    return min((it for it in (read, planned) if it is not None), default=None)


def _decision(
    context: Context, opened: OpenedJob, targets: Sequence[Target], held: Mapping[Slot, HeadState]
) -> Step[Decision]:
    """List what the job replaces (step 4), and compose the decision."""
    states = {it.partition: held[Slot.partition(context.root, it.partition)] for it in targets}
    idempotency_key = opened.spec.idempotency_key
    run_version = (
        0 if idempotency_key is None else held[Slot.run(context.root, idempotency_key)].head.version
    )
    return (yield from compose_decision(context, opened, targets, states, run_version))


def _aborted(
    context: Context, opened: OpenedJob, slots: list[Slot], error: ZeroRenameError
) -> Step[Committed | None]:

    def may_sweep(holders: Collection[str]) -> bool:
        # While this process has a claim, no other process has all claims that a commit needs.
        return context.process() in holders

    aborting = abort_own(context, opened.job, slots, may_sweep, owner=opened.spec.owner)
    return (yield from abort_after(error, aborting, ", recovery will finish it"))


def _fenced_or(
    context: Context, opened: OpenedJob, error: ZeroRenameError
) -> Step[ZeroRenameError]:
    """Return the error of a fenced job instead of damage that the job met.

    Once a job is fenced, its claims are released, so others may have moved its heads and folded
    their decisions: that looks like damage and is none. The abort decision is written before a
    claim is released, so it is there by then.
    """
    if not isinstance(error, DamagedError):
        return error
    decided = yield from or_error(read_decision(context, opened.job))
    if not isinstance(decided, Decided) or decided.decision.is_commit:
        return error
    return fenced(opened)


def fenced(opened: OpenedJob) -> JobFencedError:
    """Build the error of a job that another process has aborted."""
    return JobFencedError(
        "Another process declared this job dead before it decided; nothing of it is visible.",
        job=opened.job,
        remedy="Run the job again; send heartbeats or a longer maximum duration.",
    )
