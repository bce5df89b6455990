"""Scopes: the partitions that a job replaces, reads or touches; some of a table, or all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .partitions import Partition


@dataclass(frozen=True)
class Scope:
    """Some or all partitions of a table.

    :param all: all partitions, also those that do not exist yet.
    """

    partitions: frozenset[Partition] = field(default_factory=frozenset)
    all: bool = False

    def has(self, partition: Partition | None) -> bool:
        """Return whether a partition is in the scope. An unknown one (``None``) may be in any scope
        that is not empty."""
        if self.all or partition is None:
            return self.all or bool(self.partitions)
        return partition in self.partitions

    def meets(self, other: Scope) -> bool:
        if self.all or other.all:
            return bool(self) and bool(other)
        return not self.partitions.isdisjoint(other.partitions)

    def covers(self, other: Scope) -> bool:
        """Return whether all partitions of another scope are in this one."""
        return self.all or (not other.all and other.partitions <= self.partitions)

    def within(self, partitions: frozenset[Partition]) -> Scope:
        """Return the part of the scope that lies in some partitions."""
        return Scope(partitions if self.all else self.partitions & partitions)

    def __bool__(self) -> bool:
        return self.all or bool(self.partitions)

    def as_json(self) -> Any:
        return "all" if self.all else sorted(([*it] for it in self.partitions), key=repr)


NONE = Scope()
ALL = Scope(all=True)


def read_scope(found: Any) -> Scope:
    """Read a scope from a record. An invalid one becomes all partitions: this can cause a conflict,
    but never hide one."""
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
