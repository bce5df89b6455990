"""What must hold of files that a replace keeps: no reader through the heads sees them, and they
stay until a job that keeps nothing replaces the partition, so that the replace can be undone."""

from __future__ import annotations

from collections.abc import Collection

from simulation.invariants import Violation, changes, content_after
from simulation.sim_store import Store


def kept_files(store: Store, keepers: Collection[str]) -> frozenset[str]:
    """Keys of what committed jobs took out of partitions and must not delete.

    :param keepers: jobs that keep what they replace.
    """
    found: set[str] = set()
    for log in changes(store).values() if keepers else ():
        kept: set[str] = set()
        for job, change in log:
            if job in keepers:
                kept.update(content_after(log, change.base_version))
            elif change.replace:
                kept.clear()
        found |= kept
    return frozenset(found)


def keepers_before(start: Store) -> frozenset[str]:
    """The jobs at the beginning that kept what they replaced, where others remove it."""
    return frozenset(
        job
        for log in changes(start).values()
        for job, change in log
        if change.replace and content_after(log, change.base_version) and not change.removals
    )


def check_kept(before: Store, after: Store, keepers: Collection[str]) -> None:
    """What no request may do to them.

    :raises Violation: it deleted one.
    """
    if not keepers or before.objects is after.objects:
        return
    deleted = before.objects.keys() - after.objects.keys()
    lost = deleted & kept_files(before, keepers) if deleted else ()
    if lost:
        raise Violation("continuity of correctness", f"{sorted(lost)} were to be kept")
