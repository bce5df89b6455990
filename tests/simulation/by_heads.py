"""What must hold of a table that is read by heads, and of its past: what a head names or keeps is
there, and is what the partition held."""

from __future__ import annotations

from functools import lru_cache

from simulation.invariants import (
    ROOT,
    Violation,
    changes,
    content_after,
    content_of,
    decision_of,
    is_head,
)
from simulation.sim_store import Store

from zero_rename.committer.format.job_spec import Mode, Readers
from zero_rename.committer.format.layout import job_in_key
from zero_rename.committer.format.records.head import PartitionHead, Slot
from zero_rename.committer.format.records.table_record import TableRecord

_DATA = ROOT.data_prefix


@lru_cache(maxsize=1000)
def _readers(body: bytes) -> Readers:
    return TableRecord.decode(body, ROOT.table_key).readers


def is_read_by_heads(store: Store) -> bool:
    """Whether the table is."""
    found = store.objects.get(ROOT.table_key)
    return found is not None and _readers(found.body) is Readers.HEADS


def heads_of(store: Store) -> list[PartitionHead]:
    """The heads of all partitions."""
    return [
        PartitionHead.decode(found.body, Slot.partition(ROOT, partition), ROOT)
        for key, found in store.objects.items()
        if is_head(key) and (partition := ROOT.partition_of_head_key(key)) is not None
    ]


def check_past(before: Store, after: Store) -> None:
    """What no request may do to it.

    :raises Violation: it did.
    """
    if before.objects is after.objects or not is_read_by_heads(after):
        return
    _check_exclusive(before, after)
    gone = before.objects.keys() - after.objects.keys()
    for key in after.objects:
        old = before.objects.get(key)
        if old is None:
            _check_place(key)
        elif key.startswith(_DATA) and old.etag != after.objects[key].etag:
            raise Violation("continuity of correctness", f"{key} was written over")
    lost = [key for key in gone if key.startswith(_DATA)]
    for key in lost:
        _check_swept(before, key)
    unlisted = any(key.startswith(ROOT.manifests_prefix) for key in gone)
    if (
        lost
        or unlisted
        or any(is_head(key) and before.objects.get(key) != it for key, it in _new(after))
    ):
        _check_told(after)


def _check_exclusive(before: Store, after: Store) -> None:
    """A job of mode fail-if-exists commits into partitions that hold nothing."""
    for partition, log in changes(after).items():
        for job, change in log:
            decision = decision_of(after, job)
            fails = decision is not None and decision.mode is Mode.FAIL_IF_EXISTS
            new = ROOT.decision_key(job) not in before.objects
            if fails and new and change.files and content_after(log, change.base_version):
                raise Violation("concurrent", f"{job} found files in {partition}")


def _new(store: Store):
    return store.objects.items()


def _check_place(key: str) -> None:
    inside = key.removeprefix(f"{ROOT.prefix}/")
    if inside == key:
        return  # What the simulation notes beside the table.
    if not inside.startswith("_zero_rename/") and not inside.endswith("_SUCCESS"):
        raise Violation("exclusivity", f"{key} is in sight of who lists")


def _check_swept(before: Store, key: str) -> None:
    """Nothing goes that a job wrote which may come to name it."""
    job = job_in_key(key) or ""
    if ROOT.open_key(job) not in before.objects:
        return
    decision = decision_of(before, job)
    if decision is None or (decision.is_commit and key in {file.key for file in decision.files}):
        raise Violation("completeness", f"{key} was removed, and {job} is open")


def _check_told(store: Store) -> None:
    """Every version that a head tells is what the partition held then, and there."""
    log = changes(store)
    for head in heads_of(store):
        for version in (move.version for line in head.lines for move in line.moves):
            former = head.as_of(version)
            held = content_after(log.get(head.name, []), version)
            if former is None or content_of(store, former) != held:
                raise Violation(
                    "consistency", f"{head.name} tells other files of version {version}"
                )
            missing = [key for key in held if key not in store.objects]
            if missing:
                raise Violation("completeness", f"{missing} of {head.name} are kept and gone")


def check_all_named(store: Store) -> None:
    """After purges: no data that nobody names.

    :raises Violation: there is some.
    """
    if not is_read_by_heads(store):
        return
    log = changes(store)
    named = {
        key
        for head in heads_of(store)
        for line in head.lines
        for move in line.moves
        for key in content_after(log.get(head.name, []), move.version)
    }
    left = {key for key in store.objects if key.startswith(_DATA)} - named
    if left:
        raise Violation("ability to abort", f"{sorted(left)} are named by nobody, and left")
