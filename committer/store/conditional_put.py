"""Conditional writes of records whose outcome is known in the end, or said not to be.

After a time-out, a 409, a 412 or a 5xx of a conditional PUT the outcome is unknown: read back and
compare the write id. Sending the same bytes under the same condition again is safe: if the first
request lands late, the second is refused, and the write id read back is our own.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from ..errors import StoreRefusedError, StoreUnreachableError
from .backoff import Backoff
from .requests import LIST_BYTES, Absent, Done, Found, Get, Put, Refused, Step, Unknown

#: One answer in five may be *unknown*, in all of a job's writes; and a store may be away for a
#: minute: the pauses alone come to that.
_TRIES = Backoff(tries=20, first=0.2, cap=8.0)
#: Refusals in a row, of a condition that holds, after which no failure of the store explains them.
_REFUSALS = 5


@dataclass(frozen=True)
class Written:
    """Our record is there. ``date``: when the store said so, by its clock."""

    etag: str
    date: float


@dataclass(frozen=True)
class NotWritten:
    """Another record is there, or none: the condition did not hold.

    :param seen_before: one of our requests got no answer, so our record may have been there and
        been changed since.
    """

    current: Found | Absent
    seen_before: bool


@dataclass(frozen=True)
class Uncertain:
    """The store's answers do not tell whether our record was or will be written.

    :param refused: it refuses the condition again and again, and each time the condition holds.
    """

    cause: str
    refused: bool = False


def write_id_of(body: bytes, *within: str) -> str | None:
    """The write id in a record's bytes, or in a member of it; ``None`` for anything else."""
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
    """Write a record under its condition and find out what became of it.

    :param write_id: the write id in the record's body; ``read_id`` finds it there.
    :raises StoreUnreachableError: nothing was sent.
    :raises StoreRefusedError: the store refused the very first request for want of rights.
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
        # A 412 while the condition holds is an answer to a state that has passed, a 409 asks
        # to try again; no answer asks the same.
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
