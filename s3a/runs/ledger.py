"""Ledger of S3A loads: one record of each try, which answers what it wrote and what came of it.

S3A's own traces do not suffice. ``_SUCCESS`` names only the last job of a destination, the files
of the magic committer do not carry their job's UUID, nothing says which run made a job or whether
it lives, and a driver that died may have committed or not. So each try has a record: its operator
opens it before the submission, its application enters each write, both renew it while they are at
work, and whoever finds out what came of it closes it. A ``save()`` that no operator submitted
opens one of its own, and removes it at its end.

* ``<parent>/_zero_rename/s3a-runs/<table>/<run's key>/<uuid>-open.json``: a try
* ``<parent>/_zero_rename/s3a-runs/<table>/<run's key>/<uuid>.json``: the same once it is closed
* ``<parent>/_zero_rename/s3a-reports/<table>/<uuid>/<n>/``: its n-th write's report by Hadoop

The records lie beside the table, not in it: an object below a destination makes it exist
(``mode("error")`` and conflict mode *fail* would refuse each first write), and Spark's overwrite
deletes it whole. Recovery asks for the open ones, whose number stays small. The closed record is
written before the open one is deleted, and comes after it in a listing, so that a listing shows
one at least; where both are there, the closed one counts.

Every change is conditional on the record as it was read (``If-Match``): who closes a try knows
that nobody has entered anything since he looked, and its application sees that it is closed. Where
a store ignores conditions an entry can be lost; the application's next heartbeat enters it again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...committer.errors import OutcomeUnknownError, RecordDamagedError, StoreUnreachableError
from ...committer.format.layout import CONTROL, TableRoot, new_write_id
from ...committer.store.conditional_put import NotWritten, Written, put_record
from ...committer.store.deletion import remove
from ...committer.store.listing import first_object, list_objects
from ...committer.store.requests import LIST_BYTES, All, Delete, Found, Get, Put, Step, Unknown
from ..hadoop.commit_files import JobSummary
from ..hadoop.job_traces import find_report
from .try_record import (
    COMMITTED,
    FAILED,
    FENCED,
    OPERATOR_INTERVAL,
    SETTLED,
    UNDONE,
    StoredTry,
    TryRecord,
    WriteRecord,
    run_of,
)

#: Name of the folder beside destinations that holds the ledgers of all of them.
RUNS = "s3a-runs"
_OPEN, _CLOSED = "-open.json", ".json"
_CHANGES = 5
#: Why a fenced try may not write any more, a sentence without its full stop.
FOUND_DEAD = "A retry or a recovery has found this try to be dead"
_AGAIN = "Try again when the store answers."


@dataclass(frozen=True)
class OpenTries:
    """All tries of a table of which it is not known what came of them.

    :param damage: why the record of another one cannot be read; ``""`` for none.
    """

    known: tuple[StoredTry, ...] = ()
    damage: str = ""


# Places


def runs_prefix(root: TableRoot) -> str:
    """Below which the tries of all runs of a table are."""
    return beside(root, RUNS)


def run_prefix(root: TableRoot, idempotency_key: str) -> str:
    """Below which the tries of one run are."""
    name = root.run_key(idempotency_key).rpartition("/")[2]
    return f"{runs_prefix(root)}{name.removesuffix('.json')}/"


def open_key(root: TableRoot, idempotency_key: str, run: str) -> str:
    return f"{run_prefix(root, idempotency_key)}{run}{_OPEN}"


def closed_key(root: TableRoot, idempotency_key: str, run: str) -> str:
    return _closed(open_key(root, idempotency_key, run))


def reports_prefix(root: TableRoot, run: str) -> str:
    """Below which the reports of all of a try's writes are, by their numbers. A report says that
    a job committed also when the marker is a later job's."""
    return f"{beside(root, 's3a-reports')}{run}/"


def report_prefix(root: TableRoot, run: str, number: int) -> str:
    """The folder of one write's report, without a slash at its end."""
    return f"{reports_prefix(root, run)}{number}"


def report_dir(root: TableRoot, write: WriteRecord) -> str:
    """The same, ``s3a://bucket/key``."""
    return f"s3a://{root.bucket}/{report_prefix(root, run_of(write.uuid), write.number)}"


