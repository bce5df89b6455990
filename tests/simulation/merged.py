"""What must hold of merges: a job's rows are those of the state that it goes on from, with its own
in the place of the one that has its key; and what it leaves as it is need not have been changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from simulation.invariants import Violation, changes, content_after, decision_of, jobs
from simulation.sim_store import Store

from zero_rename.committer import Owner
from zero_rename.committer.format.records.partition_decision import PartitionDecision

_MERGES, _INSERTS, _LATE, _KEY = "merges", "inserts", "late", "key="
_Log = list[tuple[str, PartitionDecision]]


class _File(Protocol):
    """A file as a decision or a snapshot has it."""

    @property
    def key(self) -> str: ...
    @property
    def checksum(self) -> str: ...


def key_row(value: str) -> str:
    """The row with the key that all merges are of."""
    return f"{_KEY}{value}"


def merging(row: str, partitions: Sequence[str]) -> Owner:
    """The owner of a merge, who says in its decision what was to be merged into which
    partitions."""
    return Owner(application=_MERGES, task_id=row, run_id=" ".join(partitions))


def rows_of(files: Iterable[_File]) -> frozenset[str]:
    """The rows that files hold: each file that nobody wrote again is one."""
    found: set[str] = set()
    for file in files:
        parts = file.checksum.split("|")
        held = parts[3].split() if len(parts) == 5 else []
        found.update(held or [file.key])
    return frozenset(found)


def merged(rows: Collection[str], row: str) -> frozenset[str]:
    """With a row in the place of the one with its key."""
    return frozenset({row, *(other for other in rows if not other.startswith(_KEY))})


def inserting(late: bool = False) -> Owner:
    """The owner of a job that inserts the key, since no partition has it.

    :param late: whether one that brings the key had committed before this one began to commit.
    """
    return Owner(application=_INSERTS, task_id=_LATE if late else None)


def check_one_key(store: Store, job: str) -> None:
    """See that a decision which was just written is the only one to insert the key.

    :raises Violation: two jobs have, each where it did not see the other; or one has that began to
        commit when another had brought it.
    """
    found = [decision_of(store, name) for name in jobs(store)]
    commits = [it for it in found if it is not None and it.is_commit]
    if any(it.owner.application == _INSERTS and it.owner.task_id == _LATE for it in commits):
        raise Violation("concurrent", f"{job} inserts a key that was there before it claimed")
    if sum(it.owner.application == _INSERTS for it in commits) > 1:
        raise Violation("concurrent", f"{job} inserts a key that another partition has")


def check_merged(store: Store, job: str) -> None:
    """What the decision that was just written says, if it is a merge's.

    :raises Violation: its rows are of another state than the one that it goes on from; or a
        partition that it leaves as it is had other rows since a job which it goes on from.
    """
    decision = decision_of(store, job)
    if decision is None or not decision.is_commit or decision.owner.application != _MERGES:
        return
    row, touched = str(decision.owner.task_id), str(decision.owner.run_id).split()
    log = changes(store)
    before: set[str] = set()
    for change in decision.partitions:
        entries = log[change.partition]
        expected = merged(_rows_at(store, entries, change.base_version), row)
        found = rows_of(change.files)
        if found != expected:
            lost = sorted(expected ^ found)
            raise Violation("concurrent", f"{job} goes on from other rows than it read: {lost}")
        before |= {other for other, _ in entries[: change.base_version]}
    for partition in set(touched) - {change.partition for change in decision.partitions}:
        entries = log.get(partition, [])
        least = max((n for n, (other, _) in enumerate(entries, 1) if other in before), default=0)
        versions = range(least, len(entries) + 1)
        if not any(row in _rows_at(store, entries, version) for version in versions):
            raise Violation("concurrent", f"{job} left {partition}, which had not the row {row}")


def _rows_at(store: Store, log: _Log, version: int) -> frozenset[str]:
    there = content_after(log, version)
    files = {
        file.key: file
        for job, _ in log
        if (decision := decision_of(store, job)) is not None
        for file in decision.files
    }
    return rows_of(files[key] for key in there if key in files)
