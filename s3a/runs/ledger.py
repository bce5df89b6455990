"""Ledger of S3A loads: a record of each attempt, with its writes and its result.

S3A's own traces do not suffice. ``_SUCCESS`` names only the last job of a destination, and the
files of the magic committer do not carry their job's UUID. Nothing says which run made a job, or
whether the job is alive, and a driver that died may have committed or not. So each attempt has a
record. Its operator opens the record before the submission, its application enters each write, and
both renew it while they are at work. The process that finds out the result of the attempt closes
it. A ``save()`` that no operator submitted opens a record of its own, and removes it at its end.

* ``<parent>/_zero_rename/s3a-runs/<table>/<run's key>/<uuid>-open.json``: an attempt
* ``<parent>/_zero_rename/s3a-runs/<table>/<run's key>/<uuid>.json``: the same once it is closed
* ``<parent>/_zero_rename/s3a-reports/<table>/<uuid>/<n>/``: its n-th write's report by Hadoop

The records lie beside the table, not in it. An object below a destination would make it exist
(``mode("error")`` and conflict mode *fail* would refuse each first write), and Spark's overwrite
deletes all that lies below. Recovery reads the open records, whose number stays small. The closed
record is written before the open one is deleted, and comes after it in a listing, so a listing
always shows at least one. If both exist, the closed one counts.

Every change is conditional on the record as it was read (``If-Match``). So a process that closes an
attempt knows that nothing was entered since it read the record, and the attempt's application sees
that it is closed. If a store ignores conditions, an entry can be lost; the application's next
heartbeat enters it again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...committer.commit.state.tolerance import or_error
from ...committer.errors import OutcomeUnknownError, RecordDamagedError, StoreUnreachableError
from ...committer.format.layout import CONTROL, TableRoot, new_write_id
from ...committer.store.conditional_put import NotWritten, Written, put_record
from ...committer.store.deletion import remove
from ...committer.store.listing import first_object, list_objects
from ...committer.store.requests import (
    LIST_BYTES,
    All,
    Delete,
    Found,
    Get,
    Head,
    Put,
    Step,
    Unknown,
)
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
#: Reason why a fenced attempt must not write any more, a sentence without its full stop.
FOUND_DEAD = "A retry or a recovery has found this attempt to be dead"
_AGAIN = "Try again when the store answers."


@dataclass(frozen=True)
class OpenTries:
    """All attempts of a table whose result is not known yet.

    :param damage: why the record of one more attempt cannot be read; ``""`` if all can.
    """

    known: tuple[StoredTry, ...] = ()
    damage: str = ""


# Places


def runs_prefix(root: TableRoot) -> str:
    """Return the prefix of the attempts of all runs of a table."""
    return beside(root, RUNS)


def run_prefix(root: TableRoot, idempotency_key: str) -> str:
    """Return the prefix of the attempts of one run."""
    name = root.run_key(idempotency_key).rpartition("/")[2]
    return f"{runs_prefix(root)}{name.removesuffix('.json')}/"


def open_key(root: TableRoot, idempotency_key: str, run: str) -> str:
    return f"{run_prefix(root, idempotency_key)}{run}{_OPEN}"


def closed_key(root: TableRoot, idempotency_key: str, run: str) -> str:
    return _closed(open_key(root, idempotency_key, run))


def reports_prefix(root: TableRoot, run: str) -> str:
    """Return the prefix of the reports of an attempt's writes, which have their numbers below it.

    A report still shows that a job committed when the marker is already that of a later job.
    """
    return f"{beside(root, 's3a-reports')}{run}/"


def report_prefix(root: TableRoot, run: str, number: int) -> str:
    """Return the folder of one write's report, without a slash at its end."""
    return f"{reports_prefix(root, run)}{number}"


def report_dir(root: TableRoot, write: WriteRecord) -> str:
    """Return the folder of a write's report as ``s3a://bucket/key``."""
    return f"s3a://{root.bucket}/{report_prefix(root, run_of(write.uuid), write.number)}"


def beside(root: TableRoot, kind: str) -> str:
    """Return the prefix of a table's records of one kind, which lie beside the table."""
    parent, _, name = root.prefix.rpartition("/")
    return "/".join(filter(None, (parent, CONTROL, kind, name))) + "/"


# Reading


def find(root: TableRoot, idempotency_key: str, run: str) -> Step[StoredTry | None]:
    """Read an attempt's record, open or closed; ``None`` if it does not exist."""
    return _read(open_key(root, idempotency_key, run))


