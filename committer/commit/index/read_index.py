"""Reading of the index, which saves reading many heads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...errors import DamagedError
from ...format.layout import TableRoot
from ...format.records.codec import decode, encode
from ...format.records.marks import Count
from ...store.listing import list_objects
from ...store.requests import LIST_BYTES, Absent, All, Get, Step
from ..state.context import Context
from ..state.heads import ListedHead
from ..state.old_records import OldRecord, aged
from ..state.tolerance import or_damage
from .indexed_partition import IndexedPartition, decode_part


@dataclass(frozen=True)
class IndexPart:
    """One object of the index.

    :param first: the first of its partitions, in order of their names; ``last``: the last.
    :param rows: how many rows it has.
    """

    key: str
    first: str
    last: str
    rows: Count


@dataclass(frozen=True)
class TableIndex:
    """Record of the index: its objects, in the order of the partitions."""

    write_id: str
    parts: tuple[IndexPart, ...]

    def encode(self) -> bytes:
        return encode("index", self.write_id, self)

    @staticmethod
    def decode(body: bytes, root: TableRoot) -> TableIndex:
        """Read the record.

        :raises RecordDamagedError: it is not a record of this table's index.
        """
        document = decode(body, "index", root.index_key)
        index = document.read(TableIndex)
        for number, part in enumerate(index.parts):
            if not part.key.startswith(root.index_parts_prefix):
                raise document.damaged(f"parts[{number}].key", "is no part of this table's index")
        return index


@dataclass(frozen=True)
class FoundIndex:
    """Index as it was read, without its damaged or missing parts.

    :param etag: of its record; ``None``: there is none.
    :param parts: its objects, with the partitions in each.
    """

    etag: str | None
    parts: Mapping[IndexPart, tuple[IndexedPartition, ...]]

    @property
    def entries(self) -> dict[str, IndexedPartition]:
        """All entries of the index, by partition."""
        return {it.name: it for partitions in self.parts.values() for it in partitions}


def read_index(context: Context, wanted: Iterable[str] | None = None) -> Step[FoundIndex]:
    """Read the index, or only its parts about some partitions: one request, and one for each part.

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
    """Read the index's record: its ETag, and the objects it names; none if it is damaged."""
    found = yield from Get(context.root.index_key, most=LIST_BYTES)
    if isinstance(found, Absent):
        return None, ()
    try:
        return found.etag, TableIndex.decode(found.body, context.root).parts
    except DamagedError:
        return found.etag, ()


def _read_part(context: Context, part: IndexPart) -> Step[tuple[IndexedPartition, ...]]:
    """Read one object of the index; empty if another index has replaced it meanwhile."""
    found = yield from Get(part.key, most=LIST_BYTES)
    if isinstance(found, Absent):
        return ()
    return tuple(decode_part(found.body, part.key, context.root, part.rows))


def still_true(
    entries: Mapping[str, IndexedPartition], heads: Mapping[str, ListedHead]
) -> dict[str, IndexedPartition]:
    """Return the index's entries whose heads have not changed since, by partition."""
    return {n: it for n, it in entries.items() if n in heads and heads[n].etag == it.etag}


def find_old_parts(context: Context, kept_for: float) -> Step[list[OldRecord]]:
    """Find objects of a certain age that the index does not name. Changes nothing.

    The process that wrote them died, or another process wrote the index meanwhile.

    :param kept_for: seconds, by the store's clock.
    """
    listing = yield from list_objects(context.root.index_parts_prefix)
    if not listing.objects:
        return []
    _, parts = yield from read_record(context)
    named = {part.key for part in parts}
    unnamed = [item for item in listing.objects if item.key not in named]
    return aged("of a former index", unnamed, listing.date, kept_for)
