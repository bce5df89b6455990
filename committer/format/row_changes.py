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

    @property
    def after(self) -> int:
        """Rows that are there afterwards."""
        return self.inserted + self.updated + self.unchanged
