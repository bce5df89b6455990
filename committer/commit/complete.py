"""Completion of a committed job's pending files: each becomes visible, or is seen to be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeGuard

from ..errors import DataLostError, ZeroRenameError
from ..format.layout import JOB_METADATA
from ..format.records.pending_file import PendingFile
from ..store.backoff import Backoff
from ..store.listing import list_uploads
from ..store.requests import Absent, CompleteUpload, Done, Found, Head, Refused, Step, Unknown
from .state.context import Context

#: As patient as a request that the driver repeats: the pauses come to a minute, and each failed try
#: reads besides, which waits for a store that is away.
COMPLETE = Backoff(tries=16, first=0.5, cap=8.0)
#: The try, counted from 0, from which on the upload is looked for.
_LISTED_FROM = 2


@dataclass(frozen=True)
class MissingFilePolicy:
    """What an applier makes of a file that is not there after an answer other than Done.

    :param is_seen_to: whether another applier has seen to the file, so that none need be sent
        again. It may raise ``failure`` where another one is of no use.
    :param failure: the error once no request is left. Both get the last answer, and what is at
        the file's key: nothing, or another object.
    """

    is_seen_to: Callable[[Refused | Unknown, Found | Absent], Step[bool]]
    failure: Callable[[Refused | Unknown, Found | Absent], ZeroRenameError]


def complete_file(
    context: Context, job: str, file: PendingFile, missing: MissingFilePolicy
) -> Step[Done | Found | None]:
    """Complete one pending file, or see that it is done.

    NoSuchUpload is the answer of an upload that was completed before, by us with the answer
    lost or by another applier; the object then is there and names the job. Some stores answer 500
    instead (Ceph, moto), also for an upload that somebody aborted: after the third answer that is
    not Done, a listing of uploads tells whether it is there. On a store that does not list uploads
    nothing tells, so that only the store's own refusal makes a file lost.

    An object that a stranger put at the key meanwhile is written over as long as the upload is
    there: the key carries the job's id, and the decision names it.

    :returns: the answer to our own request, or the object that was there; ``None`` where another
        applier has seen to the file.
    :raises ZeroRenameError: the ``failure`` of ``missing``.
    """
    request = CompleteUpload(file.key, file.upload_id, file.etags)
    answer: Done | Refused | Unknown = Unknown("nothing was sent")
    found: Found | Absent = Absent(0.0)
    for attempt in COMPLETE.attempts():
        yield from COMPLETE.pause(attempt)
        answer = yield from request
        if isinstance(answer, Done):
            return answer
        found = yield from Head(file.key)
        if is_that_file(found, job, file):
            return found
        if (yield from missing.is_seen_to(answer, found)):
            return None
        if attempt >= _LISTED_FROM and (yield from _is_gone(context, file)):
            # Listed before the object is looked at again: one completed in between is seen.
            found = yield from Head(file.key)
            if is_that_file(found, job, file):
                return found
            if (yield from missing.is_seen_to(answer, found)):
                return None
            raise missing.failure(Refused("NoSuchUpload"), found)
    raise missing.failure(answer, found)


def is_that_file(found: Found | Absent, job: str, file: PendingFile) -> TypeGuard[Found]:
    """Whether the object at a committed file's key is that file."""
    if isinstance(found, Absent):
        return False
    return found.size == file.size and found.metadata.get(JOB_METADATA) == job


def _is_gone(context: Context, file: PendingFile) -> Step[bool]:
    """Whether a listing of uploads tells that a file's is not there."""
    if not context.facts.uploads_listed:
        return False
    listed = yield from list_uploads(file.key if context.facts.uploads_by_prefix else "")
    return all((it.key, it.upload_id) != (file.key, file.upload_id) for it in listed)


def lost(
    job: str, file: PendingFile, answer: Refused, found: Found | Absent, meanwhile: str, remedy: str
) -> DataLostError:
    """What is raised for a committed file whose upload and object are both gone.

    :param found: what is at its key.
    :param meanwhile: how it is with the rest of the job, a sentence.
    :param remedy: how to go on without the file, a sentence or two.
    """
    there, look = "there is no object", "Look for a lifecycle rule or a tool that aborts uploads"
    if isinstance(found, Found):
        there = (
            f"the object at its key is not that file: {found.size} bytes of job "
            f"{found.metadata.get(JOB_METADATA)!r}, decided were {file.size} bytes"
        )
        look = "Find out who wrote the object, which was left as it is"
    return DataLostError(
        f"A committed file is lost: its upload {file.upload_id} is gone ({answer.code}) and "
        f"{there}. {meanwhile}",
        job=job,
        key=file.key,
        remedy=f"{look}{remedy}",
    )
