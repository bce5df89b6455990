"""Step 3: claim the head of every partition that the job changes, and detect conflicts."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from ..errors import (
    CommitConflictError,
    InvalidInputError,
    JobFencedError,
    OtherJobError,
    RefusedError,
    ZeroRenameError,
    first_few,
)
from ..format.job_spec import Mode, OnConflict, OnSuperseded
from ..format.records.head import HeadState, PartitionHead, Slot
from ..format.schema.hive_paths import spelled_as_stored
from ..store.conditional_put import NotWritten, Uncertain
from ..store.requests import Absent, All, Head, Step
from .apply import finish
from .newest_run import SupersededBy, is_newest, is_superseded, name_ranks, superseded_run
from .others import about_other, outwait
from .state.context import Context
from .state.decide import not_confirmed, read_decision, unfinished
from .state.heads import head_state, list_heads, read_head, release_claim, swap_head
from .state.job_state import OpenedJob
from .state.open_jobs import OpenEntry, read_open
from .state.tolerance import or_error


@dataclass(frozen=True)
class ClaimRequest:
    """Request to claim a slot, with the states of its head that the conflict test compares.

    :param base: the head's ETag when the job opened; ``None``: there was no head.
    :param known: the head as it was read when the job opened, without a claim; ``None``: it was not
        read then.
    :param writes: whether the job has files for the partition or empties it. If not, the job only
        removes what an earlier attempt of its run wrote there.
    :param read: the version of the partition that the job's rows, or its plan, were made from;
        ``None``: they were made from none.
    :param replaces: whether the job replaces what the partition holds.
    """

    slot: Slot
    base: str | None
    replaces: bool
    read: int | None = None
    known: HeadState | None = None
    writes: bool = True


@dataclass(frozen=True)
class Held:
    """Slot that carries the claim of this job, put there by this process."""

    state: HeadState


@dataclass(frozen=True)
class Busy:
    """Slot that carries an undecided claim: of another job, or of this job in another process."""

    state: HeadState
    job: str


@dataclass(frozen=True)
class Superseded:
    """Slot in which the job gives way to another run.

    A newer run has loaded the partition, or a conflict over it was settled against the job's run.

    :param loses: whether the job had anything to write there.
    """

    state: HeadState
    loses: bool


@dataclass(frozen=True)
class Claims:
    """Heads claimed by a job, and partitions that it leaves out.

    :param held: by slot, the head with the job's claim.
    :param superseded: the partitions that the job leaves out, each with the job that wrote it last.
    """

    held: dict[Slot, HeadState]
    superseded: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Conflict:
    """Slot that changed since the job opened, or since the job read its partition."""

    state: HeadState
    by: str | None


_Outcome = Held | Busy | Superseded | Conflict


def claim_all(
    context: Context, opened: OpenedJob, requests: Iterable[ClaimRequest]
) -> Step[Claims]:
    """Claim every slot: in parallel, or one by one in order once an undecided claim is met.

    Waiting while holding claims is free of deadlock only if all jobs that wait claim in the same
    order. So a job that meets another job's claim in the parallel round first releases its own
    claims.

    :raises CommitConflictError: a slot changed since the job opened, and ``on_conflict`` or a plan
        refuses that.
    :raises SupersededRunError: other runs supersede the job in some partitions, and the job leaves
        none out; or they do so in all partitions.
    :raises JobFencedError: another process aborted this job meanwhile.
    :raises UnfinishedCommitError: another process committed it.
    :raises OtherJobError: a job in the way can neither be finished nor be fenced.
    """
    requests = sorted(requests, key=lambda request: request.slot.key)
    try:
        return (yield from _claim_each(context, opened, requests))
    except RefusedError as error:
        name_ranks(opened, error)
        raise


def _claim_each(context: Context, opened: OpenedJob, requests: list[ClaimRequest]) -> Step[Claims]:
    outcomes = yield from All(tuple(_claim(context, opened, request) for request in requests))
    conflicts = [outcome for outcome in outcomes if isinstance(outcome, Conflict)]
    if conflicts:
        raise _conflict(opened, conflicts)
    _refuse_superseded(opened, outcomes)
    if not any(isinstance(outcome, Busy) for outcome in outcomes):
        return _claims(opened, outcomes)
    held = [outcome.state.slot for outcome in outcomes if isinstance(outcome, Held)]
    mine = context.process()
    yield from All(tuple(release_claim(context, slot, opened.job, mine) for slot in held))
    return (yield from _claim_in_order(context, opened, requests))


def _claim_in_order(
    context: Context, opened: OpenedJob, requests: list[ClaimRequest]
) -> Step[Claims]:
    outcomes: list[Held | Superseded] = []
    waits = 0
    for request in requests:
        while not outcomes or outcomes[-1].state.slot != request.slot:
            yield from _refuse_if_fenced(context, opened)
            outcome = yield from _claim(context, opened, request)
            match outcome:
                case Held() | Superseded():
                    outcomes.append(outcome)
                    _refuse_superseded(opened, outcomes)
                case Conflict():
                    raise _conflict(opened, [outcome])
                case Busy():
                    state = outcome.state
                    waiting = outwait(context, state.slot.key, state.etag, outcome.job, waits)
                    waits += 1
                    if outcome.job != opened.job:
                        waiting = about_other(context.root, outcome.job, waiting)
                    yield from waiting
    return _claims(opened, outcomes)


def _refuse_superseded(opened: OpenedJob, outcomes: Iterable[_Outcome]) -> None:
    """Refuse a job that is superseded in a partition and does not leave such partitions out.

    :raises SupersededRunError: the job is refused.
    """
    if opened.spec.on_superseded is OnSuperseded.SKIP:
        return
    if found := _given_way(opened, outcomes):
        raise superseded_run(found, skips=False)


def _claims(opened: OpenedJob, outcomes: Iterable[_Outcome]) -> Claims:
    """Collect the held claims and the partitions left out.

    :raises SupersededRunError: no partition is left for the job to write.
    """
    held = {it.state.slot: it.state for it in outcomes if isinstance(it, Held)}
    superseded = _given_way(opened, outcomes)
    if superseded and all(slot.is_run for slot in held):
        raise superseded_run(superseded, skips=True)
    return Claims(held, {name: it.job for name, it in superseded.items()})


def _given_way(opened: OpenedJob, outcomes: Iterable[_Outcome]) -> dict[str, SupersededBy]:
    found = [it for it in outcomes if isinstance(it, Superseded) and it.loses]
    run = opened.spec.idempotency_key
    return {it.state.slot.name: SupersededBy.of(it.state, run) for it in found}


def _claim(context: Context, opened: OpenedJob, request: ClaimRequest) -> Step[_Outcome]:
    """Put this job's claim on one slot; first finish decided jobs whose claims are still there."""
    slot = request.slot
    if request.base is None:
        state = HeadState(slot, PartitionHead.initial(slot), None)
    elif request.known is not None:
        state = request.known
    else:
        state = yield from read_head(context, slot)
    while True:
        other = state.head.claim
        if other == opened.job:
            if state.head.holder in (None, context.process()):
                return Held(state)
            # Another process commits this very job. Only that process may decide on its claim and
            # release it. If we took the claim for ours and released it, that process could decide
            # without a claim.
            yield from _refuse_if_fenced(context, opened)
            return Busy(state, opened.job)
        if other is not None:
            settling = _settle(context, state, other)
            if not (yield from about_other(context.root, other, settling)):
                return Busy(state, other)
            state = yield from read_head(context, slot)
            continue
        if _gives_way(opened, request, state):
            return Superseded(state, request.writes)
        if _changed(opened, request, state):
            return Conflict(state, state.head.last_job)
        if state.etag != request.base:
            # The head changed since this job opened, perhaps by this job itself: a commit that is
            # called a second time must not move a head a second time.
            yield from _refuse_if_fenced(context, opened)
        yield from _finish_last_job(context, opened, request, state)
        claimed = state.head.claimed(opened.job, context.process(), context.write_id(), state.etag)
        outcome = yield from swap_head(state, claimed)
        match outcome:
            case HeadState():
                return Held(outcome)
            case Uncertain():
                raise (yield from not_confirmed(context, slot.key, "a claim", outcome))
            case NotWritten():
                if outcome.seen_before:
                    # Our claim may have been there and been released since: another process has
                    # fenced this job, or finished it. This job's decision shows which.
                    yield from _refuse_if_fenced(context, opened)
                state = head_state(context, slot, outcome.current)


