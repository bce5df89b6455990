"""What must hold of the symlink manifests that other engines read."""

from __future__ import annotations

from simulation.invariants import ROOT, Violation, changes, content_after
from simulation.sim_store import Store

from zero_rename.committer.format.layout import SYMLINKS
from zero_rename.committer.format.records.head import PartitionHead, Slot
from zero_rename.committer.format.records.table_record import TableRecord


def check_symlinked_files(before: Store, after: Store) -> None:
    """Every file that a manifest names is there as it is written, and is not removed while it is
    named. Only over an empty list, which comes back with its ETag, may an old one be written, by
    whoever then looks at the head again.

    :raises Violation: one is not, or was.
    """
    gone = before.objects.keys() - after.objects.keys()
    for key, found in after.objects.items():
        if f"/{SYMLINKS}/" not in key:
            continue
        old = before.objects.get(key)
        named = set(_named(found.body))
        if named & gone:
            raise Violation("completeness", f"{key} names {named & gone}, which was removed")
        anew = old is None or (old.etag != found.etag and old.body)
        if anew and named - after.objects.keys():
            raise Violation("completeness", f"{key} names {named}, not all of which is there")


def check_symlinks(store: Store) -> None:
    """When all is done, each manifest says what its head says.

    :raises Violation: one does not.
    """
    body = store.objects[ROOT.table_key].body if ROOT.table_key in store.objects else None
    if body is None or not TableRecord.decode(body, ROOT.table_key).symlinks:
        return
    for partition, entries in changes(store).items():
        slot = Slot.partition(ROOT, partition)
        head = PartitionHead.decode(store.objects[slot.key].body, slot, ROOT)
        found = store.objects.get(ROOT.symlink_key(partition))
        expected = content_after(entries, head.version)
        if found is None or sorted(_named(found.body)) != sorted(expected):
            there = None if found is None else _named(found.body)
            raise Violation(
                "continuity of correctness",
                f"the symlink manifest of {partition} names {there}, its head {expected}",
            )


def _named(body: bytes) -> list[str]:
    return [line.removeprefix(f"s3://{ROOT.bucket}/") for line in body.decode().splitlines()]