def beside(root: TableRoot, kind: str) -> str:
    """Below which a table's records of a kind are."""
    parent, _, name = root.prefix.rpartition("/")
    return "/".join(filter(None, (parent, CONTROL, kind, name))) + "/"


# Reading


def find(root: TableRoot, idempotency_key: str, run: str) -> Step[StoredTry | None]:
    """A try's record, open or closed."""
    return _read(open_key(root, idempotency_key, run))


def find_try(root: TableRoot, run: str) -> Step[StoredTry | None]:
    """A try's record by its UUID, or by that of one of its writes: one LIST per thousand runs."""
    names = tuple(f"/{run_of(run)}{ending}" for ending in (_OPEN, _CLOSED))
    item = yield from first_object(runs_prefix(root), lambda it: it.key.endswith(names))
    return None if item is None else (yield from _read(item.key))


def tries_of(root: TableRoot, idempotency_key: str) -> Step[tuple[StoredTry, ...]]:
    """A run's tries, the oldest first."""
    listing = yield from list_objects(run_prefix(root, idempotency_key))
    read = yield from All(tuple(_read(key) for key in tries_on_record(listing.keys)))
    found = [known for known in read if known is not None]
    # The store's times have whole seconds.
    return tuple(sorted(found, key=lambda k: (k.record.opened_at, k.record.owner.try_number or 0)))


def open_tries(root: TableRoot, closed_since: float = math.inf) -> Step[OpenTries]:
    """All tries of a table of which it is not known what came of them.

    :param closed_since: see that the records of tries that were closed since can be read, too.
    """
    listing = yield from list_objects(runs_prefix(root))
    recent = {it.key for it in listing.objects if it.last_modified >= closed_since}
    keys = [it for it in tries_on_record(listing.keys) if it in recent or not is_closed(it)]
    found = yield from All(tuple(_readable(key) for key in keys))
    damaged = [one for one in found if isinstance(one, str)]
    known = tuple(one for one in found if isinstance(one, StoredTry) and one.key.endswith(_OPEN))
    return OpenTries(known, damaged[0] if damaged else "")


def tries_since(root: TableRoot, moment: float) -> Step[tuple[StoredTry, ...]]:
    """The tries of all runs whose records have changed since a moment by the store's clock, the
    oldest first.

    :raises RecordDamagedError: one cannot be read.
    """
    listing = yield from list_objects(
        runs_prefix(root), wanted=lambda item: item.last_modified >= int(moment)
    )
    read = yield from All(tuple(_read(key) for key in tries_on_record(listing.keys)))
    found = [known for known in read if known is not None]
    return tuple(sorted(found, key=lambda known: known.record.opened_at))


def superseded(root: TableRoot, idempotency_key: str, run: str) -> Step[str]:
    """Why a try may not write any more, a sentence; ``""`` where it may.

    Later tries that are known to have left nothing do not count.
    """
    known = yield from tries_of(root, idempotency_key)
    order = [k.record for k in known if k.record.state != UNDONE or k.record.uuid == run]
    mine = next((at for at, record in enumerate(order) if record.uuid == run), None)
    if mine is None:
        return ""
    if mine < len(order) - 1:
        return f"A later try of this run has begun (try {order[-1].owner.try_number})"
    if order[mine].state == COMMITTED:
        return "What this try wrote before has been reported as all of it"
    dead = order[mine].state in (FENCED, UNDONE)
    return FOUND_DEAD if dead else ""


def read_report(root: TableRoot, write: WriteRecord) -> Step[JobSummary | None]:
    """The committer's report of a write; ``None`` where it left none of this job."""
    folder = report_prefix(root, run_of(write.uuid), write.number)
    return (yield from find_report(root, write.uuid, folder))


def is_closed(key: str) -> bool:
    """Tell whether a key is that of a closed try's record."""
    return key.endswith(_CLOSED) and not key.endswith(_OPEN)


def unsettled(keys: Sequence[str]) -> list[str]:
    """Pick the keys of the tries of which it is not known what came of them.

    :param keys: all below :func:`runs_prefix`.
    """
    return [key for key in tries_on_record(keys) if not is_closed(key)]


def read_record(key: str) -> Step[StoredTry | None]:
    """Read the record of a try by its key; ``None`` where it is gone.

    :raises RecordDamagedError: it cannot be read.
    """
    found = yield from Get(key, most=LIST_BYTES)
    return StoredTry.of(found) if isinstance(found, Found) else None


