"""Lost heads: missing heads that existed once, as other records or files show.

A head is never deleted, and a job has claimed each of its heads before it decides. So if a record
names a partition that a job has changed, that partition has a head. If a listing made after that
shows no head, the head is lost, and the partition must not be taken for an empty one.
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
    """Version that a partition had, according to a record.

    :param by: the record's name for messages.
    """

    partition: str
    version: int
    by: str


def known_by_index(entries: Iterable[IndexedPartition]) -> list[KnownVersion]:
    """Return the versions of partitions that the index knows."""
    return [KnownVersion(it.name, it.version, "the table's index") for it in entries]


def find_lost_heads(
    root: TableRoot,
    known: Iterable[KnownVersion],
    heads: Collection[str],
    states: Iterable[HeadState],
) -> dict[str, DamagedError]:
    """Find partitions for which records know more than their heads; return an error for each.

    :param known: versions from records that were read before the heads were listed; or from
        decisions made before some head was read that is still listed.
    :param heads: the partitions whose heads are listed; ``states``: those of them that were read.
    """
    by_name = {state.slot.name: state for state in states}
    lost: dict[str, DamagedError] = {}
    for it in known:
        if it.version <= 0:
            continue  # The claim was released; or the table has coordination *none*.
        if it.partition not in heads:
            lost[it.partition] = head_lost(root, it.partition, it.by)
        elif (state := by_name.get(it.partition)) is not None and was_made_anew(state, it.version):
            lost[it.partition] = _head_made_anew(root, state, it)
    return lost


def was_made_anew(state: HeadState, version: int) -> bool:
    """Return whether a head was lost and another one, which begins at version 0, is in its place.

    If the partition has been replaced since, it holds what it should, so its head does not count.
    """
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
    """Return the files of other programs in a partition whose head has never moved.

    These are files with rows that no job of this package wrote. Files of a job with a decision
    about other partitions are left out: a job's files count only by the heads.

    :param items: what was listed there, before its head was read.
    :raises DamagedError: a job has changed the partition, so its head is lost; or there is no
        record of a file's job.
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
    """Return the files of partitions whose heads never moved; find lost heads among them.

    :param listed: the data files of such partitions. Files from before the table count only if they
        were listed *before* the heads were. A head that has not moved afterwards had not moved
        then, so no file of a job of this package lay there.
    :returns: the files by partition; an error for each partition whose head is lost.
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
    """Return the error for a partition without a head that has files of jobs.

    It is no damage if one of these jobs is about to move the head, or has moved it since.
    """
    state = yield from or_damage(read_head(context, Slot.partition(context.root, partition)))
    if isinstance(state, DamagedError):
        return state
    wrote = {job_in_key(item.key) for item in items} - {None}
    if not state.head.version and state.head.claim not in wrote:
        return damage
    return head_moved(state.slot)


def known_by_marker(root: TableRoot, found: Found | Absent) -> tuple[str, list[KnownVersion]]:
    """Return a marker's job, and the versions that it names; ``""`` if it is not this table's.

    A marker may be left of another table that was here before and whose decisions are not here.
    """
    parsed = None if isinstance(found, Absent) else SuccessMarker.parse_or_none(found.body)
    said = None if parsed is None else parsed.manifest
    if isinstance(found, Absent) or said is None or said.decision != root.decision_key(said.job):
        return "", []
    by = f"the marker {found.key}"
    return said.job, [KnownVersion(name, version, by) for name, version in said.versions.items()]
