"""Conflicts: runs that touched one partition within one window, by the records that are left.

A commit decision says for good what its job did to each partition; the heads say what of it is
visible, a listing what of the rest is still there. An aborted job leaves the word *abort* alone:
whom it met is known where its run's last failure is on record, and else no longer.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..commit.snapshot import Survey, survey
from ..commit.state.context import Context
from ..commit.state.data_listing import list_beside
from ..commit.state.decide import Decided, read_decision
from ..commit.state.found_table import read_table
from ..commit.state.heads import read_head
from ..commit.state.partition_files import files_of_decision
from ..commit.state.tolerance import or_damage
from ..errors import DamagedError, InvalidInputError
from ..format.job_spec import Coordination, Owner
from ..format.layout import TableRoot, jobs_on_record
from ..format.records.data_file import DataFile
from ..format.records.failure import Failure
from ..format.records.head import HeadState, Slot
from ..format.records.partition_decision import PartitionDecision
from ..store.listing import list_objects
from ..store.requests import Absent, All, Get, Step

#: Errors of a run that gave way to another.
GAVE_WAY = ("CommitConflictError", "DestinationExistsError", "JobFencedError", "OtherJobError")


@dataclass(frozen=True)
class Touch:
    """What one committed job did to a partition, and what is left of it.

    :param version: that the partition came to by it. It is the order of the jobs: several may be
        decided within the second that a store's dates tell.
    :param decided_at: seconds since the epoch, by the store's clock.
    :param replaced: it took the place of what was there.
    :param files: that it wrote there, of ``rows`` and ``bytes``.
    :param visible: how many of them readers through the heads see.
    :param hidden: how many are still in the store and no head names them: they can be brought back.
    :param merged: whose rows it wrote again, as a compaction or a resolution does: it has none of
        its own. "" are files that no job of the table wrote.
    """

    job: str
    owner: Owner
    idempotency_key: str | None
    version: int
    decided_at: float
    replaced: bool
    files: int
    rows: int
    bytes: int
    visible: int
    hidden: int
    merged: tuple[str, ...] = ()


@dataclass(frozen=True)
class GaveWay:
    """A run that wrote nothing for another's sake, as its last failure says."""

    job: str | None
    owner: Owner
    idempotency_key: str
    partition: str | None
    error: str
    message: str


@dataclass(frozen=True)
class PartitionConflict:
    """Runs that touched a partition within one window, in the order of their decisions.

    :param claimed_by: an undecided job that is about to change it.
    """

    partition: str
    touches: tuple[Touch, ...]
    gave_way: tuple[GaveWay, ...] = ()
    claimed_by: str | None = None


@dataclass(frozen=True)
class ConflictReport:
    """Conflicts by partition, and what is no longer known.

    :param gave_way: runs that gave way where no partition is on record.
    :param aborted: jobs that were aborted in that time; which partitions they wanted is not kept.
    :param unread: records that cannot be read, and why.
    """

    conflicts: tuple[PartitionConflict, ...]
    gave_way: tuple[GaveWay, ...] = ()
    aborted: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


def find_conflicts(
    context: Context, window: float, since: float, partition: str | None = None
) -> Step[ConflictReport]:
    """As :meth:`.table.Table.conflicts`.

    One request for each decision written in that time, and for each head; for each conflict a
    listing, and its head once more.
    """
    seen = yield from survey(context, None if partition is None else (partition,))
    return (yield from conflicts_in(context, seen, window, since))


def conflicts_in(
    context: Context, seen: Survey, window: float, since: float
) -> Step[ConflictReport]:
    """As :func:`find_conflicts`, of the partitions of one state. It is read before the decisions,
    so that all that led to it are there; what has come after it is told by the version that it goes
    on from, and left out."""
    table = yield from read_table(context)
    if table.coordination is Coordination.NONE:
        raise InvalidInputError(
            "In a table of coordination=none writers do not notice each other and no head says "
            "whose files count; nothing can be told of conflicts."
        )
    context = context.of(table)
    decided, unread, start = yield from _decided_since(context, since)
    found = _together(_touches(decided, seen), window)
    failures = yield from _gave_way(context, start)
    names = {*found, *(it.partition for it in failures if it.partition)}
    asked = seen.snapshot.asked
    names = {name for name in names if asked is None or name in asked}
    conflicts = yield from All(
        tuple(_conflict(context, name, found.get(name, ()), failures) for name in sorted(names))
    )
    told = {it.job for it in failures}
    aborted = (it.decision.job for it in decided if not it.decision.is_commit)
    return ConflictReport(
        tuple(conflicts),
        tuple(it for it in failures if it.partition is None),
        tuple(sorted(job for job in aborted if job not in told)),
        (*unread, *(f"{name}: {error}" for name, error in sorted(seen.damaged.items()))),
    )


