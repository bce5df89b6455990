"""Checkpoint of a table: jobs copy files that lie only in its fast root into the table itself."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from ..commit.snapshot import Snapshot
from ..errors import InvalidInputError, counted
from ..format.layout import TableRoot, job_began
from ..format.records.data_file import DataFile
from ..store.fast_root import FastRoot, is_fast
from .problem import Problem

#: Seconds after which files that no checkpoint has copied are reported.
_LATE = 24 * 3600.0
#: Bytes of partitions that one job copies, unless a single partition has more. If another job
#: changes one of them meanwhile, all of them are copied again.
_TOGETHER = 256 * 1024 * 1024


class CheckpointOrder(StrEnum):
    """Order in which partitions are copied: those with the oldest or with the newest files first.
    From the newest all others could be computed again (Tachyon's edge, Li et al. 2014)."""

    CREATION = "creation"
    LATEST = "latest"


class CheckpointAction(StrEnum):
    """Outcome for one partition. ``CHANGED_MEANWHILE``: another job changed it, so nothing of it
    was copied; the next checkpoint copies that job's files. ``LOST``: a file is missing."""

    WOULD_COPY = "would copy"
    COPIED = "copied"
    CHANGED_MEANWHILE = "changed meanwhile"
    LOST = "lost"


@dataclass(frozen=True)
class NotDurable:
    """Files of a partition that lie only in a fast root.

    :param files: the number of these files; ``rows`` and ``bytes``: the sums of theirs.
    :param since: when the job of the oldest of them began, by its driver's clock; Unix seconds.
    """

    partition: str
    files: int
    rows: int
    bytes: int
    since: float


@dataclass(frozen=True)
class Checkpointed:
    """Outcome for a partition that had files only in a fast root.

    :param job: the job that copied them.
    """

    partition: str
    action: CheckpointAction
    files: int
    bytes: int
    since: float
    job: str | None = None


@dataclass(frozen=True)
class CheckpointPlan:
    """Partitions that one job copies, and the snapshot that they were found in."""

    snapshot: Snapshot
    lacking: tuple[NotDurable, ...]

    def told(self, action: CheckpointAction, job: str | None = None) -> list[Checkpointed]:
        """Return the outcome of each partition."""
        return [
            Checkpointed(it.partition, action, it.files, it.bytes, it.since, job)
            for it in self.lacking
        ]

    def of(self, partitions: Collection[str]) -> CheckpointPlan:
        """Return the part of the plan that is about these partitions."""
        lacking = tuple(it for it in self.lacking if it.partition in partitions)
        return CheckpointPlan(self.snapshot.of(partitions), lacking)

    @property
    def partitions(self) -> list[str]:
        return [it.partition for it in self.lacking]


def not_durable(files: Iterable[DataFile]) -> list[NotDurable]:
    """Return the files that lie only in fast roots, one item for each partition that has any."""
    found: dict[str, list[DataFile]] = {}
    for file in files:
        if is_fast(file.key):
            found.setdefault(file.partition, []).append(file)
    return [
        NotDurable(
            name,
            len(its),
            sum(file.rows for file in its),
            sum(file.size for file in its),
            min(job_began(file.job) for file in its),
        )
        for name, its in sorted(found.items())
    ]


def late_files(root: TableRoot, state: Snapshot, now: float) -> list[Problem]:
    """Report the files of a state that have lain only in a fast root for a day or longer."""
    found = not_durable(state.files)
    late = [it for it in found if now - it.since >= _LATE]
    if not late:
        return []
    oldest = min(late, key=lambda it: it.since)
    hours = (now - oldest.since) / 3600
    return [
        Problem(
            "not durable",
            oldest.partition,
            f"{counted(len(late), 'partition has', 'partitions have')} files that have lain only "
            f"in a fast root for a day or longer, this one for {hours:.0f} h.",
            f"Copy them: zero-rename checkpoint {root.url} --apply",
        )
    ]


@dataclass(frozen=True)
class DataRootChange:
    """A change of a table's data root, where files are written first; ``None``: in the table.

    :param not_durable: the files in fast roots that heads name at the time of the change. They
        stay there, under their own keys, until they are replaced or copied.
    """

    before: FastRoot | None
    after: FastRoot | None
    not_durable: tuple[NotDurable, ...]


def refuse_temporary(root: TableRoot, data_root: FastRoot | None) -> None:
    """Refuse a checkpoint if the data root is temporary: its files need never become durable.

    :raises InvalidInputError: the data root is temporary.
    """
    if data_root is not None and data_root.temporary:
        raise InvalidInputError(
            "The table's data root is temporary: it need never become durable. Nothing was done.",
            remedy=f"Give it another: zero-rename data-root {root.url} '{data_root.place}' --apply",
        )


def plan_checkpoint(state: Snapshot, order: CheckpointOrder) -> list[CheckpointPlan]:
    """Return the partitions with files in a fast root, in portions for one job each.

    A portion has partitions with files of the same jobs, since these have the same inputs and the
    same time. The portions are in the order that ``order`` names."""
    files = state.by_partition()
    groups: dict[frozenset[str], list[NotDurable]] = {}
    for it in not_durable(state.files):
        groups.setdefault(frozenset(file.job for file in files[it.partition]), []).append(it)
    if order is CheckpointOrder.CREATION:
        ordered = sorted(groups.items(), key=lambda group: min(group[0]))
    else:
        ordered = sorted(groups.items(), key=lambda group: max(group[0]), reverse=True)
    return [
        CheckpointPlan(state.of({it.partition for it in some}), some)
        for _, group in ordered
        for some in _portions(group)
    ]


def _portions(group: Iterable[NotDurable]) -> Iterator[tuple[NotDurable, ...]]:
    """Split partitions into portions that one job each can copy."""
    some: list[NotDurable] = []
    held = 0
    for it in group:
        if some and held + it.bytes > _TOGETHER:
            yield tuple(some)
            some, held = [], 0
        some.append(it)
        held += it.bytes
    yield tuple(some)
