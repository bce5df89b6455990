"""What must hold, at every request, of the objects that anybody can list."""

from __future__ import annotations

import json

from simulation.invariants import ROOT, Violation, changes, content_after, decision_of, version_in
from simulation.sim_store import Store

from zero_rename.committer import UNPARTITIONED
from zero_rename.committer.format.layout import job_in_key
from zero_rename.committer.format.records.head import partition_of_slot_key

_CONTROL = "/_zero_rename/"


def check_visible(before: Store, after: Store, delete_conditions: bool) -> None:
    """What one request may do to objects that readers list.

    :param delete_conditions: whether the store keeps the ETags of deletes.
    :raises Violation: it did something else.
    """
    if before.objects is after.objects:
        return
    for key in before.objects.keys() - after.objects.keys():
        partition = ROOT.partition_of_data_key(key)
        if partition is not None:
            if delete_conditions and job_in_key(key) is None:
                _check_removal(before, key)
            _check_named(after, partition)
    for key, found in after.objects.items():
        old = before.objects.get(key)
        if old is not None and old.etag == found.etag:
            continue
        if key.endswith("/_SUCCESS"):
            _check_marked(after, key)
        partition = partition_of_slot_key(ROOT, key)
        if partition is not None and (
            old is None or version_in(old.body) != version_in(found.body)
        ):
            _check_named(after, partition)


def _check_removal(before: Store, key: str) -> None:
    """A file that no job wrote goes only as it was when a decision listed it."""
    etag = before.objects[key].etag
    for entries in changes(before).values():
        for _, change in entries:
            if any((file.key, file.etag) == (key, etag) for file in change.removals):
                return
    raise Violation("concurrent", f"{key} was removed as nobody had listed it")


def _check_named(store: Store, partition: str) -> None:
    """Every file that a head names is there: a listing shows it too."""
    head = store.objects.get(ROOT.head_key(partition))
    if head is None:
        return
    for key in content_after(changes(store).get(partition, []), version_in(head.body)):
        if key not in store.objects:
            raise Violation("completeness", f"{key} is named by the head of {partition} and gone")


def _check_marked(store: Store, key: str) -> None:
    """A marker says that a listing shows what its job left: all that it and those before it
    remove is gone."""
    job = json.loads(store.objects[key].body)["jobId"]
    decision = decision_of(store, job)
    marked = ROOT.partition_of_data_key(key.removesuffix("_SUCCESS") + "x")
    log = changes(store)
    for change in decision.partitions if decision else ():
        if marked not in (UNPARTITIONED, change.partition):
            continue
        for other, earlier in log[change.partition][: change.base_version + 1]:
            for file in earlier.removals:
                left = store.objects.get(file.key)
                if left is not None and left.etag == file.etag:
                    what = f"{key} was written for {job}, and {file.key}, which {other} removes"
                    raise Violation("continuity of correctness", f"{what}, is listed")