def files_of_job(context: Context, job: str, partition: str) -> Step[tuple[DataFile, ...]]:
    """The files that a committed job wrote into a partition, whether or not they are visible.

    :raises InvalidInputError: it is no committed job, or wrote none there.
    """
    decided = yield from read_decision(context, job)
    files = () if decided is None else files_of_decision(decided.decision, partition)
    own = tuple(file for file in files if file.job == job)
    if not own:
        raise InvalidInputError(
            f"{job} is no job that committed files into {partition}; nothing was changed.",
            job=job,
            remedy=f"zero-rename conflicts {context.root.url} names those that did.",
        )
    return own


def _decided_since(context: Context, since: float) -> Step[tuple[list[Decided], list[str], float]]:
    """Decisions written since, those that cannot be read, and since when."""
    prefix = context.root.decisions_prefix
    listing = yield from list_objects(prefix)
    start = listing.date - since
    recent = (item.key for item in listing.objects if item.last_modified >= start)
    jobs = sorted(jobs_on_record(prefix, recent))
    found = yield from All(tuple(or_damage(read_decision(context, job)) for job in jobs))
    unread = [str(it) for it in found if isinstance(it, DamagedError)]
    # One that was written again since keeps its date.
    return [it for it in found if isinstance(it, Decided) and it.date >= start], unread, start


def _touches(
    decided: Iterable[Decided], seen: Survey
) -> dict[str, list[tuple[Touch, frozenset[str]]]]:
    """By partition; each with the keys of the files that it wrote and nobody sees."""
    state = seen.snapshot
    keys = {file.key for file in state.files}
    shown = Counter((file.partition, file.job) for file in state.files)
    touches: dict[str, list[tuple[Touch, frozenset[str]]]] = defaultdict(list)
    for it in decided:
        for change in it.decision.partitions:
            name = change.partition
            if change.base_version >= state.versions.get(name, 0) and name not in seen.damaged:
                continue  # It came after that state.
            touch = _touch(it, change, shown[name, it.decision.job])
            touches[name].append((touch, frozenset(file.key for file in change.files) - keys))
    return touches


def _touch(decided: Decided, change: PartitionDecision, visible: int) -> Touch:
    decision = decided.decision
    return Touch(
        decision.job,
        decision.owner,
        decision.idempotency_key,
        change.base_version + 1,
        decided.date,
        change.replace,
        change.sums.files,
        change.sums.rows,
        change.sums.bytes,
        visible,
        0,
        change.merged,
    )


Written = Sequence[tuple[Touch, frozenset[str]]]


def _together(touches: Mapping[str, Written], window: float) -> dict[str, Written]:
    """The touches of a partition that have another one of another run near."""
    found = {}
    for partition, all_of_it in touches.items():
        ordered = sorted(all_of_it, key=lambda it: it[0].version)
        near = [
            it
            for it in ordered
            if any(
                other.job != it[0].job and abs(other.decided_at - it[0].decided_at) <= window
                for other, _ in ordered
            )
        ]
        if near:
            found[partition] = near
    return found


def _conflict(
    context: Context, partition: str, written: Written, failures: Iterable[GaveWay]
) -> Step[PartitionConflict]:
    head = read_head(context, Slot.partition(context.root, partition))
    unseen = {key for _, keys in written for key in keys}
    beside = list_beside(context.root, partition, unseen)
    listed, state = yield from All((beside, or_damage(head)))
    there = {item.key for item in listed}
    touches = tuple(replace(touch, hidden=len(keys & there)) for touch, keys in written)
    gave_way = tuple(it for it in failures if it.partition == partition)
    claimed_by = state.head.claim if isinstance(state, HeadState) else None
    if claimed_by is not None and (yield from or_damage(read_decision(context, claimed_by))):
        claimed_by = None  # Decided since, or aborted and not taken off.
    return PartitionConflict(partition, touches, gave_way, claimed_by)


def _gave_way(context: Context, start: float) -> Step[list[GaveWay]]:
    listing = yield from list_objects(context.root.failures_prefix)
    keys = [item.key for item in listing.objects if item.last_modified >= start]
    found = yield from All(tuple(or_damage(read_failure(key)) for key in keys))
    failures = [it for it in found if isinstance(it, Failure) and it.error in GAVE_WAY]
    return [
        GaveWay(
            it.job, it.owner, it.idempotency_key, head_met(context.root, it), it.error, it.message
        )
        for it in failures
    ]


def read_failure(key: str) -> Step[Failure | None]:
    """A run's failure as it is on record; ``None``: it is no more."""
    found = yield from Get(key)
    return None if isinstance(found, Absent) else Failure.decode(found.body, key)


def head_met(root: TableRoot, failure: Failure) -> str | None:
    """The partition whose head was in a run's way; ``None``: not that."""
    return None if failure.key is None else root.partition_of_head_key(failure.key)
