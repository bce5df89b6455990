"""Removing many objects and aborting many uploads, with every answer looked at."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice

from ..errors import StoreRefusedError, StoreUnreachableError
from .backoff import Backoff
from .requests import AbortUpload, All, DeleteMany, Done, ListedUpload, Refused, Step, Unknown

#: Rounds of aborting; the second comes at once.
_ROUNDS = Backoff(tries=5, first=0.5, at_once=2)
#: DeleteObjects takes no more keys than this.
_AT_ONCE = 1000
#: Gone already, or no longer the object that was listed: neither is the caller's to remove.
_NO_FAILURES = ("NoSuchKey", "PreconditionFailed")


#: Failures of the moment: a store that throttles answers 200 and names the keys it left.
_PASSING = ("SlowDown", "InternalError", "ServiceUnavailable", "RequestTimeout")
_TRIES = Backoff(tries=10, first=0.5, cap=8.0)


def remove(items: Iterable[tuple[str, str | None]]) -> Step[Mapping[str, str]]:
    """Remove keys; one with an ETag only if that is still the current one, where the store heeds
    it. Keys that the store is too busy for are asked for again. Stops at the first thousand that
    did not all go.

    :returns: keys that may still be there, each with the S3 error code or what happened instead
        of an answer. Empty where all are gone.
    """
    left = iter(items)
    while chunk := tuple(islice(left, _AT_ONCE)):
        failed = yield from _remove_at_once(chunk)
        if failed:
            return failed
    return {}


def _remove_at_once(chunk: tuple[tuple[str, str | None], ...]) -> Step[Mapping[str, str]]:
    failed: dict[str, str] = {}
    for attempt in _TRIES.attempts():
        yield from _TRIES.pause(attempt)
        answer = yield from DeleteMany(chunk)
        if isinstance(answer, Unknown):
            return {key: answer.cause for key, _ in chunk}
        failed = {key: code for key, code in answer.errors.items() if code not in _NO_FAILURES}
        if not any(code in _PASSING for code in failed.values()):
            break
        chunk = tuple(item for item in chunk if item[0] in failed)
    return failed


def abort_until_gone(
    uploads: Collection[ListedUpload],
    listed: Callable[[], Step[Iterable[ListedUpload]]],
    rounds: Backoff = _ROUNDS,
) -> Step[dict[ListedUpload, str]]:
    """Abort uploads until none of them is listed any more: *done* is not enough.

    :param listed: lists what is there now of those uploads, and perhaps others.
    :returns: those that still are there, each with what the store said last.
    """
    left = {(upload.key, upload.upload_id): upload for upload in uploads}
    said: dict[ListedUpload, str] = {}
    for attempt in rounds.attempts():
        if not left:
            break
        yield from rounds.pause(attempt)
        said = yield from abort_uploads(tuple(left.values()))
        there = {(upload.key, upload.upload_id) for upload in (yield from listed())}
        left = {name: upload for name, upload in left.items() if name in there}
    return {u: said.get(u) or "the store said that it did" for u in left.values()}


def abort_uploads(uploads: Collection[ListedUpload]) -> Step[dict[ListedUpload, str]]:
    """Abort uploads, as many at once as the driver has connections. A listing tells which went:
    a part that arrives late can leave parts behind even after *done*.

    :returns: those that the store did not say were aborted, each with what it said instead.
    """
    said = yield from All(tuple(_abort(upload) for upload in uploads))
    return {upload: cause for upload, cause in zip(uploads, said, strict=True) if cause}


def _abort(upload: ListedUpload) -> Step[str]:
    """:returns: what the store said, ``""`` for *done*."""
    try:
        answer = yield from AbortUpload(upload.key, upload.upload_id)
    except (StoreRefusedError, StoreUnreachableError) as error:
        return error.message
    if isinstance(answer, Done):
        return ""
    return answer.code if isinstance(answer, Refused) else answer.cause
