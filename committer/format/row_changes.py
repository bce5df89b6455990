"""Changes of rows by a job that computes what a partition is to hold from what it held."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass


@dataclass(frozen=True)
class RowChanges:
    """How many rows a merge, an update or a deletion put in, changed, took away and left as they
    were. A row that moves to another partition is updated where it comes, and counts nowhere else.
    """

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    unchanged: int = 0

    @staticmethod
    def sum(parts: Iterable[RowChanges]) -> RowChanges:
        """Of several partitions."""
        return RowChanges(*map(sum, zip(*map(astuple, parts), strict=True)))

    @staticmethod
    def told(parts: Iterable[RowChanges | None], reads: ChangeReads | None) -> RowChanges | None:
        """Of all partitions that a job read; ``None`` where it was no change of rows.

        :param parts: what it did to those that it changed.
        """
        known = [it for it in parts if it is not None]
        if reads is not None:
            known.append(RowChanges(unchanged=reads.rows_left))
        return RowChanges.sum(known) if known else None

    @property
    def after(self) -> int:
        """Rows that are there afterwards."""
        return self.inserted + self.updated + self.unchanged


@dataclass(frozen=True)
class ChangeReads:
    """What the rows of a merge, an update or a deletion were computed from, besides the partitions
    that it changed: these say of themselves what became of their rows.

    :param partitions_left: partitions that were read and are as they were; ``rows_left``: the rows
        in them.
    :param bytes_read: of the files of all partitions that were read.
    """

    partitions_left: int
    rows_left: int
    bytes_read: int
