"""Old records: what jobs left below ``_zero_rename/`` and nobody reads any more.

Heads, decisions and ``once`` heads stay for good. A manifest is read while a head names it, and
for a moment after that by readers who had read the head before; a failure by whoever submitted the
application; an object of a probe by the probe.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..errors import DamagedError
from ..records.head import HeadState
from ..records.manifest import partition_of_manifest
from ..s3.listing import list_objects
from ..s3.requests import LIST_BYTES, All, Found, Get, ListedObject, Step
from .context import Context
from .heads import all_heads, list_heads

#: Seconds for which records are kept that nobody needs any more.
KEPT_FOR = 7 * 24 * 3600.0
_DAY = 24 * 3600.0
#: Seconds within which a reader who has read a head reads the manifest that it names.
_READING = 600.0


@dataclass(frozen=True)
class OldRecord:
    """A record that is to go; ``reason`` says why."""

    item: ListedObject
    reason: str


def find_old_records(context: Context, kept_for: float) -> Step[list[OldRecord]]:
    """Failures, manifests that no head names, and objects of probes, of a certain age. Changes
    nothing.

    :param kept_for: seconds, by the store's clock.
    """
    root = context.root
    failures, probes, manifests = yield All(
        (
            list_objects(root.failures_prefix),
            list_objects(root.probe_key("")),
            list_objects(root.manifests_prefix),
        )
    )
    now = failures.date
    free = yield from _free_manifests(context, manifests.objects, now, kept_for)
    groups = (
        ("a run's failure", failures.objects),
        ("left by a probe", probes.objects),
        ("a list of files that no head names", free),
    )
    return [it for what, items in groups for it in aged(what, items, now, kept_for)]


def aged(what: str, items: Iterable[ListedObject], now: float, kept_for: float) -> list[OldRecord]:
    """Those that are to go, by their age."""
    return [
        OldRecord(item, f"{what}, {(now - item.last_modified) / _DAY:.0f} days old")
        for item in items
        if item.last_modified < now - kept_for
    ]


def _free_manifests(
    context: Context, manifests: Sequence[ListedObject], now: float, kept_for: float
) -> Step[list[ListedObject]]:
    """Those that no head names, nor has named for as long as a reader may take to read one.

    They were listed before the heads are read: one that is named in between is young. A head that
    cannot be read may name any.
    """
    written = {item.key: item.last_modified for item in manifests}
    old = [item for item in manifests if item.last_modified < now - kept_for]
    if not old:
        return []
    found = yield from all_heads(context)
    states = [state for state in found if isinstance(state, HeadState)]
    if len(states) < len(found):
        return []
    listed = yield from list_heads(context)
    named = {head.manifest.key for head in (state.head for state in states) if head.manifest}
    still = set()
    for state in states:
        head, there = state.head, listed.get(state.slot.name)
        # When the head moved last, or when it came to name another manifest: written just before.
        moved = there.last_modified if there else now
        folded = written.get(head.manifest.key, now) if head.manifest else now
        if not state.slot.is_once and min(moved, folded) < now - _READING:
            still.add(state.slot.name)
    free = [item for item in old if item.key not in named]
    bodies = yield All(tuple(Get(item.key, most=LIST_BYTES) for item in free))
    return [
        item
        for item, body in zip(free, bodies, strict=True)
        if isinstance(body, Found) and _partition(body) in still
    ]


def _partition(found: Found) -> str | None:
    """The partition whose files a manifest lists; ``None`` where that cannot be read."""
    try:
        return partition_of_manifest(found.body, found.key)
    except DamagedError:
        return None