def _settle(context: Context, state: HeadState, other: str) -> Step[bool]:
    """Carry out the decision of a claim's job; return ``False`` if that job is undecided."""
    decided = yield from read_decision(context, other)
    if decided is None:
        return False
    if decided.decision.is_commit:
        yield from finish(context, decided)
    if not decided.names(state.slot):
        # Also a commit that was called twice may have claimed what its decision does not name.
        yield from release_claim(context, state.slot, other)
    return True


def _gives_way(opened: OpenedJob, request: ClaimRequest, state: HeadState) -> bool:
    """Return whether a job leaves a partition as it is, because its run is superseded there.

    A job without rows for the partition still removes what an earlier attempt of its run left
    there, unless another job has replaced that since.
    """
    if not is_superseded(opened, state, request.replaces):
        return False
    return request.writes or _changed(opened, request, state)


def _changed(opened: OpenedJob, request: ClaimRequest, state: HeadState) -> bool:
    """Return whether a slot has changed under a job: the conflict test.

    A replace is compared with the version, an append with the version of the last replace.

    A run's head is always tested as under *fail*: if another job moved it, that job did this run's
    work. So are partitions in which the job settles a conflict by a plan: it removes only what the
    plan has seen. The same holds for partitions that it replaces by a plan, under any policy.
    """
    if request.slot.name in opened.settles and not request.slot.is_run:
        return state.head.version != request.read
    if opened.spec.on_conflict is OnConflict.LAST_WINS and not request.slot.is_run:
        planned = opened.planned.get(request.slot.name)
        return planned is not None and _changed_since(opened, request, state, planned)
    if request.read is not None and _changed_since(opened, request, state, request.read):
        return True
    if is_newest(opened, state, request.replaces):
        return False
    return _changed_since(opened, request, state, state.version_at(request.base))


