"""Commit point of a job in a log: one PUT with If-None-Match, and its outcome.

==================  =====================================================================
answer              then
==================  =====================================================================
done                written
412                 read the entry there: ours (an earlier answer was lost), or another's;
                    if many jobs commit at once, also those right after it
409, or no answer   read the entry; if there is none, send the same bytes again
412, but no entry   the same: the answer was about a former state
never an answer     unknown: the entry may be there, or may come
==================  =====================================================================

The bytes are sent again at the same number. With another number the log would have a hole if the
first PUT does not arrive, or the job would commit twice if it does. Where other engines clean the
log, no request is sent after the deadline: the number may have been cleaned by then, and no reader
would see an entry there. If the object at the number cannot be read, the outcome stays unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from ..committer.errors import (
    InvalidInputError,
    RecordDamagedError,
    StoreRefusedError,
    StoreUnreachableError,
)
from ..committer.store.backoff import Backoff
from ..committer.store.requests import Absent, All, Clock, Done, Found, Get, Put, Refused, Step
from .contention import CALM, Contention
from .entries import ENTRY_BYTES, LogEntry, LogFolder, read_entry

#: As for other conditional writes: a store may be unreachable for a minute.
_TRIES = Backoff(tries=20, first=0.2, cap=8.0)


@dataclass(frozen=True)
class NumberTaken:
    """The entry at a number: ours, or another's.

    :param later: the entries right after another's, if they were requested.
    """

    entry: LogEntry
    later: tuple[LogEntry, ...] = ()


@dataclass(frozen=True)
class NumberUnsure:
    """Unknown outcome: our entry may be at the number, or may still arrive there."""

    cause: str


@dataclass(frozen=True)
class ListingExpired:
    """Outcome of an entry whose deadline has passed.

    :param sent: the entry was sent before the deadline, without a certain answer.
    """

    sent: bool


def put_entry(
    folder: LogFolder,
    version: int,
    body: bytes,
    deadline: float | None,
    contention: Contention = CALM,
) -> Step[NumberTaken | NumberUnsure | ListingExpired]:
    """Write an entry, and find out which entry is at the number.

    :param deadline: the time of this process's clock after which nothing is sent; ``None``: none.
    :raises StoreUnreachableError: nothing was sent.
    :raises StoreRefusedError: the store refused the first request: a right is missing.
    :raises InvalidInputError: the entry is larger than readers accept. Nothing was sent.
    :raises RecordDamagedError: another's entry is there, and cannot be read.
    """
    if len(body) > ENTRY_BYTES:
        raise InvalidInputError(
            f"The job's entry would have {len(body):,} bytes, more than {ENTRY_BYTES:,}. "
            "Nothing was written.",
            key=folder.entry(version),
            remedy="Write fewer files, or load in several jobs.",
        )
    cause, may_come, key = "", False, folder.entry(version)
    for attempt in _TRIES.attempts():
        yield from _TRIES.pause(attempt)
        if deadline is not None and (yield from Clock()) >= deadline:
            return ListingExpired(sent=bool(cause))
        sent_at = (yield from Clock()) if contention.is_patient else 0.0
        try:
            answer = yield from Put(key, body, if_none_match=True)
        except (StoreUnreachableError, StoreRefusedError) as error:
            if not cause:
                raise
            return NumberUnsure(error.message)
        if isinstance(answer, Done):
            found = Found(key, answer.etag, len(body), answer.date, answer.date, body)
            return NumberTaken(read_entry(found, version))
        cause = answer.code if isinstance(answer, Refused) else answer.cause
        may_come = may_come or not isinstance(answer, Refused)
        if isinstance(answer, Refused) and contention.is_patient:
            yield from contention.give_way(sent_at)
        try:
            there, *after = yield from _read_from(folder, version, contention.ahead)
            if isinstance(there, Found):
                return NumberTaken(read_entry(there, version), _readable(after, version + 1))
        except (StoreUnreachableError, StoreRefusedError) as error:
            return NumberUnsure(error.message)
        except RecordDamagedError as error:
            if not may_come:
                raise
            return NumberUnsure(error.message)
    return NumberUnsure(cause)


def _read_from(folder: LogFolder, version: int, ahead: int) -> Step[tuple[Found | Absent, ...]]:
    """Read the entry at a number and those right after it. If that fails, read only the first: it
    is enough to show the outcome of our PUT."""
    if ahead:
        numbers = range(version, version + 1 + ahead)
        with suppress(StoreUnreachableError, StoreRefusedError):
            return (
                yield from All(tuple(Get(folder.entry(it), most=ENTRY_BYTES) for it in numbers))
            )
    return ((yield Get(folder.entry(version), most=ENTRY_BYTES)),)


def _readable(found: Iterable[Found | Absent], first: int) -> tuple[LogEntry, ...]:
    """Read entries up to the first that is missing or damaged. The job tries its number next, which
    then reports the damage."""
    entries: list[LogEntry] = []
    for it in found:
        if isinstance(it, Absent):
            break
        try:
            entries.append(read_entry(it, first + len(entries)))
        except RecordDamagedError:
            break
    return tuple(entries)


def is_ours(taken: NumberTaken, txn_id: str) -> bool:
    return taken.entry.txn_id == txn_id
