"""Abortion of multipart uploads, until none of them is listed."""

from __future__ import annotations

from collections.abc import Collection

from ...committer.s3.backoff import Backoff
from ...committer.s3.requests import AbortUpload, All, Done, Refused, Step, Unknown
from .upload_owners import uploads_below

_TRIES = Backoff(tries=5, first=0.5)
#: The second look comes at once.
_ROUNDS = Backoff(tries=5, first=0.5, at_once=2)


def abort_upload(key: str, upload_id: str) -> Step[Done | Refused | Unknown]:
    """Abort one, asking again while the store does not say what became of it."""
    answer: Done | Refused | Unknown = Unknown("")
    for attempt in _TRIES.attempts():
        yield from _TRIES.pause(attempt)
        answer = yield AbortUpload(key, upload_id)
        if not isinstance(answer, Unknown):
            return answer
    return answer


def abort_uploads(
    prefix: str, wanted: Collection[tuple[str, str]], gone: Collection[tuple[str, str]]
) -> Step[tuple[int, int]]:
    """Abort uploads until a listing shows none: a part that arrives late can leave an aborted
    upload's parts behind (S3 API, AbortMultipartUpload).

    :param prefix: a folder that holds them all, with a slash at its end; ``""`` for the bucket.
    :param wanted: (key, UploadId) of those to abort.
    :param gone: what a listing may not show afterwards.
    :returns: how many were aborted, and how many of ``gone`` are still listed.
    """
    todo, aborted = set(wanted), set[tuple[str, str]]()
    for attempt in _ROUNDS.attempts():
        yield from _ROUNDS.pause(attempt)
        yield All(tuple(abort_upload(*one) for one in sorted(todo)))
        aborted |= todo
        listed = yield from uploads_below(prefix)
        todo = {(u.key, u.upload_id) for u in listed} & set(gone)
        if not todo:
            break
    return len(aborted), len(todo)
