"""Old records: objects of jobs below ``_zero_rename/`` that no process reads any more.

A failure is read by the process that submitted the application, an object of a probe by the probe.
A manifest is read while a head names it, or may come to name it, and by readers that had read the
head before. A reader that finds a manifest missing reads the head again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...errors import DamagedError
from ...format.records.head import HeadState
from ...format.records.manifest import ManifestOrigin
from ...format.records.narrowing import recompute_prefix
from ...store.listing import Listing, list_objects
from ...store.requests import LIST_BYTES, All, Found, Get, ListedObject, Step
from .context import Context
from .heads import ListedHead, list_heads, read_head
from .tolerance import or_damage

_DAY = 24 * 3600.0
#: Seconds for which records are kept that are no longer needed.
KEPT_FOR = 7 * _DAY
#: Seconds within which a reader of a head reads the manifest that the head names.
_READING = 600.0


@dataclass(frozen=True)
class OldRecord:
    """Record to be removed; ``reason`` says why."""

    item: ListedObject
    reason: str


@dataclass(frozen=True)
class ReadHeads:
    """The heads of all partitions, as they were listed and then read, by partition."""

    listed: Mapping[str, ListedHead]
    states: Mapping[str, HeadState]
    damaged: Mapping[str, DamagedError]


def read_heads(context: Context) -> Step[ReadHeads]:
    """Read the heads of all partitions: one GET each."""
    listed = yield from list_heads(context)
    found = yield from All(tuple(or_damage(read_head(context, it.slot)) for it in listed.values()))
    by_name = dict(zip(listed, found, strict=True))
    return ReadHeads(
        listed,
        {name: it for name, it in by_name.items() if isinstance(it, HeadState)},
        {name: it for name, it in by_name.items() if isinstance(it, DamagedError)},
    )


def find_old_records(context: Context, kept_for: float) -> Step[list[OldRecord]]:
    """Find failures, inputs and probe objects of a certain age, and manifests that no head names.

    Changes nothing.

    :param kept_for: seconds, by the store's clock.
    """
    aged, manifests = yield from All(
        (find_aged(context, kept_for), list_objects(context.root.manifests_prefix))
    )
    if not manifests.objects:
        return aged
    heads = yield from read_heads(context)
    return aged + (yield from free_manifests(manifests, heads, kept_for))


def find_aged(context: Context, kept_for: float) -> Step[list[OldRecord]]:
    """Find old failures and inputs of runs, records of plans, and probe objects, by their age.

    A plan's record may wait for its clear, and for more attempts after that: without the record
    such an attempt loads all of its run. So it is kept longer than records that are no longer used.
    """
    root = context.root
    kinds = {
        "a run's failure": (root.failures_prefix, kept_for),
        "a run's inputs": (root.inputs_prefix, kept_for),
        "a plan's word to a run": (recompute_prefix(root), max(kept_for, KEPT_FOR)),
        "left by a probe": (root.probe_key(""), kept_for),
    }
    listed = yield from All(tuple(list_objects(prefix) for prefix, _ in kinds.values()))
    return [
        it
        for (what, (_, seconds)), listing in zip(kinds.items(), listed, strict=True)
        for it in aged(what, listing.objects, listing.date, seconds)
    ]


def aged(what: str, items: Iterable[ListedObject], now: float, kept_for: float) -> list[OldRecord]:
    """Return the objects that are older than ``kept_for`` seconds, as records to remove."""
    return [
        OldRecord(item, f"{what}, {(now - item.last_modified) / _DAY:.0f} days old")
        for item in items
        if item.last_modified < now - kept_for
    ]


def free_manifests(manifests: Listing, heads: ReadHeads, kept_for: float) -> Step[list[OldRecord]]:
    """Find manifests that no head names or can come to name.

    :param manifests: as they were listed *before* the heads were read. A manifest that was written
        for the state in which a head was found may still be named, at any age: the swap may be on
        its way. That state never comes back, so a manifest for any other state is free for good.
    :param kept_for: seconds; a reader of a head gets at most so long to read the manifest that the
        head names.
    """
    grace = min(kept_for, _READING)
    named = {it.key for state in heads.states.values() for it in state.head.manifests}
    unnamed = [
        item
        for item in manifests.objects
        if item.key not in named and item.last_modified < manifests.date - grace
    ]
    bodies = yield from All(tuple(Get(item.key, most=LIST_BYTES) for item in unnamed))
    written = {item.key: item.last_modified for item in manifests.objects}
    return [
        OldRecord(item, "a list of files that no head names")
        for item, body in zip(unnamed, bodies, strict=True)
        if isinstance(body, Found) and _is_free(body, item, heads, written, manifests.date - grace)
    ]


def _is_free(
    body: Found, item: ListedObject, heads: ReadHeads, written: Mapping[str, float], before: float
) -> bool:
    try:
        origin = ManifestOrigin.decode(body.body, body.key)
    except DamagedError:
        return False
    state = heads.states.get(origin.partition)
    if state is None or not state.head.version or _may_be_named(origin, state):
        return False
    # The manifest was superseded when the head moved last, or before; and when the head's newest
    # manifest was written.
    moved = heads.listed[origin.partition].last_modified
    folded = max((written.get(it.key, moved) for it in state.head.manifests), default=moved)
    return min(moved, folded) < before or item.last_modified < before - _DAY


def _may_be_named(origin: ManifestOrigin, state: HeadState) -> bool:
    """Return whether a swap to a head that names the manifest may be under way."""
    if origin.follows is None:  # Former versions wrote them while they held the claim.
        return state.head.claim is not None
    return origin.follows == state.etag


def sizes(records: Sequence[OldRecord]) -> int:
    """Return the size of all records together, in bytes."""
    return sum(it.item.size for it in records)
