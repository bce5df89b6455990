"""Completion of a committed job's pending files: each becomes visible, or is found visible."""

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

#: Waits as long as a request that the driver repeats: the pauses sum up to a minute, and each
#: failed attempt also sends a read, which waits for a store that does not answer.
COMPLETE = Backoff(tries=16, first=0.5, cap=8.0)
#: The attempt, counted from 0, from which on the upload is looked for in a listing.
_LISTED_FROM = 2


@dataclass(frozen=True)
class MissingFilePolicy:
    """Reaction of an applier to a file that is not there after an answer other than Done.

    Both functions get the last answer, and what is at the file's key: nothing, or another object.

    :param is_seen_to: whether another applier has completed the file, so that no request need be
        sent again. It may raise ``failure`` if another request is of no use.
    :param failure: builds the error once no request is left.
    """

    is_seen_to: Callable[[Refused | Unknown, Found | Absent], Step[bool]]
    failure: Callable[[Refused | Unknown, Found | Absent], ZeroRenameError]


def complete_file(
    context: Context, job: str, file: PendingFile, missing: MissingFilePolicy
) -> Step[Done | Found | None]:
    """Complete one pending file, or find that it is complete.

    NoSuchUpload is the answer for an upload that was completed before, by us with the answer lost,
    or by another applier. The object is then there and names the job. Some stores answer 500
    instead (Ceph, moto), also for an aborted upload: so after the third answer that is not Done, a
    listing of uploads shows whether the upload is there. If a store does not list uploads, only its
    own refusal makes a file lost.

    If a foreign program has put an object at the key meanwhile, it is overwritten while the upload
    is there: the key carries the job's id, and the decision names it.

    :returns: the answer to our own request, or the object that was there; ``None`` if another
        applier has completed the file.
    :raises ZeroRenameError: the ``failure`` of ``missing``.
    """
    request = CompleteUpload(file.key, file.upload_id, file.etags)
    answer: Refused | Unknown = Unknown("nothing was sent")
    found: Found | Absent = Absent(0.0)
    for attempt in COMPLETE.attempts():
        yield from COMPLETE.pause(attempt)
        answered = yield from request
        if isinstance(answered, Done):
            return answered
        answer = answered
        found = yield from Head(file.key)
        if is_that_file(found, job, file):
            return found
        if (yield from missing.is_seen_to(answer, found)):
            return None
        if attempt >= _LISTED_FROM and (yield from _is_gone(context, file)):
            # The upload was listed first, then the object is read again: so a completion in between
            # is noticed.
            found = yield from Head(file.key)
            if is_that_file(found, job, file):
                return found
            if (yield from missing.is_seen_to(answer, found)):
                return None
            raise missing.failure(Refused("NoSuchUpload"), found)
    raise missing.failure(answer, found)


def is_that_file(found: Found | Absent, job: str, file: PendingFile) -> TypeGuard[Found]:
    """Return whether the object at a committed file's key is that file."""
    if isinstance(found, Absent):
        return False
    return found.size == file.size and found.metadata.get(JOB_METADATA) == job


def _is_gone(context: Context, file: PendingFile) -> Step[bool]:
    """Return whether a listing of uploads shows that a file's upload is not there."""
    if not context.facts.uploads_listed:
        return False
    listed = yield from list_uploads(file.key if context.facts.uploads_by_prefix else "")
    return all((it.key, it.upload_id) != (file.key, file.upload_id) for it in listed)


def lost(
    job: str, file: PendingFile, answer: Refused, found: Found | Absent, meanwhile: str, remedy: str
) -> DataLostError:
    """Build the error of a committed file that has neither upload nor object.

    :param found: what is at its key.
    :param meanwhile: the state of the rest of the job, a sentence.
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
