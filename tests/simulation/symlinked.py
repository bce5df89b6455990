"""What must hold of the symlink manifests that other engines read."""

from __future__ import annotations

from functools import lru_cache

from simulation.invariants import ROOT, Violation, changes, content_after
from simulation.sim_store import Store

from zero_rename.committer.format.layout import SYMLINKS
from zero_rename.committer.format.records.head import PartitionHead, Slot
from zero_rename.committer.format.records.table_record import TableRecord
from zero_rename.committer.store.fast_root import is_fast


def check_symlinked_files(before: Store, after: Store) -> None:
    """Every file that a manifest names is there as it is written, lies in the table's own bucket,
    and is not removed while it is named. Only over an empty list, which comes back with its ETag,
    may an old one be written, by whoever then looks at the head again.

    :raises Violation: one is not, or was.
    """
    record = _record(after)
    if record is not None and record.symlinks and record.data_root is not None:
        raise Violation("completeness", "a table with a data root has symlink manifests")
    gone = before.objects.keys() - after.objects.keys()
    for key, found in after.objects.items():
        if f"/{SYMLINKS}/" not in key:
            continue
        old = before.objects.get(key)
        named = set(_named(found.body))
        if named & gone:
            raise Violation("completeness", f"{key} names {named & gone}, which was removed")
        if any(is_fast(it) for it in named):
            raise Violation("completeness", f"{key} names {named}, which lies in a fast root")
        anew = old is None or (old.etag != found.etag and old.body)
        if anew and named - after.objects.keys():
            raise Violation("completeness", f"{key} names {named}, not all of which is there")


def check_symlinks(store: Store) -> None:
    """When all is done, each manifest says what its head says.

    :raises Violation: one does not.
    """
    record = _record(store)
    if record is None or not record.symlinks:
        return
    for partition, entries in changes(store).items():
        slot = Slot.partition(ROOT, partition)
        head = PartitionHead.decode(store.objects[slot.key].body, slot, ROOT)
        found = store.objects.get(ROOT.symlink_key(partition))
        expected = content_after(entries, head.version)
        if any(is_fast(key) for key in expected):
            raise Violation("continuity of correctness", f"{partition} holds files of a fast root")
        if found is None or sorted(_named(found.body)) != sorted(expected):
            there = None if found is None else _named(found.body)
            raise Violation(
                "continuity of correctness",
                f"the symlink manifest of {partition} names {there}, its head {expected}",
            )


def _record(store: Store) -> TableRecord | None:
    found = store.objects.get(ROOT.table_key)
    return None if found is None else _decoded(found.body)


@lru_cache(maxsize=1000)
def _decoded(body: bytes) -> TableRecord:
    return TableRecord.decode(body, ROOT.table_key)


def _named(body: bytes) -> list[str]:
    return [line.removeprefix(f"s3://{ROOT.bucket}/") for line in body.decode().splitlines()]
