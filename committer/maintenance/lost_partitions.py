"""Lost partitions: those of which the index or a marker says more than their heads do."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ..errors import DamagedError
from ..index.lost_heads import KnownEpoch, find_lost, known_by_index
from ..index.read_index import read_index
from ..layout import UNPARTITIONED
from ..records.head import HeadState
from ..records.success_marker import SuccessMarker
from ..s3.requests import Absent, All, Get, ListedObject, Step
from ..state.context import Context
from ..state.decide import Decided, read_decision
from ..state.heads import list_heads, read_head
from ..state.tolerance import or_damage


def lost_partitions(
    context: Context, objects: Iterable[ListedObject]
) -> Step[dict[str, DamagedError]]:
    """The partitions whose heads are gone, or were made anew, and who knows of them.

    Besides the index that is one request for the table's marker, and two for each marker beside
    which there is no head; nothing of decisions that no head names.

    :param objects: what lies below the table.
    """
    index, listed = yield All((read_index(context), list_heads(context)))
    known = known_by_index(index.entries.values())
    known += yield from _known_by_markers(context, objects, listed)
    heads = yield from list_heads(context)  # After all that is known of them.
    fresh = {n for n, it in index.entries.items() if n in heads and heads[n].etag == it.etag}
    stale = sorted({it.partition for it in known if it.partition in heads}.difference(fresh))
    found = yield All(tuple(or_damage(read_head(context, heads[name].slot)) for name in stale))
    states = [state for state in found if isinstance(state, HeadState)]
    return find_lost(context.root, known, heads, states)


def _known_by_markers(
    context: Context, objects: Iterable[ListedObject], heads: Collection[str]
) -> Step[list[KnownEpoch]]:
    """What the table's marker says, and those of partitions without a head, each with its job's
    decision: one may be left of another table that was here."""
    root = context.root
    there = {item.key for item in objects if item.key.endswith("/_SUCCESS")}
    headed = {root.marker_key(name) for name in heads} - {root.marker_key(UNPARTITIONED)}
    keys = sorted(there - headed)
    found = yield All(tuple(Get(key) for key in keys))
    markers = {
        key: marker.manifest
        for key, it in zip(keys, found, strict=True)
        if not isinstance(it, Absent) and (marker := SuccessMarker.parse_or_none(it.body))
    }
    ours = {k: it for k, it in markers.items() if it and it.decision == root.decision_key(it.job)}
    jobs = sorted({it.job for it in ours.values()})
    decisions = yield All(tuple(or_damage(read_decision(context, job)) for job in jobs))
    stand = {job for job, it in zip(jobs, decisions, strict=True) if isinstance(it, Decided)}
    return [
        KnownEpoch(name, epoch, f"the marker {key}")
        for key, it in ours.items()
        if it.job in stand
        for name, epoch in it.epochs.items()
    ]
