"""Checkpoint: files that lie only in a table's fast root are copied into it, by plain jobs."""

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

#: Seconds after which what no checkpoint has copied is worth a word.
_LATE = 24 * 3600.0
#: Bytes of partitions that one job copies, unless one alone has more: what is copied again where
#: another job changes one of them meanwhile.
_TOGETHER = 256 * 1024 * 1024


class CheckpointOrder(StrEnum):
    """Which partitions are copied first: those whose files are the oldest, or the newest, from
    which all others could be made again (Tachyon's edge, Li et al. 2014)."""

    CREATION = "creation"
    LATEST = "latest"


class CheckpointAction(StrEnum):
    """What became of a partition. Changed meanwhile: another job did, whose files the next
    checkpoint copies; nothing of it was touched. Lost: a file is not there any more."""

    WOULD_COPY = "would copy"
    COPIED = "copied"
    CHANGED_MEANWHILE = "changed meanwhile"
    LOST = "lost"


@dataclass(frozen=True)
class NotDurable:
    """What of a partition lies only in a fast root.

    :param files: how many of its files; so too ``rows`` and ``bytes``.
    :param since: when the job of the oldest of them began, by its driver's clock; seconds since
        the epoch.
    """

    partition: str
    files: int
    rows: int
    bytes: int
    since: float


@dataclass(frozen=True)
class Checkpointed:
    """What became of a partition of which some files lay only in a fast root.

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
    """Partitions to be copied together, and the state that they were found in."""

    snapshot: Snapshot
    lacking: tuple[NotDurable, ...]

    def told(self, action: CheckpointAction, job: str | None = None) -> list[Checkpointed]:
        """What became of them."""
        return [
            Checkpointed(it.partition, action, it.files, it.bytes, it.since, job)
            for it in self.lacking
        ]

    def of(self, partitions: Collection[str]) -> CheckpointPlan:
        """As much of it as is about these."""
        lacking = tuple(it for it in self.lacking if it.partition in partitions)
        return CheckpointPlan(self.snapshot.of(partitions), lacking)

    @property
    def partitions(self) -> list[str]:
        return [it.partition for it in self.lacking]


def not_durable(files: Iterable[DataFile]) -> list[NotDurable]:
    """What lies only in fast roots, by partition; those partitions that have none are left out."""
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
    """A change of where a table's files lie first; ``None``: in the table.

    :param not_durable: what heads name in fast roots as it is made. It stays there, named by its
        own keys, until it is replaced or copied.
    """

    before: FastRoot | None
    after: FastRoot | None
    not_durable: tuple[NotDurable, ...]


def refuse_temporary(root: TableRoot, data_root: FastRoot | None) -> None:
    """Refuse to copy what need never become durable.

    :raises InvalidInputError: the data root is temporary.
    """
    if data_root is not None and data_root.temporary:
        raise InvalidInputError(
            "The table's data root is temporary: it need never become durable. Nothing was done.",
            remedy=f"Give it another: zero-rename data-root {root.url} '{data_root.place}' --apply",
        )


def plan_checkpoint(state: Snapshot, order: CheckpointOrder) -> list[CheckpointPlan]:
    """The partitions of a state that lie in a fast root, in an order: of those that hold files of
    the same jobs several together, since what they were computed from and when is the same."""
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
    """What goes into a job each."""
    some: list[NotDurable] = []
    held = 0
    for it in group:
        if some and held + it.bytes > _TOGETHER:
            yield tuple(some)
            some, held = [], 0
        some.append(it)
        held += it.bytes
    yield tuple(some)
