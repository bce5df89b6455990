"""Completion of a committed job's pending files: each becomes visible, or is seen to be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..errors import DamagedError, DataLostError, ZeroRenameError
from ..layout import JOB_METADATA
from ..records.pending_file import PendingFile
from ..s3.backoff import Backoff
from ..s3.listing import list_uploads
from ..s3.requests import CompleteUpload, Done, Found, Head, Refused, Step, Unknown
from ..state.context import Context

#: The try, counted from 0, from which on the upload is looked for.
_LISTED_FROM = 2


@dataclass(frozen=True)
class Absence:
    """What an applier makes of a file that is not there after an answer other than Done.

    :param backoff: how many requests to send at most, and when.
    :param is_seen_to: whether another applier has seen to the file, so that none need be sent
        again. It may raise ``failure`` where another one is of no use.
    :param failure: the error once no request is left.
    """

    backoff: Backoff
    is_seen_to: Callable[[Refused | Unknown], Step[bool]]
    failure: Callable[[Refused | Unknown], ZeroRenameError]


def complete_file(
    context: Context, job: str, file: PendingFile, absence: Absence
) -> Step[Done | Found | None]:
    """Complete one pending file, or see that it is done.

    NoSuchUpload is the answer of an upload that was completed before, by us with the answer
    lost or by another applier; the object then is there and names the job. Some stores answer 500
    instead (Ceph, moto), also for an upload that somebody aborted: after the third answer that is
    not Done, a listing of uploads tells whether it is there.

    :returns: the answer to our own request, or the object that was there; ``None`` where another
        applier has seen to the file.
    :raises DamagedError: another object is there.
    :raises ZeroRenameError: the ``failure`` of ``absence``.
    """
    request = CompleteUpload(file.key, file.upload_id, file.etags)
    answer: Done | Refused | Unknown = Unknown("nothing was sent")
    for attempt in absence.backoff.attempts():
        yield from absence.backoff.pause(attempt)
        answer = yield request
        if isinstance(answer, Done):
            return answer
        found = yield Head(file.key)
        if isinstance(found, Found):
            _check_object(context, job, file, found)
            return found
        if (yield from absence.is_seen_to(answer)):
            return None
        if attempt >= _LISTED_FROM and not (yield from _is_listed(context, file)):
            # Listed before the object is looked at again: one completed in between is seen.
            found = yield Head(file.key)
            if isinstance(found, Found):
                _check_object(context, job, file, found)
                return found
            if (yield from absence.is_seen_to(answer)):
                return None
            raise absence.failure(Refused("NoSuchUpload"))
    raise absence.failure(answer)


def _is_listed(context: Context, file: PendingFile) -> Step[bool]:
    """Whether the store shows a file's upload."""
    listed = yield from list_uploads(file.key if context.facts.uploads_by_prefix else "")
    return any((it.key, it.upload_id) == (file.key, file.upload_id) for it in listed)


def lost(
    context: Context, job: str, file: PendingFile, answer: Refused, meanwhile: str, remedy: str
) -> DataLostError:
    """What is raised for a committed file whose upload and object are both gone.

    :param meanwhile: how it is with the rest of the job, a sentence.
    :param remedy: how to go on without the file, a sentence or two.
    """
    return DataLostError(
        f"A committed file is lost: its upload {file.upload_id} is gone ({answer.code}) and there "
        f"is no object. {meanwhile}",
        table=context.root.url,
        job=job,
        key=file.key,
        remedy=f"Look for a lifecycle rule or a tool that aborts uploads{remedy}",
    )


def _check_object(context: Context, job: str, file: PendingFile, found: Found) -> None:
    """See that the object at a committed file's key is that file.

    :raises DamagedError: it is another one.
    """
    if found.size != file.size or found.metadata.get(JOB_METADATA) != job:
        raise DamagedError(
            f"The object at a committed file's key is not that file: {found.size} bytes of job "
            f"{found.metadata.get(JOB_METADATA)!r}, decided were {file.size} bytes.",
            table=context.root.url,
            job=job,
            key=file.key,
            remedy="Find out who wrote the object; it was left as it is.",
        )