def find_try(root: TableRoot, run: str) -> Step[StoredTry | None]:
    """Read an attempt's record by the UUID of it or of a write of it: a LIST per thousand runs."""
    names = tuple(f"/{run_of(run)}{ending}" for ending in (_OPEN, _CLOSED))
    item = yield from first_object(runs_prefix(root), lambda it: it.key.endswith(names))
    return None if item is None else (yield from _read(item.key))


def tries_of(root: TableRoot, idempotency_key: str) -> Step[tuple[StoredTry, ...]]:
    """Read the records of a run's attempts, the oldest first."""
    listing = yield from list_objects(run_prefix(root, idempotency_key))
    read = yield from All(tuple(_read(key) for key in tries_on_record(listing.keys)))
    found = [known for known in read if known is not None]
    # The store's times have whole seconds.
    return tuple(sorted(found, key=lambda k: (k.record.opened_at, k.record.owner.try_number or 0)))


def open_tries(root: TableRoot, closed_since: float = math.inf) -> Step[OpenTries]:
    """Read the records of all attempts of a table that are open: their result is not known yet.

    A record that has a result is left out: the process that wrote it died before it closed the
    record.

    :param closed_since: also check that the records of attempts closed since then can be read.
    """
    listing = yield from list_objects(runs_prefix(root))
    recent = {it.key for it in listing.objects if it.last_modified >= closed_since}
    keys = [it for it in tries_on_record(listing.keys) if it in recent or not is_closed(it)]
    found = yield from All(tuple(_readable(key) for key in keys))
    damaged = [one for one in found if isinstance(one, str)]
    read = (one for one in found if isinstance(one, StoredTry) and one.key.endswith(_OPEN))
    known = tuple(one for one in read if one.record.state not in SETTLED)
    return OpenTries(known, damaged[0] if damaged else "")


def tries_since(root: TableRoot, moment: float) -> Step[tuple[StoredTry, ...]]:
    """Read the attempts of all runs whose records have changed since a moment, the oldest first.

    :param moment: Unix seconds by the store's clock.
    :raises RecordDamagedError: a record cannot be read.
    """
    listing = yield from list_objects(
        runs_prefix(root), wanted=lambda item: item.last_modified >= int(moment)
    )
    read = yield from All(tuple(_read(key) for key in tries_on_record(listing.keys)))
    found = [known for known in read if known is not None]
    return tuple(sorted(found, key=lambda known: known.record.opened_at))


def superseded(root: TableRoot, idempotency_key: str, run: str) -> Step[str]:
    """Return why an attempt must not write any more, a sentence; ``""`` if it may write.

    Later attempts that are known to have left nothing do not count.
    """
    known = yield from tries_of(root, idempotency_key)
    order = [k.record for k in known if k.record.state != UNDONE or k.record.uuid == run]
    mine = next((at for at, record in enumerate(order) if record.uuid == run), None)
    if mine is None:
        return ""
    if mine < len(order) - 1:
        return f"A later attempt of this run has begun (attempt {order[-1].owner.try_number})"
    if order[mine].state == COMMITTED:
        return "What this attempt wrote before has been reported as all of it"
    dead = order[mine].state in (FENCED, UNDONE)
    return FOUND_DEAD if dead else ""


def read_report(root: TableRoot, write: WriteRecord) -> Step[JobSummary | None]:
    """Read the committer's report of a write; ``None`` if this job left none."""
    folder = report_prefix(root, run_of(write.uuid), write.number)
    return (yield from find_report(root, write.uuid, folder))


def keep_report(root: TableRoot, record: TryRecord, job: str, body: bytes) -> Step[None]:
    """Write the report of an attempt's job whose committer died before; one that is there stays.

    :param job: its UUID.
    :param body: Hadoop's SuccessData.
    """
    number = next((it.number for it in record.writes if it.uuid.lower() == job.lower()), 0)
    folder = report_prefix(root, record.uuid, number)
    if (yield from find_report(root, job, folder)) is None:
        yield from Put(f"{folder}/summary-recovered.json", body, if_none_match=True)


def is_closed(key: str) -> bool:
    """Return whether a key is that of a closed attempt's record."""
    return key.endswith(_CLOSED) and not key.endswith(_OPEN)


def unsettled(keys: Sequence[str]) -> list[str]:
    """Pick the keys of the attempts whose result is not known yet.

    :param keys: all keys below :func:`runs_prefix`.
    """
    return [key for key in tries_on_record(keys) if not is_closed(key)]


