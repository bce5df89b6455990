"""A table's heads by one listing: what each partition holds, and since when."""

from __future__ import annotations

from collections.abc import Sequence

from zero_rename.committer.format.layout import TableRoot
from zero_rename.committer.format.records.head import HeadState, head_at, partition_of_slot_key
from zero_rename.committer.store.listing import Listing, list_objects
from zero_rename.committer.store.requests import All, Found, Get, ListedObject, Step


def list_heads(root: TableRoot) -> Step[Listing]:
    """The heads of a table's partitions: a request a thousand."""

    def of_partition(item: ListedObject) -> bool:
        return partition_of_slot_key(root, item.key) is not None

    return (yield from list_objects(root.heads_prefix, wanted=of_partition))


def read_heads(root: TableRoot, heads: Sequence[ListedObject]) -> Step[list[HeadState]]:
    """Heads that a listing showed, as they are now: a request each."""
    found = yield from All(tuple(Get(head.key) for head in heads))
    return [head_at(root, it) for it in found if isinstance(it, Found)]
