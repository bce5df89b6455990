"""Reading the index: what need not be read of many heads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...errors import DamagedError
from ...store.requests import LIST_BYTES, Absent, All, Get, Step
from ..state.context import Context
from ..state.heads import ListedHead
from ..state.tolerance import or_damage
from .indexed_partition import IndexedPartition, decode_part
from .table_index import IndexPart, TableIndex


@dataclass(frozen=True)
class FoundIndex:
    """An index as it was read; what of it is damaged or gone is left out.

    :param etag: of its record; ``None``: there is none.
    :param parts: its objects, with the partitions in each.
    """

    etag: str | None
    parts: Mapping[IndexPart, tuple[IndexedPartition, ...]]

    @property
    def entries(self) -> dict[str, IndexedPartition]:
        """All that it says, by partition."""
        return {it.name: it for partitions in self.parts.values() for it in partitions}


def read_index(context: Context, wanted: Iterable[str] | None = None) -> Step[FoundIndex]:
    """Read the index, as far as it is about some partitions: one request, and one a part.

    :param wanted: names of partitions; ``None`` for all.
    """
    etag, parts = yield from read_record(context)
    if wanted is not None:
        names = sorted(wanted)
        parts = tuple(part for part in parts if any(part.first <= n <= part.last for n in names))
    read = yield from All(tuple(or_damage(_read_part(context, part)) for part in parts))
    whole = {
        part: partitions
        for part, partitions in zip(parts, read, strict=True)
        if not isinstance(partitions, DamagedError)
    }
    return FoundIndex(etag, whole)


def read_record(context: Context) -> Step[tuple[str | None, tuple[IndexPart, ...]]]:
    """The ETag of the index's record, and the objects it names: none where it is damaged."""
    found = yield from Get(context.root.index_key, most=LIST_BYTES)
    if isinstance(found, Absent):
        return None, ()
    try:
        return found.etag, TableIndex.decode(found.body, context.root).parts
    except DamagedError:
        return found.etag, ()


def _read_part(context: Context, part: IndexPart) -> Step[tuple[IndexedPartition, ...]]:
    """None where another index has taken the place of this one meanwhile."""
    found = yield from Get(part.key, most=LIST_BYTES)
    if isinstance(found, Absent):
        return ()
    return tuple(decode_part(found.body, part.key, context.root, part.rows))


def still_true(
    entries: Mapping[str, IndexedPartition], heads: Mapping[str, ListedHead]
) -> dict[str, IndexedPartition]:
    """What the index says of heads that have not changed since, by partition."""
    return {n: it for n, it in entries.items() if n in heads and heads[n].etag == it.etag}