def read_record(key: str) -> Step[StoredTry | None]:
    """Read the record of an attempt by its key; ``None`` if it does not exist.

    :raises RecordDamagedError: it cannot be read.
    """
    found = yield from Get(key, most=LIST_BYTES)
    return StoredTry.of(found) if isinstance(found, Found) else None


def tries_on_record(keys: Sequence[str]) -> list[str]:
    """Pick one key for each attempt: its closed record's if it has one, else its open record's."""
    closed = {key for key in keys if not key.endswith(_OPEN)}
    return [k for k in keys if k.endswith(_CLOSED) and (k in closed or _closed(k) not in closed)]


def _closed(key: str) -> str:
    return f"{key.removesuffix(_OPEN)}{_CLOSED}" if key.endswith(_OPEN) else key


def _read(key: str) -> Step[StoredTry | None]:
    """Read an attempt's record by either of its keys: it may be closed between two requests."""
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
    """Write the record of an attempt that is about to be submitted.

    :returns: the record with its times by the store's clock, as others read them. The time of the
        store's answer may be a second later: of two attempts, each could take the other for the
        earlier one, and both would give way.
    :raises StoreUnreachableError: the store does not confirm that the record is written.
    """
    key = open_key(root, record.idempotency_key, record.uuid)
    date = yield from _put(key, record)
    if not record.opened_at:
        there = yield from or_error(iter(Head(key)))
        date = there.last_modified if isinstance(there, Found) else date
    return replace(record, opened_at=record.opened_at or date, beat_at=record.beat_at or date)


def change(
    root: TableRoot, record: TryRecord, make: Callable[[TryRecord, float], TryRecord]
) -> Step[TryRecord | None]:
    """Change an attempt's record, open or closed.

    :param make: makes the new record from the present one and the store's time. Returns an equal
        record for no change. Called again if another process's change came first.
    :returns: the record that is there now; ``None`` if there is none.
    :raises OutcomeUnknownError: the store does not say whether it is changed; or other changes came
        first again and again.
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
    """Replace a record if it has not changed since it was read.

    :returns: whether it is replaced; ``False`` if it had changed.
    :raises OutcomeUnknownError: the store does not say whether it is replaced.
    """
    made = new_write_id()
    put = Put(known.key, new.encode(made), if_match=known.etag)
    outcome = yield from put_record(put, made)
    if not isinstance(outcome, Written | NotWritten):
        raise _uncertain(known.key)
    return isinstance(outcome, Written)


def fence(root: TableRoot, judged: TryRecord) -> Step[StoredTry | None]:
    """Fence an attempt that was judged to be dead.

    Its application ends its writes when it next reads the record.

    :param judged: its record as it was when it was judged.
    :returns: the record as it was before the fence; ``None`` if it has changed since it was judged,
        so that a process is at work on it: then nothing was written.
    :raises OutcomeUnknownError: the store does not say whether the fence is there.
    """
    known = yield from find_unchanged(root, judged)
    if known is None or known.record.state == FENCED:
        return known
    is_fenced = yield from swap(known, replace(known.record, state=FENCED))
    return known if is_fenced else None


def find_unchanged(root: TableRoot, judged: TryRecord) -> Step[StoredTry | None]:
    """Read an attempt's record; ``None`` if it has changed since it was judged.

    Changes that recovery itself makes do not count: the fence, and jobs rolled forward.
    """
    known = yield from find(root, judged.idempotency_key, judged.uuid)
    if known is None or known.record.state not in (judged.state, FENCED):
        return None
    said = replace(known.record, state=judged.state, recovered=judged.recovered)
    return known if said == judged else None


def lift_fence(root: TableRoot, before: StoredTry) -> Step[None]:
    """Remove a fence if nothing was done to the attempt, but not one of an earlier recovery.

    If another recovery has rolled a job of the attempt forward or closed the attempt meanwhile,
    the record stays as it is.

    :param before: the record that :func:`fence` returned.
    """
    if before.record.state == FENCED:
        return
    known = yield from find_unchanged(root, before.record)
    if known is None or known.key != before.key:
        return
    if known.record.recovered == before.record.recovered:
        # If this swap fails, the application has changed the record: it met the fence, and ends.
        yield from swap(known, before.record)


def change_open(
    root: TableRoot, record: TryRecord, make: Callable[[TryRecord, float], TryRecord]
) -> Step[TryRecord | None]:
    """Change an attempt's record, as :func:`change` does, unless it is committed or undone."""

    def made(found: TryRecord, now: float) -> TryRecord:
        return found if found.state in SETTLED else make(found, now)

    return (yield from change(root, record, made))


