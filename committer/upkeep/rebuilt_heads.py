"""Heads that are gone, built again from the decisions: only where these tell the state whole.

Each decision about a partition says which version it found, so those on record line up, from the
last replace or the first job on, and what their job did is done again on an empty head. What the
index, the markers and the files that are there say must agree with that. It is bound to the state
that it was planned from: a head that somebody makes meanwhile stays, and no job that is open
without a decision may hold a claim that went with the head.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

from ..commit.apply import finish
from ..commit.index.read_index import read_index
from ..commit.state.context import Context
from ..commit.state.data_listing import list_fast
from ..commit.state.decide import Decided, read_decision
from ..commit.state.found_table import read_table
from ..commit.state.heads import Swapped, swap_head
from ..commit.state.old_records import ReadHeads, read_heads
from ..commit.state.open_jobs import list_open
from ..commit.state.partition_files import assemble
from ..commit.state.symlink_manifest import write_symlinks
from ..commit.state.tolerance import or_damage
from ..errors import DamagedError
from ..format.job_spec import Coordination
from ..format.layout import is_written_once, job_in_key, jobs_on_record
from ..format.records.data_file import DataFile
from ..format.records.head import HeadState, PartitionHead, Slot
from ..format.records.partition_decision import PartitionDecision
from ..store.listing import list_objects
from ..store.requests import All, ListedObject, Step
from .lost_partitions import known_by_markers


class RebuildAction(StrEnum):
    """What became of a partition without a head. Left: its state cannot be told whole."""

    WOULD_REBUILD = "would-rebuild"
    REBUILT = "rebuilt"
    LEFT = "left"


@dataclass(frozen=True)
class RebuiltHead:
    """A partition whose head is gone.

    :param version: that of the head; ``files`` and ``rows`` what it names. 0 where it is left.
    :param jobs: whose decisions it names.
    :param reason: why it is left.
    """

    partition: str
    action: RebuildAction
    version: int = 0
    files: int = 0
    rows: int = 0
    jobs: tuple[str, ...] = ()
    reason: str = ""


#: A decision about a partition, and what it says of it.
_Change = tuple[Decided, PartitionDecision]


@dataclass(frozen=True)
class _Records:
    """What was read, in this order.

    :param decided: jobs with a decision on record, whatever it says.
    :param still_open: jobs with an open record; ``undecided`` those of them without a decision.
    :param changes: the commit decisions about each partition.
    :param unread: decisions that cannot be read.
    :param files: the data files that are there, by partition.
    :param known: the highest version of each partition that the index or a marker names.
    """

    decided: Collection[str]
    still_open: Collection[str]
    undecided: Collection[str]
    changes: Mapping[str, Sequence[_Change]]
    unread: Collection[str]
    files: Mapping[str, Mapping[str, ListedObject]]
    known: Mapping[str, int]
    heads: ReadHeads


class _NotWholeError(Exception):
    """Why a partition's state cannot be told."""


def rebuild_heads(context: Context, apply: bool) -> Step[list[RebuiltHead]]:
    """As :meth:`.table.Table.rebuild_heads`."""
    table = yield from read_table(context)
    if table.coordination is Coordination.NONE:
        return []
    context = context.of(table)
    records = yield from _read(context)
    result = []
    known = {name for name, version in records.known.items() if version}
    for name in sorted(known.union(records.changes)):
        state = records.heads.states.get(name)
        gone = name not in records.heads.listed
        if name in records.heads.damaged or not (gone or (state and not state.head.version)):
            continue
        now = state or HeadState(Slot.partition(context.root, name), _blank(context, name), None)
        changes = records.changes.get(name, ())
        if now.head.claim in {decided.decision.job for decided, _ in changes}:
            continue  # Its first job is about to move it.
        try:
            plan = _plan(context, records, now)
        except _NotWholeError as why:
            result.append(RebuiltHead(name, RebuildAction.LEFT, reason=str(why)))
            continue
        if apply:
            result.append((yield from _carry_out(context, plan, table.symlinks)))
        else:
            result.append(plan.told)
    return result


def _blank(context: Context, name: str) -> PartitionHead:
    return PartitionHead.initial(Slot.partition(context.root, name))