def tries_on_record(keys: Sequence[str]) -> list[str]:
    """Pick one key for each try among those of its records: the closed one where both are there."""
    closed = {key for key in keys if not key.endswith(_OPEN)}
    return [k for k in keys if k.endswith(_CLOSED) and (k in closed or _closed(k) not in closed)]


def _closed(key: str) -> str:
    return f"{key.removesuffix(_OPEN)}{_CLOSED}" if key.endswith(_OPEN) else key


def _read(key: str) -> Step[StoredTry | None]:
    """A try by either key of its record, which may be closed at any moment."""
    for place in (_closed(key), key, _closed(key)):
        found = yield from read_record(place)
        if found is not None:
            return found
    return None


def _readable(key: str) -> Step[StoredTry | str | None]:
    try:
        return (yield from _read(key))
    except RecordDamagedError as error:
        return str(error)


# Changing


def open_try(root: TableRoot, record: TryRecord) -> Step[TryRecord]:
    """Say that a try is about to be submitted. Returns its record with its times by the store's
    clock.

    :raises StoreUnreachableError: the store does not say whether it is there.
    """
    date = yield from _put(open_key(root, record.idempotency_key, record.uuid), record)
    return replace(record, opened_at=record.opened_at or date, beat_at=record.beat_at or date)


def change(
    root: TableRoot, record: TryRecord, make: Callable[[TryRecord, float], TryRecord]
) -> Step[TryRecord | None]:
    """Change a try's record, open or closed.

    :param make: from the record that is there, and the store's time; returns the same for no
        change. Called again where another change came first.
    :returns: the record that is there now; ``None`` where there is none.
    :raises OutcomeUnknownError: the store does not say whether it is changed.
    """
    for _ in range(_CHANGES):
        known = yield from find(root, record.idempotency_key, record.uuid)
        if known is None:
            return None
        new = make(known.record, known.record.beat_at + known.silent_for)
        if new == known.record or (yield from swap(known, new)):
            return new
    raise _uncertain(open_key(root, record.idempotency_key, record.uuid))


def swap(known: StoredTry, new: TryRecord) -> Step[bool]:
    """Put a record in the place of one that was read; ``False`` where that has changed since.

    :raises OutcomeUnknownError: the store does not say whether it is there.
    """
    made = new_write_id()
    put = Put(known.key, new.encode(made), if_match=known.etag)
    outcome = yield from put_record(put, made)
    if not isinstance(outcome, Written | NotWritten):
        raise _uncertain(known.key)
    return isinstance(outcome, Written)


def fence(root: TableRoot, judged: TryRecord) -> Step[StoredTry | None]:
    """Fence a try that was judged to be dead: its application ends its writes when it looks.

    :param judged: its record as it was when it was judged.
    :returns: the record as it was before the fence; ``None`` where it says something else than
        then, so that somebody is at work: nothing was written.
    :raises OutcomeUnknownError: the store does not say whether the fence is there.
    """
    known = yield from find_unchanged(root, judged)
    if known is None or known.record.state == FENCED:
        return known
    is_fenced = yield from swap(known, replace(known.record, state=FENCED))
    return known if is_fenced else None


def find_unchanged(root: TableRoot, judged: TryRecord) -> Step[StoredTry | None]:
    """A try's record, if nothing of it has changed since it was judged but what recovery enters
    itself: the fence, and jobs rolled forward."""
    known = yield from find(root, judged.idempotency_key, judged.uuid)
    if known is None or known.record.state not in (judged.state, FENCED):
        return None
    said = replace(known.record, state=judged.state, recovered=judged.recovered)
    return known if said == judged else None


def lift_fence(root: TableRoot, before: StoredTry) -> Step[None]:
    """Take a fence back, where nothing was done to the try; not one that stood before.

    :param before: what :func:`fence` returned.
    """
    if before.record.state == FENCED:
        return
    known = yield from find_unchanged(root, before.record)
    if known is not None:
        # A change that came first is its application's: it has found the fence, and ends.
        yield from swap(known, before.record)


