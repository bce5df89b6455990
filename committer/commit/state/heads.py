"""Heads of partitions and runs: reading, listing and swapping them."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import DamagedError, HeadMovedError
from ...format.records.head import HeadState, PartitionHead, Slot, head_at, partition_of_slot_key
from ...store.conditional_put import NotWritten, Uncertain, Written, put_record
from ...store.listing import list_objects
from ...store.requests import Absent, All, Found, Get, ListedObject, Put, Step
from .context import Context
from .tolerance import or_damage


def read_head(context: Context, slot: Slot) -> Step[HeadState]:
    """Read a slot's head as it is now; version 0 if there is none."""
    found = yield from Get(slot.key)
    return head_state(context, slot, found)


def head_state(context: Context, slot: Slot, found) -> HeadState:
    if isinstance(found, Absent):
        return HeadState(slot, PartitionHead.initial(slot), None)
    head = PartitionHead.decode(found.body, slot, context.root)
    return HeadState(slot, head, found.etag)


def swap_head(state: HeadState, new: PartitionHead) -> Step[HeadState | NotWritten | Uncertain]:
    """Write ``new`` over the head that was read as ``state``, if it is still there.

    :returns: the new state, if it was written.
    """
    put = Put(state.slot.key, new.encode(), if_none_match=state.etag is None, if_match=state.etag)
    outcome = yield from put_record(put, new.write_id)
    if isinstance(outcome, Written):
        return HeadState(state.slot, new, outcome.etag)
    return outcome


def release_claim(context: Context, slot: Slot, job: str, holder: str | None = None) -> Step[None]:
    """Remove ``job``'s claim from a head, if it is there.

    If the store does not say whether the claim was removed, that is not reported.

    :param holder: only the claim of this process; ``None``: any process's, once the job is decided.
    """
    while True:
        state = yield from read_head(context, slot)
        if state.head.claim != job or state.etag is None:
            return
        if holder is not None and state.head.holder != holder:
            return
        released = state.head.released(context.write_id(), state.etag)
        if not isinstance((yield from swap_head(state, released)), NotWritten):
            return


def head_moved(slot: Slot) -> HeadMovedError:
    return HeadMovedError(
        f"The head of {slot.name!r} has moved since it was read, and names something else now.",
        key=slot.key,
        remedy="Read it again.",
    )


@dataclass(frozen=True)
class ListedHead:
    """Head as a listing shows it."""

    slot: Slot
    etag: str
    last_modified: float


@dataclass(frozen=True)
class HeadListing:
    """All heads of partitions as a listing shows them, by partition, and the index's record.

    :param since: the time when the listing's first page was made, by the store's clock.
    """

    heads: dict[str, ListedHead]
    index: ListedObject | None
    since: float


def list_heads_and_index(context: Context) -> Step[HeadListing]:
    """List the heads of all partitions, and the index beside them: one request per thousand."""
    listing = yield from list_objects(context.root.heads_prefix)
    heads: dict[str, ListedHead] = {}
    index = None
    for item in listing.objects:
        name = partition_of_slot_key(context.root, item.key)
        if name is not None:
            slot = Slot.partition(context.root, name)
            heads[name] = ListedHead(slot, item.etag, item.last_modified)
        elif item.key == context.root.index_key:
            index = item
    return HeadListing(heads, index, listing.since)


def list_heads(context: Context) -> Step[dict[str, ListedHead]]:
    """List the heads of all partitions, by partition name: one request per thousand."""
    listing = yield from list_heads_and_index(context)
    return listing.heads


def all_heads(context: Context) -> Step[list[HeadState | DamagedError]]:
    """Read the heads of all partitions and of all runs: one GET each."""
    partitions = yield from list_heads(context)
    runs = yield from list_objects(context.root.runs_prefix)
    keys = (*(listed.slot.key for listed in partitions.values()), *runs.keys)
    found = yield from All(tuple(or_damage(_head_at(context, key)) for key in keys))
    return [state for state in found if state is not None]


def _head_at(context: Context, key: str) -> Step[HeadState | None]:
    found = yield from Get(key)
    return head_at(context.root, found) if isinstance(found, Found) else None