def _changed_since(
    opened: OpenedJob, request: ClaimRequest, state: HeadState, base: int | None
) -> bool:
    """Return whether a slot has changed since a version in a way that refuses the job.

    :param base: the version to compare with; ``None``: it is older than the head's trail.
    """
    exclusive = request.replaces or request.slot.is_run
    if base is None:
        return exclusive or _replaced_since(opened, state.head)
    if exclusive or opened.spec.mode is Mode.FAIL_IF_EXISTS or base > state.head.version:
        return state.head.version != base
    return state.head.replace_version > base


def _replaced_since(opened: OpenedJob, head: PartitionHead) -> bool:
    """Return whether a partition was replaced since the job opened, by the store's clock.

    Used if the head's trail no longer reaches back to the opening, so that versions cannot answer.
    The store's dates are whole seconds, so a replace in the same second counts.
    """
    if not head.replace_version:
        return False
    return head.replaced_at is None or head.replaced_at >= opened.opened_at


# Reads of a serializable job. A merge that looks for its keys in all partitions inserts a key
# because no partition has it. So two merges could insert the same key into two partitions, each
# under its own claim.


def let_others_decide(context: Context, opened: OpenedJob) -> Step[None]:
    """Wait until no head of the table carries another job's undecided claim.

    This job must hold no claim meanwhile. A job that is silent for too long, such as one that died,
    is fenced. Requests: none unless the job is serializable; else a LIST, and a GET for each
    partition.

    :raises OtherJobError: a job in the way can neither be finished nor be fenced.
    """
    if not opened.spec.serializable:
        return
    for state in (yield from _heads_read(context, opened, ())):
        waits = 0
        while (other := state.head.claim) not in (None, opened.job):
            assert other is not None
            settling = _settle(context, state, other)
            if not (yield from about_other(context.root, other, settling)):
                waiting = outwait(context, state.slot.key, state.etag, other, waits)
                yield from about_other(context.root, other, waiting)
                waits += 1
            state = yield from read_head(context, state.slot)


def refuse_moved_reads(context: Context, opened: OpenedJob, held: Collection[Slot]) -> Step[None]:
    """Refuse a serializable job if a partition that it read and does not write has changed.

    A partition that is new since then counts as changed. Requests as for :func:`let_others_decide`.

    The job holds its claims. If each of two jobs changes what the other one has read, then the one
    that claims later sees the other's claim; perhaps both do. So a claim is a conflict and is not
    waited for: the other job might be waiting for this one.

    :param held: the heads that carry its claims.
    :raises CommitConflictError: a partition has changed, or carries a claim.
    """
    read = opened.spec.base
    if not opened.spec.serializable or read is None:
        return
    own = {slot.name for slot in held if not slot.is_run}
    moved = [
        Conflict(state, state.head.claim or state.head.last_job)
        for state in (yield from _heads_read(context, opened, own))
        if state.head.claim is not None or state.head.version != read.version(state.slot.name)
    ]
    if moved:
        raise _conflict(opened, moved)


def _heads_read(context: Context, opened: OpenedJob, but: Collection[str]) -> Step[list[HeadState]]:
    """Read all heads that exist and those that the job has read, except those of ``but``."""
    there = yield from list_heads(context)
    read = opened.spec.base.versions if opened.spec.base is not None else {}
    names = sorted({*there, *(name for name, version in read.items() if version)} - {*but})
    slots = (Slot.partition(context.root, name) for name in names)
    return [*(yield from All(tuple(read_head(context, slot) for slot in slots)))]


