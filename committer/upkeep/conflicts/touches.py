"""Recent changes of a partition, by the decisions on record: what each job wrote there, and how
much of it is still visible. An operator chooses among these jobs whose rows stay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from ...commit.snapshot import Snapshot
from ...commit.state.context import Context
from ...commit.state.decide import Decided, read_decision
from ...commit.state.found_table import read_table
from ...commit.state.partition_files import files_of_decision
from ...commit.state.tolerance import or_damage
from ...errors import InvalidInputError
from ...format.job_spec import Coordination
from ...format.layout import jobs_on_record
from ...format.records.data_file import DataFile
from ...format.records.partition_decision import PartitionDecision
from ...store.listing import list_objects
from ...store.requests import All, Step


@dataclass(frozen=True)
class Touch:
    """A change of a partition by one committed job, and what is still visible of it.

    :param version: the partition's version after the change. Versions give the order of the jobs,
        since a store's dates are whole seconds, and several jobs may be decided within one.
    :param decided_at: Unix seconds, by the store's clock.
    :param files: how many files it wrote there.
    :param visible: how many of them readers through the heads see.
    :param merged: the jobs whose rows it rewrote, as a compaction does; then it has no rows of its
        own. ``""`` stands for files that no job of the table wrote.
    """

    job: str
    version: int
    decided_at: float
    files: int
    visible: int
    merged: tuple[str, ...] = ()


def touches_of(
    context: Context, partition: str, state: Snapshot, window: float, since: float
) -> Step[list[Touch]]:
    """Find the jobs that changed a partition near in time to another job, in their order.

    Sends one request for each decision written in that time.

    :param state: a snapshot of the partition, taken before; later changes are left out.
    :param window: two decisions are near if at most so many seconds lie between them.
    :param since: how far the search goes back; seconds before now, by the store's clock.
    :raises InvalidInputError: the table has coordination *none*.
    """
    table = yield from read_table(context)
    if table.coordination is Coordination.NONE:
        raise InvalidInputError(
            "In a table of coordination=none writers do not notice each other and no head says "
            "whose files count; nobody can choose among jobs."
        )
    decided = yield from _decided_since(context, since)
    shown = Counter(file.job for file in state.files if file.partition == partition)
    found = [
        _touch(it, change, shown[it.decision.job])
        for it in decided
        for change in it.changes.get(partition, ())
        if change.base_version < state.versions.get(partition, 0)
    ]
    found.sort(key=lambda it: it.version)
    return [it for it in found if any(_are_near(it, other, window) for other in found)]


def files_of_job(context: Context, job: str, partition: str) -> Step[tuple[DataFile, ...]]:
    """Return the files that a committed job wrote into a partition, visible or not.

    :raises InvalidInputError: the job is not committed, or wrote no files there.
    """
    decided = yield from read_decision(context, job)
    files = () if decided is None else files_of_decision(decided.decision, partition)
    own = tuple(file for file in files if file.job == job)
    if not own:
        raise InvalidInputError(
            f"{job} is no job that committed files into {partition}; nothing was changed.",
            job=job,
            remedy=f"zero-rename history {context.root.url} names those that did.",
        )
    return own


def _are_near(touch: Touch, other: Touch, window: float) -> bool:
    return other.job != touch.job and abs(other.decided_at - touch.decided_at) <= window


def _decided_since(context: Context, since: float) -> Step[Iterable[Decided]]:
    prefix = context.root.decisions_prefix
    listing = yield from list_objects(prefix)
    start = listing.date - since
    recent = (item.key for item in listing.objects if item.last_modified >= start)
    jobs = sorted(jobs_on_record(prefix, recent))
    found = yield from All(tuple(or_damage(read_decision(context, job)) for job in jobs))
    # A decision that was rewritten since keeps its date.
    return [it for it in found if isinstance(it, Decided) and it.date >= start]


def _touch(decided: Decided, change: PartitionDecision, visible: int) -> Touch:
    return Touch(
        decided.decision.job,
        change.base_version + 1,
        decided.date,
        change.sums.files,
        visible,
        change.merged,
    )