def send_heartbeat(root: TableRoot, record: TryRecord) -> Step[TryRecord | None]:
    """Record that an attempt is at work, unless its last heartbeat is recent.

    While its application writes, the application itself sends heartbeats, and more often.

    :returns: its record now; ``None`` if there is none.
    """

    def beat(found: TryRecord, now: float) -> TryRecord:
        is_recent = now - found.beat_at < OPERATOR_INTERVAL
        return found if is_recent else replace(found, beat_at=now)

    return (yield from change_open(root, record, beat))


def note_failed(root: TableRoot, record: TryRecord) -> Step[TryRecord | None]:
    """Record that an attempt's task has failed. Its application's jobs are still to be settled."""
    return change_open(root, record, lambda found, _: replace(found, state=FAILED))


def note_deferred(root: TableRoot, record: TryRecord) -> Step[TryRecord | None]:
    """Record that an attempt's task is deferred.

    No operator sends heartbeats then, so silence does not show that its application has ended.
    """
    return change_open(root, record, lambda found, now: replace(found, deferred=True, beat_at=now))


def note_resumed(root: TableRoot, record: TryRecord) -> Step[TryRecord | None]:
    """Record that a process waits for an attempt again whose task was deferred, or ends it."""

    def resumed(found: TryRecord, now: float) -> TryRecord:
        return replace(found, deferred=False, beat_at=now) if found.deferred else found

    return change_open(root, record, resumed)


def note_recovered(root: TableRoot, record: TryRecord, job: str) -> Step[TryRecord | None]:
    """Record that recovery committed a job of an attempt, for the run's next attempt to read."""

    def noted(found: TryRecord, _: float) -> TryRecord:
        is_known = job in found.recovered
        return found if is_known else replace(found, recovered=(*found.recovered, job))

    return change_open(root, record, noted)


def close_try(root: TableRoot, record: TryRecord, **changes: Any) -> Step[TryRecord]:
    """Write the result of an attempt whose application has ended, and close its record.

    :param changes: fields of the record with their new values.
    """
    made = yield from change(root, record, lambda found, _: replace(found, **changes))
    return (yield from _move(root, made or replace(record, **changes)))


def settle_try(root: TableRoot, known: StoredTry, **changes: Any) -> Step[TryRecord | None]:
    """Write the result of an attempt whose application may still be at work, and close its record.

    :param changes: fields of the record with their new values.
    :returns: the closed record; ``None`` if the record had changed since it was read, and nothing
        was written.
    """
    done = replace(known.record, **changes)
    return (yield from _move(root, done)) if (yield from swap(known, done)) else None


def close_settled(root: TableRoot, known: StoredTry) -> Step[TryRecord]:
    """Close an attempt whose result is on record, if the process that wrote it died before that."""
    if known.key.endswith(_OPEN):
        return (yield from _move(root, known.record))
    return known.record


def forget_try(root: TableRoot, record: TryRecord) -> Step[None]:
    """Close an open attempt that has left nothing, and keep its state.

    The run's next attempt writes its result. The record of a ``save()`` without an operator is
    removed, since there is no next attempt.
    """
    if record.is_alone:
        yield from remove_try(root, record)
        return
    known = yield from find(root, record.idempotency_key, record.uuid)
    if known is not None and known.key.endswith(_OPEN):
        yield from _move(root, known.record)


def remove_try(root: TableRoot, record: TryRecord) -> Step[Mapping[str, str]]:
    """Remove an attempt's records and reports. Returns the same as :func:`remove_reports`."""
    own = [
        open_key(root, record.idempotency_key, record.uuid),
        closed_key(root, record.idempotency_key, record.uuid),
    ]
    return remove_reports(root, record.uuid, own)


def remove_reports(
    root: TableRoot, run: str, others: Sequence[str] = ()
) -> Step[Mapping[str, str]]:
    """Remove the reports of an attempt's writes, once its own record has their results.

    :param others: more keys to remove.
    :returns: keys that may still be there, with the reason. They only take up space.
    """
    listing = yield from list_objects(reports_prefix(root, run))
    return (yield from remove((key, None) for key in (*listing.keys, *others)))


def _move(root: TableRoot, record: TryRecord) -> Step[TryRecord]:
    """Write an attempt's record under the key of closed ones, and delete the open one."""
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
    what = "Whether the record of an attempt was changed is not known."
    return OutcomeUnknownError(what, key=key, remedy=_AGAIN)
