"""Conditional writes of records, repeated until their outcome is known or declared uncertain.

After a time-out, a 409, a 412 or a 5xx of a conditional PUT the outcome is unknown: the record is
read back and its write id compared. Sending the same bytes under the same condition again is safe:
if the first request lands late, the second is refused, and the write id read back is this writer's
own.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from ..errors import StoreRefusedError, StoreUnreachableError
from .backoff import Backoff
from .requests import LIST_BYTES, Absent, Done, Found, Get, Put, Refused, Step, Unknown

#: Enough tries for a store that leaves one answer in five *unknown*, in all of a job's writes. A
#: store may also be away for a minute: the pauses alone add up to that.
_TRIES = Backoff(tries=20, first=0.2, cap=8.0)
#: Refusals in a row of a condition that holds: more are no passing failure of the store.
_REFUSALS = 5


@dataclass(frozen=True)
class Written:
    """The record is in the store. ``date`` is when the store said so, by its clock."""

    etag: str
    date: float


@dataclass(frozen=True)
class NotWritten:
    """The record was not written since the condition did not hold: ``current`` is there instead.

    :param seen_before: a request got no clear answer, so the record may have been in the store
        and been changed since.
    """

    current: Found | Absent
    seen_before: bool


@dataclass(frozen=True)
class Uncertain:
    """It is not known from the store's answers whether the record was or will be written.

    :param refused: the store refuses the condition again and again, though the condition holds
        each time.
    """

    cause: str
    refused: bool = False


def write_id_of(body: bytes, *within: str) -> str | None:
    """Return the write id in a record's bytes, or in a member of it; ``None``: not found."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    for name in (*within, "write_id"):
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, str) else None


def put_record(
    put: Put, write_id: str, read_id: Callable[[bytes], str | None] = write_id_of
) -> Step[Written | NotWritten | Uncertain]:
    """Write a record under its condition and find out the outcome.

    :param write_id: the write id in the record's body; ``read_id`` finds it there.
    :raises StoreUnreachableError: nothing was sent.
    :raises StoreRefusedError: the store refused the first request, for example for lack of rights.
    """
    cause = ""
    refusals = 0
    for attempt in _TRIES.attempts():
        yield from _TRIES.pause(attempt)
        try:
            answer = yield from put
        except (StoreUnreachableError, StoreRefusedError) as error:
            if not cause:
                raise  # Nothing was sent, or the store said no: our record is not there.
            return Uncertain(error.message)
        if isinstance(answer, Done):
            return Written(answer.etag, answer.date)
        try:
            current = yield from Get(put.key, most=LIST_BYTES)
        except (StoreUnreachableError, StoreRefusedError) as error:
            return Uncertain(error.message)
        if isinstance(current, Found) and read_id(current.body) == write_id:
            return Written(current.etag, current.last_modified)
        if not _still_holds(put, current):
            in_doubt = bool(cause) or isinstance(answer, Unknown)
            return NotWritten(current, seen_before=in_doubt)
        # A 412 while the condition holds is about a former state of the key; a 409 says that the
        # request may be tried again. Without an answer it must be tried again, too.
        cause = answer.code if isinstance(answer, Refused) else answer.cause
        refusals = refusals + 1 if cause == "PreconditionFailed" else 0
        if refusals == _REFUSALS:
            return Uncertain(cause, refused=True)
    return Uncertain(cause)


def _still_holds(put: Put, current: Found | Absent) -> bool:
    if put.if_none_match:
        return isinstance(current, Absent)
    if put.if_match is not None:
        return isinstance(current, Found) and current.etag == put.if_match
    return True
