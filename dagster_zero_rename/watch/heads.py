"""Heads of a table's partitions, found by one listing, and the jobs that changed the rows last."""

from __future__ import annotations

from collections.abc import Sequence

from zero_rename.committer.commit.state.job_state import Committed
from zero_rename.committer.format.layout import TableRoot
from zero_rename.committer.format.records.head import HeadState, head_at, partition_of_slot_key
from zero_rename.committer.scan.partition_state import LastCommit
from zero_rename.committer.store.listing import Listing, list_objects
from zero_rename.committer.store.requests import All, Found, Get, ListedObject, Step
from zero_rename.committer.table import Table
from zero_rename.maintenance.destinations import destination_at

#: Remedy for a table whose partitions have no heads.
OBSERVE = "Observe it by observable_table(…), whose versions are made of its files."


def list_heads(root: TableRoot) -> Step[Listing]:
    """List the heads of a table's partitions, by a request for each thousand."""

    def of_partition(item: ListedObject) -> bool:
        return partition_of_slot_key(root, item.key) is not None

    return (yield from list_objects(root.heads_prefix, wanted=of_partition))


def read_heads(root: TableRoot, heads: Sequence[ListedObject]) -> Step[list[HeadState]]:
    """Read heads that a listing has shown, by a request each. Heads that no longer exist are left
    out."""
    found = yield from All(tuple(Get(head.key) for head in heads))
    return [head_at(root, it) for it in found if isinstance(it, Found)]


def last_commits(table: Table, states: Sequence[HeadState]) -> dict[str, LastCommit]:
    """Find the job that changed the rows of each partition last, by partition.

    A job that only rewrote rows, such as a compaction, or settled a conflict does not count. A
    request for each job; some five more if the last job of a partition does not count.
    """
    jobs = {it.head.last_job for it in states if it.head.last_job}
    done = {job: table.result(job) for job in jobs}
    moved = {it.slot.name: it.head for it in states if it.head.last_job}
    found = {
        name: LastCommit(head.last_job, head.version, it.decided_at)
        for name, head in moved.items()
        if (it := done[str(head.last_job)]) is not None and _brings_rows(it, name)
    }
    unsure = [name for name in moved if name not in found]
    held = table.partition_states(unsure) if unsure else {}
    return found | {name: it.last for name, it in held.items() if it.last.job is not None}


def _brings_rows(committed: Committed, partition: str) -> bool:
    """Return whether it is certain that a job has changed the rows of a partition."""
    mine = (it for it in committed.partitions if it.partition == partition)
    return not committed.rewritten and any(it.files or it.removed for it in mine)


def is_hadoops(table: Table) -> bool:
    """Return whether only Hadoop's committers write at a root: they leave no heads and record no
    inputs. Six requests."""
    return table.run(destination_at(table.root)).is_hadoops