def tell_overtaken(
    context: Context, opened: OpenedJob, requests: Iterable[ClaimRequest], error: ZeroRenameError
) -> Step[None]:
    """Note in the error of an aborted job that a repeat of the job would hide a conflict.

    An aborted job that could not make its claims, or lost them, looks at the heads again. If
    another job has changed them, or is about to, the error says so
    (:attr:`.RefusedError.overtaken`). A head that cannot be read counts as changed.
    """
    if not isinstance(error, JobFencedError | OtherJobError):
        return
    if opened.spec.on_conflict is OnConflict.LAST_WINS:
        return
    partitions = [request for request in requests if not request.slot.is_run]
    states = yield from All(tuple(or_error(read_head(context, it.slot)) for it in partitions))
    for request, state in zip(partitions, states, strict=True):
        if isinstance(state, HeadState):
            hidden = yield from _would_hide(context, opened, request, state)
            if not hidden:
                continue
        error.overtaken = True
        error.key = error.key or request.slot.key
        if isinstance(state, HeadState) and (by := state.head.claim or state.head.last_job):
            error.gave_way = {request.slot.name: by}
            name_ranks(opened, error)
        named = request.slot.name or "the table"
        error.message += (
            f" Another job has changed {named} meanwhile, or is about to: this job, run again, "
            "begins on that, and would not notice."
        )
        return


def _would_hide(
    context: Context, opened: OpenedJob, request: ClaimRequest, state: HeadState
) -> Step[bool]:
    """Return whether a repeat of the job would hide that another job changed a partition.

    The repeat would begin on the state that the other job has made, or is about to make, and would
    not notice. If the job's run gives way there, or the two ranks are not of one kind, the repeat
    is refused and says so; then nothing is hidden.
    """
    try:
        if is_superseded(opened, state, request.replaces):
            return False
        if _changed(opened, request, state):
            return True
    except InvalidInputError:
        return False
    other = state.head.claim
    if not request.replaces or other is None or other == opened.job:
        return False
    if opened.spec.on_conflict is not OnConflict.NEWEST_RUN:
        return True
    return (yield from _may_be_equally_new(context, opened, state.slot.name, other))


def _may_be_equally_new(
    context: Context, opened: OpenedJob, partition: str, other: str
) -> Step[bool]:
    """Return whether another job's run may be exactly as new as this job's run in a partition.

    The other job is about to write the partition; once it has, ranks cannot tell the two runs
    apart.
    """
    entry = yield from or_error(read_open(context, other))
    if not isinstance(entry, OpenEntry) or entry.record is None:
        return True

    def spell(path: str) -> str:
        return spelled_as_stored(path, opened.schema, opened.partition_by)

    # An open record is written before its job knows the table: it names partitions as its user did.
    theirs = entry.record.spelled(spell).rank(partition)
    return theirs is not None and theirs == opened.rank(partition)


def _finish_last_job(
    context: Context, opened: OpenedJob, request: ClaimRequest, state: HeadState
) -> Step[None]:
    """Finish the job that moved this head last, if its removals here may be outstanding.

    Otherwise this job's marker would stand beside files of an older state. A closed job has removed
    everything. A job that had moved the head before this job listed it, and was not open after that
    listing, is closed.
    """
    last = state.head.last_job
    if last is None or (state.etag == request.base and last not in opened.others):
        return
    record = yield from Head(context.root.open_key(last))
    if isinstance(record, Absent):
        return
    decided = yield from read_decision(context, last)
    changes = () if decided is None else decided.changes.get(state.slot.name, ())
    if decided is not None and any(change.removals for change in changes):
        yield from about_other(context.root, last, finish(context, decided))


def _refuse_if_fenced(context: Context, opened: OpenedJob) -> Step[None]:
    decided = yield from read_decision(context, opened.job)
    if decided is None:
        return
    if decided.decision.is_commit:
        what = " already: its commit was called before, or in another process."
        raise unfinished(context, opened.job, what)
    raise JobFencedError(
        "Another process declared this job dead and wrote its abort decision; it can no longer "
        "commit and nothing of it is visible.",
        remedy="Run the job again; send heartbeats or a longer maximum duration.",
    )


def _conflict(opened: OpenedJob, conflicts: list[Conflict]) -> CommitConflictError:
    base = opened.spec.base

    def was_read(conflict: Conflict) -> bool:
        return base is not None and base.version(conflict.state.slot.name) is not None

    # Partitions that the job has read come first: the remedy speaks of them.
    conflicts = sorted(conflicts, key=was_read, reverse=True)
    named = first_few(
        [
            f"{c.state.slot.name} (by {c.by or 'an unknown job'}, version {c.state.head.version})"
            for c in conflicts
        ]
    )
    if any(c.state.slot.is_run for c in conflicts):
        what = "Another attempt of this run committed while this job was open"
        remedy = "Nothing is to be done if that attempt's rows are right; else clear the run."
    else:
        what = "Partitions changed since this job opened"
        if was_read(conflicts[0]):
            what = "Partitions changed since this job read the table"
        remedy = "Run the job again on what is there now, or choose on_conflict=last_wins."
    error = CommitConflictError(
        f"{what}: {named}. Nothing of this job is visible.",
        key=conflicts[0].state.slot.key,
        remedy=remedy,
    )
    error.gave_way = {
        c.state.slot.name: c.by for c in conflicts if c.by and not c.state.slot.is_run
    }
    return error
