"""Lost heads: partitions whose head is gone, which other records know, and files tell.

A head is never deleted, and a job has claimed each of its heads before it decides. So whoever
names a partition that a job has changed names one that has a head; where a listing made after
that shows none, it is lost, and what the partition holds must not be taken for nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...errors import DamagedError
from ...format.layout import TableRoot, job_in_key
from ...format.records.data_file import DataFile
from ...format.records.head import HeadState, Slot
from ...format.records.success_marker import SuccessMarker
from ...format.schema.directory import is_data_file
from ...format.schema.lost_records import PAGE, head_lost, named_by, records_lost
from ...store.requests import Absent, All, Found, ListedObject, Step
from ..state.context import Context
from ..state.data_listing import foreign_file
from ..state.decide import read_decision
from ..state.heads import head_moved, read_head
from ..state.tolerance import or_damage
from .indexed_partition import IndexedPartition


@dataclass(frozen=True)
class KnownVersion:
    """A version that a partition had, as a record says.

    :param by: how the record is called.
    """

    partition: str
    version: int
    by: str


def known_by_index(entries: Iterable[IndexedPartition]) -> list[KnownVersion]:
    """What the index knows."""
    return [KnownVersion(it.name, it.version, "the table's index") for it in entries]


def find_lost_heads(
    root: TableRoot,
    known: Iterable[KnownVersion],
    heads: Collection[str],
    states: Iterable[HeadState],
) -> dict[str, DamagedError]:
    """The partitions of which records say more than their heads do, and why they are damaged.

    :param known: what records said that were read before the heads were listed, or that were
        decided before some head was read that is listed still.
    :param heads: the partitions whose heads are listed; ``states``: those of them that were read.
    """
    by_name = {state.slot.name: state for state in states}
    lost: dict[str, DamagedError] = {}
    for it in known:
        if it.version <= 0:
            continue  # Claimed and given back; or of a table of coordination *none*.
        if it.partition not in heads:
            lost[it.partition] = head_lost(root, it.partition, it.by)
        elif (state := by_name.get(it.partition)) is not None and was_made_anew(state, it.version):
            lost[it.partition] = _head_made_anew(root, state, it)
    return lost


def was_made_anew(state: HeadState, version: int) -> bool:
    """Whether a head was lost and another one made in its place, which begins at 0. What has been
    replaced since holds what it should."""
    return state.head.version < version and not state.head.replace_version


def _head_made_anew(root: TableRoot, state: HeadState, known: KnownVersion) -> DamagedError:
    if not state.head.version:
        return head_lost(root, state.slot.name, known.by)
    return DamagedError(
        f"The head of {state.slot.name!r} was lost and made anew: it is at version "
        f"{state.head.version}, and {known.by} names version {known.version}. What the partition "
        "held before is not in it.",
        key=state.slot.key,
        remedy="Restore the object from a version or backup, or load the partition again with "
        f"mode replace. {PAGE}",
    )


def foreign_files(
    context: Context, partition: str, items: Iterable[ListedObject]
) -> Step[tuple[ListedObject, ...]]:
    """What others left in a partition whose head has never moved: files with rows that no job of
    this package wrote. Those of a job that has a decision here about other partitions do not
    count: a job's files count by the heads alone.

    :param items: what was listed there, before its head was read.
    :raises DamagedError: a job has changed the partition, so its head is lost; or no record is
        here of a file's job.
    """
    items = [item for item in items if is_data_file(item)]
    jobs = sorted({job for item in items if (job := job_in_key(item.key)) is not None})
    found = yield from All(tuple(read_decision(context, job) for job in jobs))
    decisions = dict(zip(jobs, found, strict=True))
    for item in items:
        job = job_in_key(item.key)
        if job is None:
            continue
        decided = decisions[job]
        if decided is None:
            raise records_lost(context.root, item.key)
        if partition in decided.changes:
            raise head_lost(context.root, partition, named_by(context.root, job))
    return tuple(item for item in items if job_in_key(item.key) is None)


def files_without_heads(
    context: Context, listed: Mapping[str, Sequence[ListedObject]]
) -> Step[tuple[dict[str, tuple[DataFile, ...]], dict[str, DamagedError]]]:
    """The files that partitions hold whose heads have never moved, and why others have lost theirs.

    :param listed: the data files of such partitions. Files of before count only where they were
        listed *before* the heads were: a head that has not moved afterwards had not moved then,
        and nothing of a job of this package lay there.
    """
    found = yield from All(
        tuple(or_damage(foreign_files(context, name, items)) for name, items in listed.items())
    )
    files: dict[str, tuple[DataFile, ...]] = {}
    lost: dict[str, DamagedError] = {}
    for name, of_it in zip(listed, found, strict=True):
        if isinstance(of_it, DamagedError):
            lost[name] = yield from _unless_moved(context, name, listed[name], of_it)
        elif listed[name]:
            files[name] = tuple(foreign_file(name, item) for item in of_it)
    return files, lost


def _unless_moved(
    context: Context, partition: str, items: Iterable[ListedObject], damage: DamagedError
) -> Step[DamagedError]:
    """What is said of a partition without a head that has files of jobs: no damage where one of
    them is about to move it, or has since."""
    state = yield from or_damage(read_head(context, Slot.partition(context.root, partition)))
    if isinstance(state, DamagedError):
        return state
    wrote = {job_in_key(item.key) for item in items} - {None}
    if not state.head.version and state.head.claim not in wrote:
        return damage
    return head_moved(state.slot)


def known_by_marker(root: TableRoot, found: Found | Absent) -> tuple[str, list[KnownVersion]]:
    """The job that a marker stands for, and what it says; ``""`` where it is no marker of this
    table's. It may be left of another table that was here, of which no decision is."""
    parsed = None if isinstance(found, Absent) else SuccessMarker.parse_or_none(found.body)
    said = None if parsed is None else parsed.manifest
    if isinstance(found, Absent) or said is None or said.decision != root.decision_key(said.job):
        return "", []
    by = f"the marker {found.key}"
    return said.job, [KnownVersion(name, version, by) for name, version in said.versions.items()]