def change_open(
    root: TableRoot, record: TryRecord, make: Callable[[TryRecord, float], TryRecord]
) -> Step[TryRecord | None]:
    """The same, unless the try is settled."""

    def made(found: TryRecord, now: float) -> TryRecord:
        return found if found.state in SETTLED else make(found, now)

    return (yield from change(root, record, made))


def send_heartbeat(root: TableRoot, record: TryRecord) -> Step[TryRecord | None]:
    """Say that a try is at work; while its application writes that does so, and more often.

    :returns: its record now; ``None`` where there is none.
    """

    def beat(found: TryRecord, now: float) -> TryRecord:
        is_recent = now - found.beat_at < OPERATOR_INTERVAL
        return found if is_recent else replace(found, beat_at=now)

    return (yield from change_open(root, record, beat))


def note_failed(root: TableRoot, record: TryRecord) -> Step[TryRecord | None]:
    """Say that a try's task has failed; what its application left is to be settled."""
    return change_open(root, record, lambda found, _: replace(found, state=FAILED))


def note_deferred(root: TableRoot, record: TryRecord) -> Step[TryRecord | None]:
    """Say that a try's task is deferred: its silence says nothing of its application."""
    return change_open(root, record, lambda found, now: replace(found, deferred=True, beat_at=now))


def note_recovered(root: TableRoot, record: TryRecord, job: str) -> Step[TryRecord | None]:
    """Say that recovery committed a job of a try, for its retry to read."""

    def noted(found: TryRecord, _: float) -> TryRecord:
        is_known = job in found.recovered
        return found if is_known else replace(found, recovered=(*found.recovered, job))

    return change_open(root, record, noted)


def close_try(root: TableRoot, record: TryRecord, **changes: Any) -> Step[TryRecord]:
    """Write what came of a try, whose application is known to have ended."""
    made = yield from change(root, record, lambda found, _: replace(found, **changes))
    return (yield from _move(root, made or replace(record, **changes)))


def settle_try(root: TableRoot, known: StoredTry, **changes: Any) -> Step[TryRecord | None]:
    """The same of one whose application may come back; ``None``: its record has changed since it
    was read, and nothing was written."""
    done = replace(known.record, **changes)
    return (yield from _move(root, done)) if (yield from swap(known, done)) else None


def forget_try(root: TableRoot, record: TryRecord) -> Step[None]:
    """Close an open try of which nothing stays, in the state that it has: its run's next try says
    what came of it. One that nobody tries again is removed."""
    if record.is_alone:
        yield from remove_try(root, record)
        return
    known = yield from find(root, record.idempotency_key, record.uuid)
    if known is not None and known.key.endswith(_OPEN):
        yield from _move(root, known.record)


def remove_try(root: TableRoot, record: TryRecord) -> Step[Mapping[str, str]]:
    """Forget a try wholly. Returns as :func:`remove_reports`."""
    own = [
        open_key(root, record.idempotency_key, record.uuid),
        closed_key(root, record.idempotency_key, record.uuid),
    ]
    return remove_reports(root, record.uuid, own)


def remove_reports(
    root: TableRoot, run: str, others: Sequence[str] = ()
) -> Step[Mapping[str, str]]:
    """Remove the reports of a try's writes, once its own record says what came of them.

    :param others: keys to remove besides.
    :returns: those that may still be there, with the reason: they only take up room.
    """
    listing = yield from list_objects(reports_prefix(root, run))
    return (yield from remove((key, None) for key in (*listing.keys, *others)))


def _move(root: TableRoot, record: TryRecord) -> Step[TryRecord]:
    """To the closed ones."""
    yield from _put(closed_key(root, record.idempotency_key, record.uuid), record)
    deletion = Delete(open_key(root, record.idempotency_key, record.uuid))
    if isinstance((yield from deletion), Unknown):
        yield from deletion
    return record


def _put(key: str, record: TryRecord) -> Step[float]:
    made = new_write_id()
    outcome = yield from put_record(Put(key, record.encode(made)), made)
    if isinstance(outcome, Written):
        return outcome.date
    what = f"The store did not confirm a record ({outcome})."
    raise StoreUnreachableError(what, key=key, remedy=_AGAIN)


def _uncertain(key: str) -> OutcomeUnknownError:
    what = "Whether the record of a try was changed is not known."
    return OutcomeUnknownError(what, key=key, remedy=_AGAIN)
