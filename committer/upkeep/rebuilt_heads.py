"""Rebuild of lost heads from the decisions, if these describe the whole state of a partition.

Each decision about a partition says which version it found. So the decisions can be put in order,
from the last replace or the first job on, and applied again to an empty head. The index, the
markers and the files that are there must agree with the result.

The heads are read first, and everything else after them. So if a job moved a head before it was
lost, its decision is on record by then; if a job had claimed it, that job is open or decided. A
rebuilt head is written only over what was found at first: no head, or a head of version 0 without a
claim, which a job made after the loss and gave back. So a job that claims meanwhile keeps its head.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

from ..commit.apply import finish
from ..commit.index.read_index import read_index
from ..commit.state.context import Context
from ..commit.state.decide import Decided, read_decision
from ..commit.state.heads import read_head, swap_head
from ..commit.state.old_records import ReadHeads, read_heads
from ..commit.state.open_jobs import list_open
from ..commit.state.partition_files import assemble
from ..commit.state.tolerance import or_damage, or_error
from ..errors import DamagedError, ZeroRenameError
from ..format.job_spec import Coordination
from ..format.layout import job_in_key, jobs_on_record
from ..format.records.data_file import DataFile
from ..format.records.head import HeadState, PartitionHead, Slot
from ..format.records.partition_decision import PartitionDecision
from ..store.listing import list_objects
from ..store.requests import All, ListedObject, Step
from .lost_partitions import known_by_markers
from .repair import table_or_loss


class RebuildAction(StrEnum):
    """Outcome for a partition without a head. ``LEFT``: its head cannot be rebuilt now."""

    WOULD_REBUILD = "would-rebuild"
    REBUILT = "rebuilt"
    LEFT = "left"


@dataclass(frozen=True)
class RebuiltHead:
    """A partition whose head is missing, and its rebuilt head.

    :param version: the rebuilt head's version; ``files`` and ``rows``: how many it names. All are 0
        if it is not rebuilt.
    :param jobs: the jobs whose decisions it names.
    :param reason: why it is not rebuilt; or, of a rebuilt head, why its last job is not finished.
    """

    partition: str
    action: RebuildAction
    version: int = 0
    files: int = 0
    rows: int = 0
    jobs: tuple[str, ...] = ()
    reason: str = ""


#: A decision, and its change of one partition.
_Change = tuple[Decided, PartitionDecision]


@dataclass(frozen=True)
class _Records:
    """Records of a table, read heads first, then open jobs, decisions, files, index and markers.

    :param heads: all heads.
    :param decided: jobs with a decision on record: commit, abort or damaged.
    :param still_open: jobs with an open record; ``undecided``: those of them without a decision.
    :param changes: the commit decisions about each partition.
    :param unread: jobs whose decisions cannot be read.
    :param files: the data files that are there, by partition and key.
    :param known: the highest version of each partition that the index or a marker names.
    """

    heads: ReadHeads
    decided: Collection[str]
    still_open: Collection[str]
    undecided: Collection[str]
    changes: Mapping[str, Sequence[_Change]]
    unread: Collection[str]
    files: Mapping[str, Mapping[str, ListedObject]]
    known: Mapping[str, int]


class _NotWholeError(Exception):
    """A head cannot be rebuilt, for the reason that the message gives."""


def rebuild_heads(context: Context, apply: bool) -> Step[list[RebuiltHead]]:
    """Rebuild the heads that are missing (:meth:`.table.Table.rebuild_heads`)."""
    table = yield from table_or_loss(context)
    if table.coordination is Coordination.NONE:
        return []
    context = context.of(table)
    records = yield from _read(context)
    known = {name for name, version in records.known.items() if version}
    result: dict[str, RebuiltHead] = {}
    plans: list[_HeadPlan] = []
    for name in sorted(known.union(records.changes)):
        try:
            plan = yield from _plan_for(context, records, name)
        except _NotWholeError as why:
            result[name] = RebuiltHead(name, RebuildAction.LEFT, reason=str(why))
            continue
        if plan is not None:
            result[name] = plan.told
            plans.append(plan)
    if apply:
        for plan in plans:
            result[plan.told.partition] = yield from _carry_out(plan)
        # Finish jobs last: a job needs all the heads that it moves.
        for plan in plans:
            found = result[plan.told.partition]
            if found.action is RebuildAction.REBUILT:
                result[plan.told.partition] = yield from _finish(context, plan, found)
    return [result[name] for name in sorted(result)]


def _plan_for(context: Context, records: _Records, name: str) -> Step[_HeadPlan | None]:
    """Plan the head of a partition; ``None``: its head is not lost.

    :raises _NotWholeError: the head is lost and cannot be rebuilt now.
    """
    slot, changes = Slot.partition(context.root, name), records.changes.get(name, ())
    before = records.heads.states.get(name)
    if name in records.heads.damaged or (before is not None and before.head.version):
        return None
    found = yield from or_damage(read_head(context, slot))
    if isinstance(found, DamagedError) or found.head.version:
        return None  # Another job has made the head since.
    claim = found.head.claim
    if claim in {decided.decision.job for decided, _ in changes}:
        return None  # Its first job is about to move it.
    # The claim of an aborted job does not count.
    if claim is not None and claim not in records.decided:
        raise _NotWholeError(_claimed(context, claim))
    if found.etag != (None if before is None else before.etag):
        raise _NotWholeError("a job has claimed it meanwhile; run it again")
    return _plan(context, records, found)


def _claimed(context: Context, job: str) -> str:
    return (
        f"{job} is open and may have claimed it: wait for its end, or settle it (zero-rename "
        f"recover {context.root.url} --apply), then run it again"
    )


def _blank(context: Context, name: str) -> PartitionHead:
    return PartitionHead.initial(Slot.partition(context.root, name))


def _read(context: Context) -> Step[_Records]:
    heads = yield from read_heads(context)
    still_open = yield from list_open(context)
    prefix = context.root.decisions_prefix
    listed = yield from list_objects(prefix)
    jobs = jobs_on_record(prefix, listed.keys)
    found = yield from All(tuple(or_damage(read_decision(context, job)) for job in jobs))
    changes: dict[str, list[_Change]] = {}
    for decided in found:
        if isinstance(decided, Decided):
            for change in decided.decision.partitions:
                changes.setdefault(change.partition, []).append((decided, change))
    everything = yield from list_objects(f"{context.root.prefix}/")
    files: dict[str, dict[str, ListedObject]] = {}
    for item in everything.objects:
        partition = context.root.partition_of_data_key(item.key)
        if partition is not None:
            files.setdefault(partition, {})[item.key] = item
    index = yield from read_index(context)
    known = {it.name: it.version for it in index.entries.values()}
    by_markers = yield from known_by_markers(context, everything.objects, ())
    for it in (it for versions in by_markers.values() for it in versions):
        known[it.partition] = max(it.version, known.get(it.partition, 0))
    return _Records(
        heads,
        jobs,
        still_open,
        still_open.difference(jobs),
        changes,
        [job for job, it in zip(jobs, found, strict=True) if isinstance(it, DamagedError)],
        files,
        known,
    )


@dataclass(frozen=True)
class _HeadPlan:
    """A rebuilt head that will be written over ``now``.

    :param finishes: the job that moved the head last, if it is still open. If this job has yet to
        complete files, the head carries its claim.
    """

    now: HeadState
    head: PartitionHead
    finishes: Decided | None
    told: RebuiltHead


def _plan(context: Context, records: _Records, now: HeadState) -> _HeadPlan:
    """Plan the head that a partition's decisions lead to.

    :raises _NotWholeError: the records do not describe the whole state.
    """
    name = now.slot.name
    if records.unread:
        raise _NotWholeError(f"the decision of {min(records.unread)} cannot be read")
    if records.undecided:
        raise _NotWholeError(_claimed(context, min(records.undecided)))
    if name not in records.changes:
        raise _NotWholeError("no decision about it is on record")
    history = _history(records.changes[name])
    version = history[-1][1].base_version + 1
    if records.known.get(name, 0) > version:
        raise _NotWholeError(
            f"the decisions on record end at version {version}, and the index or a marker names "
            f"{records.known[name]}"
        )
    head = replace(_blank(context, name), version=history[0][1].base_version)
    last = history[-1][0]
    before = head
    for decided, change in history:
        before = head
        said = decided.decision
        head = before.moved(said.job, change, "", "", decided.date, said.schema_version)
    files = assemble(head, (), {it.decision.job: it for it, _ in history})
    pending = last if last.decision.job in records.still_open else None
    unfinished = _unfinished(records, name, pending)
    _check_files(context, records, name, files, unfinished)
    told = RebuiltHead(
        name,
        RebuildAction.WOULD_REBUILD,
        version,
        len(files),
        sum(max(0, file.rows) for file in files),
        head.decisions,
    )
    # If the open job has completed all files, it may have moved the head and be about to close.
    if pending is not None and unfinished:
        head = replace(before, claim=pending.decision.job)
    head = replace(head, write_id=context.write_id(), trail=())
    return _HeadPlan(now, head, pending, told)


def _history(changes: Sequence[_Change]) -> list[_Change]:
    """Return the changes from the last replace on, or from the first job, in their order.

    :raises _NotWholeError: a change is missing or condensed, or two changes found one version.
    """
    ordered = sorted(changes, key=lambda it: it[1].base_version)
    start = max((n for n, (_, it) in enumerate(ordered) if it.replace), default=0)
    history = ordered[start:]
    first = history[0][1]
    if first.base_version and not first.replace:
        raise _NotWholeError(f"no decision is on record of its version {first.base_version}")
    for (before, one), (after, other) in pairwise(history):
        if other.base_version == one.base_version:
            both = f"{before.decision.job} and {after.decision.job}"
            raise _NotWholeError(f"{both} both found it at version {one.base_version}")
        if other.base_version != one.base_version + 1:
            raise _NotWholeError(f"no decision is on record of its version {one.base_version + 2}")
    for decided, _ in history:
        if decided.decision.condensed:
            raise _NotWholeError(
                f"the decision of {decided.decision.job} is condensed: it does not name files any "
                "more"
            )
    return history


def _unfinished(records: _Records, name: str, pending: Decided | None) -> set[str]:
    """Return the keys of files in a partition that the open job has not completed yet."""
    there = records.files.get(name, {})
    changes = () if pending is None else pending.changes.get(name, ())
    files = (file for change in changes for file in change.files)
    return {file.key for file in files if not _is_there(there, file.key, file.size)}


def _is_there(there: Mapping[str, ListedObject], key: str, size: int) -> bool:
    return key in there and there[key].size == size


def _check_files(
    context: Context,
    records: _Records,
    name: str,
    files: Sequence[DataFile],
    unfinished: Collection[str],
) -> None:
    """Check that all files of the head are there, and that each file of a job in the partition
    belongs to a job with a commit decision.

    :param unfinished: keys of the files that are yet to be completed.
    :raises _NotWholeError: a file is missing, or belongs to a job without a commit decision.
    """
    there = records.files.get(name, {})
    for file in files:
        if file.key not in unfinished and not _is_there(there, file.key, file.size):
            raise _NotWholeError(f"{file.key} is not there as it was decided")
    jobs = {it.decision.job for changes in records.changes.values() for it, _ in changes}
    for key in there:
        if job_in_key(key) not in {None, *jobs}:
            raise _NotWholeError(f"of the job of {key} no decision is on record")


def _carry_out(plan: _HeadPlan) -> Step[RebuiltHead]:
    outcome = yield from swap_head(plan.now, plan.head)
    if isinstance(outcome, HeadState):
        return replace(plan.told, action=RebuildAction.REBUILT)
    reason = "another head came meanwhile, or the store did not say; run it again"
    return replace(plan.told, action=RebuildAction.LEFT, reason=reason)


def _finish(context: Context, plan: _HeadPlan, rebuilt: RebuiltHead) -> Step[RebuiltHead]:
    """Finish the open job of a rebuilt head. If that fails, the head stays, and its report has the
    reason of the failure."""
    if plan.finishes is None:
        return rebuilt
    failed = yield from or_error(finish(context, plan.finishes))
    return replace(rebuilt, reason=str(failed)) if isinstance(failed, ZeroRenameError) else rebuilt
