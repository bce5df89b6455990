"""Changes of rows: counts of a merge, an update or a deletion."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass


@dataclass(frozen=True)
class RowChanges:
    """Numbers of rows that a merge, an update or a deletion inserted, updated, deleted and left.

    A row that moves to another partition counts once: as updated, in the partition that it moves
    to.
    """

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    unchanged: int = 0

    @staticmethod
    def sum(parts: Iterable[RowChanges]) -> RowChanges:
        """Add up the changes of several partitions."""
        counts: Iterable[tuple[int, ...]] = zip(*map(astuple, parts), strict=True)
        return RowChanges(*(sum(count) for count in counts))

    @staticmethod
    def told(parts: Iterable[RowChanges | None], reads: ChangeReads | None) -> RowChanges | None:
        """Add up a job's changes of rows; ``None``: it is not a merge, an update or a deletion.

        :param parts: the changes of each partition that it changed, if they are known.
        :param reads: what else it read; those rows count as unchanged.
        """
        known = [it for it in parts if it is not None]
        if reads is not None:
            known.append(RowChanges(unchanged=reads.rows_left))
        return RowChanges.sum(known) if known else None

    @property
    def after(self) -> int:
        """Number of rows that are there afterwards."""
        return self.inserted + self.updated + self.unchanged


@dataclass(frozen=True)
class ChangeReads:
    """Totals of what a merge, an update or a deletion read and did not change.

    The partitions that it changed have their own :class:`RowChanges`.

    :param partitions_left: the number of partitions that were read and not changed; ``rows_left``:
        the number of rows in them.
    :param bytes_read: the bytes in the files of all partitions that were read, changed or not.
    """

    partitions_left: int
    rows_left: int
    bytes_read: int