def _read(context: Context) -> Step[_Records]:
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
    for item in everything.objects + (yield from list_fast(context)):
        partition = context.root.partition_of_data_key(item.key)
        if partition is not None:
            files.setdefault(partition, {})[item.key] = item
    index = yield from read_index(context)
    known = {it.name: it.version for it in index.entries.values()}
    by_markers = yield from known_by_markers(context, everything.objects, ())
    for it in (it for versions in by_markers.values() for it in versions):
        known[it.partition] = max(it.version, known.get(it.partition, 0))
    heads = yield from read_heads(context)
    return _Records(
        jobs,
        still_open,
        still_open.difference(jobs),
        changes,
        [job for job, it in zip(jobs, found, strict=True) if isinstance(it, DamagedError)],
        files,
        known,
        heads,
    )


@dataclass(frozen=True)
class _HeadPlan:
    """A head to be put where ``now`` was found.

    :param finishes: the job that is to move it, whose claim it carries.
    """

    now: HeadState
    head: PartitionHead
    finishes: Decided | None
    told: RebuiltHead


def _plan(context: Context, records: _Records, now: HeadState) -> _HeadPlan:
    """:raises _NotWholeError: the state cannot be told whole."""
    name = now.slot.name
    if records.unread:
        raise _NotWholeError(f"the decision of {min(records.unread)} cannot be read")
    if records.undecided:
        raise _NotWholeError(
            f"{min(records.undecided)} is open and may have claimed it: wait for its end, or "
            f"settle it (zero-rename recover {context.root.url} --apply), then run it again"
        )
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
        head = before.moved(said.job, change, "", "", decided.date, said.schema_version, said.since)
    files = assemble(head, (), {it.decision.job: it for it, _ in history})
    pending = last if last.decision.job in records.still_open else None
    _check_files(context, records, name, files, pending)
    told = RebuiltHead(
        name,
        RebuildAction.WOULD_REBUILD,
        version,
        len(files),
        sum(max(0, file.rows) for file in files),
        head.decisions,
    )
    if pending is not None:
        head = replace(before, claim=pending.decision.job)
    write_id = context.write_id()
    return _HeadPlan(now, replace(head, write_id=write_id, trail=()), pending, told)


def _history(changes: Sequence[_Change]) -> list[_Change]:
    """The changes from the last replace on, or from the first job, in their order.

    :raises _NotWholeError: some are missing, condensed, or there are two of one version.
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
    for decided, change in history:
        if change.restores is not None:
            raise _NotWholeError(
                f"{decided.decision.job} brought back its version {change.restores}, which the "
                "head alone kept"
            )
        if decided.decision.condensed:
            raise _NotWholeError(
                f"the decision of {decided.decision.job} is condensed: it does not name files any "
                "more"
            )
    return history


def _check_files(
    context: Context,
    records: _Records,
    name: str,
    files: Sequence[DataFile],
    pending: Decided | None,
) -> None:
    """See that what the head would name is there, and that no file is of a job of which nothing is
    on record.

    :raises _NotWholeError: it is not so.
    """
    there = records.files.get(name, {})
    unfinished = set() if pending is None else {file.key for file in pending.decision.files}
    for file in files:
        item = there.get(file.key)
        if file.key not in unfinished and (item is None or item.size != file.size):
            raise _NotWholeError(f"{file.key} is not there as it was decided")
    jobs = {it.decision.job for changes in records.changes.values() for it, _ in changes}
    # Of a table that is read by heads those of aborted and of open jobs are there, too.
    others = {*records.decided, *records.still_open}
    for key in there:
        told = jobs | others if is_written_once(key) else jobs
        if job_in_key(key) not in {None, *told}:
            raise _NotWholeError(f"of the job of {key} no decision is on record")


def _carry_out(context: Context, plan: _HeadPlan, symlinks: bool) -> Step[RebuiltHead]:
    outcome = yield from swap_head(plan.now, plan.head)
    if not isinstance(outcome, Swapped):
        reason = "another head came meanwhile, or the store did not say; run it again"
        return replace(plan.told, action=RebuildAction.LEFT, reason=reason)
    if plan.finishes is not None:
        yield from finish(context, plan.finishes)
    if symlinks:
        yield from write_symlinks(context, plan.now.slot.name)
    return replace(plan.told, action=RebuildAction.REBUILT)
