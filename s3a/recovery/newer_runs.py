"""Newer runs of the partitions of a dead job: it is not rolled forward over their rows.

A job that is rolled forward only adds its files. Those of a newer run that has replaced the same
partitions, or is about to, would then be mixed with rows that it took the place of. Of runs alone
that the ledger has on record is it known which partitions they wrote, and which came later.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ...committer.format.layout import TableRoot
from ...committer.store.requests import Step
from ..runs.ledger import tries_since
from ..runs.rivals import has_committed, is_at_work, meet, run_of_try
from ..runs.try_record import StoredTry, TryRecord
from .leftovers import LeftoverJob


@dataclass(frozen=True)
class NewerRun:
    """A later run that replaces partitions of a job.

    :param said: which one it is, and what it did, a sentence without its full stop.
    :param is_at_work: it has not ended yet.
    """

    said: str
    is_at_work: bool


def find_newer_run(root: TableRoot, job: LeftoverJob, record: TryRecord) -> Step[NewerRun | None]:
    """Look for a run that began after a job's try and replaces one of its partitions: one that has
    committed before one that is at work. One listing, and a request for each record that has
    changed since the try began.

    :param record: of the job's try.
    :raises RecordDamagedError: the record of a later try cannot be read.
    """
    mine = {_folder(root, commit.key) for commit in job.commits}
    later = yield from tries_since(root, record.opened_at)
    found = [it for it in later if _is_newer(it, record) and _replaces(it.record, mine)]
    for at_work, its in (
        (False, [it for it in found if has_committed(it.record)]),
        (True, [it for it in found if is_at_work(it)]),
    ):
        if its:
            return NewerRun(_said(its[-1].record, at_work), at_work)
    return None


def _folder(root: TableRoot, key: str) -> str:
    return key.removeprefix(f"{root.prefix}/").rpartition("/")[0]


def _is_newer(it: StoredTry, record: TryRecord) -> bool:
    other = it.record
    return other.idempotency_key != record.idempotency_key and other.opened_at > record.opened_at


def _replaces(record: TryRecord, folders: Collection[str]) -> bool:
    """Tell whether a try replaces, as far as it says, partitions in one of some folders."""
    for write in record.writes:
        named = write.among or ((write.partition,) if write.partition else record.partitions)
        if not write.is_adding and meet(named, folders):
            return True
    # Before its first write a try says which partitions it may write, and not how.
    return not record.writes and meet(record.partitions, folders)


def _said(record: TryRecord, at_work: bool) -> str:
    whose = run_of_try(record, "a later run")
    does = "is at work on" if at_work else "has committed"
    return f"a later run ({whose}) {does} the same partitions"
