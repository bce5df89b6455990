"""Scopes: the partitions that a job replaces, reads or touches; some, or all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .partitions import Partition


@dataclass(frozen=True)
class Scope:
    """Partitions of a table.

    :param all: all, also those that nobody knows yet.
    """

    partitions: frozenset[Partition] = field(default_factory=frozenset)
    all: bool = False

    def has(self, partition: Partition | None) -> bool:
        """Whether a partition is in the scope; one that is not known (``None``) may be in any."""
        if self.all or partition is None:
            return self.all or bool(self.partitions)
        return partition in self.partitions

    def meets(self, other: Scope) -> bool:
        if self.all or other.all:
            return bool(self) and bool(other)
        return not self.partitions.isdisjoint(other.partitions)

    def within(self, partitions: frozenset[Partition]) -> Scope:
        """The scope's part among some partitions."""
        return Scope(partitions if self.all else self.partitions & partitions)

    def __bool__(self) -> bool:
        return self.all or bool(self.partitions)

    def as_json(self) -> Any:
        return "all" if self.all else sorted(([*it] for it in self.partitions), key=repr)


NONE = Scope()
ALL = Scope(all=True)


def read_scope(found: Any) -> Scope:
    """The scope in a record; all where it is not understood: that makes a conflict, never none."""
    if not isinstance(found, list):
        return NONE if found is None else ALL
    try:
        return Scope(frozenset(tuple(map(_text_or_null, row)) for row in found))
    except TypeError:
        return ALL


def _text_or_null(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError
    return value
