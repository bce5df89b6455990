"""Heads that were put back to a former state: from a version, a backup, or an older copy of the
bucket.

Rows of the job that had claimed the newer head are not visible, and files that it replaced are
named, which may be gone. Recovery of such a job fails, and removes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..commit.state.context import Context
from ..commit.state.decide import Decided, read_decision
from ..commit.state.heads import read_head
from ..commit.state.tolerance import or_damage
from ..errors import DamagedError
from ..format.layout import TableRoot, job_in_key
from ..format.records.head import HeadState, Slot
from ..format.records.partition_decision import PartitionDecision
from ..format.schema.lost_records import PAGE
from ..store.requests import All, Step


def heads_put_back(context: Context, decided: Decided) -> Step[dict[str, DamagedError]]:
    """Find the heads of a committed job that were put back: one GET for each partition.

    :param decided: the commit decision, which has to be read before.
    :returns: an error for each, by partition; so do the others here.
    """
    return (yield from _among(context, [(decided, it) for it in decided.decision.partitions]))


def put_back_by_files(
    context: Context, keys: Iterable[str], versions: Mapping[str, int]
) -> Step[dict[str, DamagedError]]:
    """Find heads that were put back, by files that no head names: one GET for the job of each.

    :param keys: keys of such files.
    :param versions: the versions of all heads, which were read after the files were listed.
    """
    of_jobs: dict[str, set[str]] = {}
    for key in keys:
        if (job := job_in_key(key)) is not None:
            of_jobs.setdefault(job, set()).add(context.root.partition_of_data_key(key) or "")
    found = yield from All(tuple(or_damage(read_decision(context, job)) for job in of_jobs))
    suspects = [
        (it, change)
        for it, names in zip(found, of_jobs.values(), strict=True)
        if isinstance(it, Decided) and it.decision.is_commit
        for change in it.decision.partitions
        if change.partition in names and versions.get(change.partition, 0) <= change.base_version
    ]
    return (yield from _among(context, suspects))


def _among(
    context: Context, changes: Sequence[tuple[Decided, PartitionDecision]]
) -> Step[dict[str, DamagedError]]:
    slots = [Slot.partition(context.root, change.partition) for _, change in changes]
    found = yield from All(tuple(or_damage(read_head(context, slot)) for slot in slots))
    return {
        change.partition: _put_back(context.root, state, decided.decision.job, change)
        for state, (decided, change) in zip(found, changes, strict=True)
        if isinstance(state, HeadState) and decided.finds_put_back(state, change)
    }


def _put_back(
    root: TableRoot, state: HeadState, job: str, change: PartitionDecision
) -> DamagedError:
    return DamagedError(
        f"The head of {state.slot.name!r} was put back to a former state: it is at version "
        f"{state.head.version}, and a committed job made version {change.base_version + 1}. What "
        "that job and later ones wrote there is not visible.",
        table=root.url,
        job=job,
        key=state.slot.key,
        remedy="Restore the object's newest version before anybody writes. If there is no newer "
        f"version, load the partition again with mode replace. {PAGE}",
    )
