"""Lost partitions: the index or a marker knows a later state than the partition's head."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ..commit.index.lost_heads import KnownVersion, find_lost_heads, known_by_index, known_by_marker
from ..commit.index.read_index import read_index, still_true
from ..commit.state.context import Context
from ..commit.state.decide import Decided, read_decision
from ..commit.state.heads import list_heads, read_head
from ..commit.state.tolerance import or_damage
from ..errors import DamagedError
from ..format.layout import UNPARTITIONED
from ..format.records.head import HeadState
from ..store.requests import All, Get, ListedObject, Step


def lost_partitions(
    context: Context, objects: Iterable[ListedObject]
) -> Step[dict[str, DamagedError]]:
    """Find the partitions whose heads are missing, or were made again after a loss.

    Besides the index this reads the table's marker by one request, and by two requests each marker
    of a partition without a head. Decisions that no head names are not searched.

    :param objects: the objects below the table.
    :return: an error for each such partition, which names the record that shows its former state.
    """
    index, listed = yield from All((read_index(context), list_heads(context)))
    known = known_by_index(index.entries.values())
    by_job = yield from known_by_markers(context, objects, listed)
    decisions = yield from All(tuple(or_damage(read_decision(context, job)) for job in by_job))
    for found, it in zip(decisions, by_job.values(), strict=True):
        # Without its decision here, a marker may belong to a former table at this root.
        known += it if isinstance(found, Decided) else ()
    # After all that is known of heads was read: a head that came meanwhile is not lost.
    heads = yield from list_heads(context)
    fresh = still_true(index.entries, heads)
    stale = sorted({it.partition for it in known if it.partition in heads}.difference(fresh))
    read = yield from All(tuple(or_damage(read_head(context, heads[name].slot)) for name in stale))
    states = [state for state in read if isinstance(state, HeadState)]
    return find_lost_heads(context.root, known, heads, states)


def known_by_markers(
    context: Context, objects: Iterable[ListedObject], heads: Collection[str]
) -> Step[dict[str, list[KnownVersion]]]:
    """Read the versions that the table's marker and the markers of partitions without a head name.

    :return: these versions, by the job that wrote the marker.
    """
    root = context.root
    there = {item.key for item in objects if item.key.endswith("/_SUCCESS")}
    headed = {root.marker_key(name) for name in heads} - {root.marker_key(UNPARTITIONED)}
    keys = sorted(there - headed)
    found = yield from All(tuple(Get(key) for key in keys))
    known: dict[str, list[KnownVersion]] = {}
    for job, said in (known_by_marker(root, it) for it in found):
        if job:
            known.setdefault(job, []).extend(said)
    return known
