"""The commit point: one PUT with If-None-Match, and what became of it.

==================  =====================================================================
answer              then
==================  =====================================================================
done                written
412                 the entry there is read: ours (an earlier answer was lost), or another's,
                    and those right after it where many jobs commit at once
409, none           the entry is read; where none is, the same bytes at the same number
412, none there     the same: the answer spoke of a state that has passed
never any           unknown: it may be there, or come
==================  =====================================================================

The same number, since a next one would leave a hole if this one does not come, or commit twice if
it does. Where others clean the log, no request is sent after the deadline: a number may be free
again by then, and an entry there would be in the void. An answer that is not known stays so where
what lies at the number cannot be read.
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

#: As of other conditional writes: a store may be away for a minute.
_TRIES = Backoff(tries=20, first=0.2, cap=8.0)


@dataclass(frozen=True)
class NumberTaken:
    """The number's entry: ours, or another's.

    :param later: the entries right after another's, as far as they were asked for.
    """

    entry: LogEntry
    later: tuple[LogEntry, ...] = ()


@dataclass(frozen=True)
class NumberUnsure:
    """No answer tells whether our entry is or will be there."""

    cause: str


@dataclass(frozen=True)
class ListingExpired:
    """The deadline passed.

    :param sent: the entry was sent before that.
    """

    sent: bool


def put_entry(
    folder: LogFolder,
    version: int,
    body: bytes,
    deadline: float | None,
    contention: Contention = CALM,
) -> Step[NumberTaken | NumberUnsure | ListingExpired]:
    """Write an entry and find out whose the number is.

    :raises StoreUnreachableError: nothing was sent.
    :raises StoreRefusedError: the store refused the first request for want of rights.
    :raises InvalidInputError: nobody would read an entry of so many bytes. Nothing was sent.
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
    """Read the entry at a number and those right after it. If that fails, read the first alone: it
    is enough to tell what became of ours."""
    if ahead:
        numbers = range(version, version + 1 + ahead)
        with suppress(StoreUnreachableError, StoreRefusedError):
            return (
                yield from All(tuple(Get(folder.entry(it), most=ENTRY_BYTES) for it in numbers))
            )
    return ((yield Get(folder.entry(version), most=ENTRY_BYTES)),)


def _readable(found: Iterable[Found | Absent], first: int) -> tuple[LogEntry, ...]:
    """Read entries up to the first that is missing or damaged: its number is asked for next, and
    then a damage is reported."""
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
