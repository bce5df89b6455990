"""Newer runs in the partitions of a dead job: it must not be rolled forward over their rows.

A job that is rolled forward only adds its files. If a newer run has replaced the same partitions,
or is about to, its rows would be mixed with old rows that it replaces. The partitions and the order
of runs are known from the ledger's records and, for jobs of this package's own committer, from the
partitions' heads.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ...committer.commit.state.tolerance import unless_denied
from ...committer.format.layout import UNPARTITIONED, TableRoot
from ...committer.format.records.head import PartitionHead, Slot
from ...committer.store.listing import list_objects
from ...committer.store.requests import Found, Get, Step
from ..runs.ledger import tries_since
from ..runs.rivals import has_committed, is_at_work, loaded_of, meet, run_of_try
from ..runs.try_record import StoredTry, TryRecord
from .leftovers import LeftoverJob


@dataclass(frozen=True)
class NewerRun:
    """A later run that replaces partitions of a job.

    :param said: the run and its action, a sentence without its full stop.
    :param is_at_work: it has not ended yet.
    """

    said: str
    is_at_work: bool


def find_newer_run(
    ledgers: Sequence[TableRoot], job: LeftoverJob, record: TryRecord | None
) -> Step[NewerRun | None]:
    """Find a run that began after a job and replaces one of its partitions.

    A later attempt of the job's own run that has committed counts, too, even if it appends: it has
    loaded the same rows. A run that has committed is preferred to one that is at work. Two listings
    for each ledger, and a request for each record and head that has changed since the job began.

    :param ledgers: the destinations that may have a record of such a run.
    :param record: the record of the job's attempt; ``None``: no ledger has one.
    :raises DamagedError: the record of a later attempt, or a head, cannot be read.
    """
    began = record.opened_at if record is not None else job.begun or job.oldest
    own = record.idempotency_key if record is not None else None
    at_work: NewerRun | None = None
    own_root, *_ = ledgers
    for root in ledgers:
        mine = {_folder(root, commit.key) for commit in job.commits if _lies_in(root, commit.key)}
        if not mine:
            continue
        asked, native = tries_since(root, began), _find_native(root, mine, began)
        if root != own_root:
            # Credentials with rights only below the root may not read these ledgers. Then they
            # are left out.
            asked, native = unless_denied(asked, ()), unless_denied(native, None)
        later = yield from asked
        if again := [it for it in later if _has_loaded_again(it, record)]:
            said = f"a later attempt of its run ({again[-1].record.uuid}) has committed"
            return NewerRun(said, is_at_work=False)
        found = [it for it in later if _is_newer(it, began, own) and _replaces(it.record, mine)]
        if done := [it for it in found if has_committed(it.record)]:
            return NewerRun(_said(done[-1].record, at_work=False), is_at_work=False)
        replaced = yield from native
        if replaced is not None:
            return replaced
        if going := [it for it in found if is_at_work(it)]:
            at_work = at_work or NewerRun(_said(going[-1].record, at_work=True), is_at_work=True)
    return at_work


def _lies_in(root: TableRoot, key: str) -> bool:
    return key.startswith(f"{root.prefix}/")


def _find_native(root: TableRoot, folders: Collection[str], began: float) -> Step[NewerRun | None]:
    """Find a job of this package's own committer that has replaced a partition since then."""
    slots = {it.key: it for it in (Slot.partition(root, name or UNPARTITIONED) for name in folders)}
    listing = yield from list_objects(
        root.heads_prefix, wanted=lambda it: it.key in slots and it.last_modified >= int(began)
    )
    for key in listing.keys:
        found = yield from Get(key)
        if not isinstance(found, Found):
            continue
        head = PartitionHead.decode(found.body, slots[key], root)
        if (head.replaced_at or 0.0) > began:
            said = f"a later job of this package ({head.last_job}) has replaced {slots[key].name!r}"
            return NewerRun(said, is_at_work=False)
    return None


def _folder(root: TableRoot, key: str) -> str:
    return key.removeprefix(f"{root.prefix}/").rpartition("/")[0]


def _is_newer(it: StoredTry, began: float, run: str | None) -> bool:
    return it.record.idempotency_key != run and it.record.opened_at > began


def _has_loaded_again(it: StoredTry, record: TryRecord | None) -> bool:
    """Return whether a later attempt of the same run has committed."""
    if record is None or it.record.idempotency_key != record.idempotency_key:
        return False
    is_later = it.record.uuid != record.uuid and it.record.opened_at > record.opened_at
    return is_later and has_committed(it.record)


def _replaces(record: TryRecord, folders: Collection[str]) -> bool:
    """Return whether an attempt, by its record, replaces partitions in one of some folders."""
    for write in record.writes:
        named = write.among or ((write.partition,) if write.partition else record.partitions)
        if not write.is_adding and meet(named, folders):
            return True
    if record.writes or not record.may_replace:
        return False
    # An attempt's record has no write before its first one, and after it has committed. Then its
    # report may say which partitions it has loaded. Files at the root are of the whole table.
    entries = (record.report or {}).get("partitions") or ()
    is_whole = any(it.get("partition") == UNPARTITIONED for it in entries)
    return is_whole or bool(loaded_of(record, [it or UNPARTITIONED for it in folders]))


def _said(record: TryRecord, at_work: bool) -> str:
    whose = run_of_try(record, "a later run")
    does = "is at work on" if at_work else "has committed"
    return f"a later run ({whose}) {does} the same partitions"
