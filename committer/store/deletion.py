"""Removal of many objects and abort of many uploads, with a check of every answer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice

from ..errors import StoreRefusedError, StoreUnreachableError
from .backoff import Backoff
from .requests import AbortUpload, All, DeleteMany, Done, ListedUpload, Refused, Step, Unknown

#: Rounds of aborts; there is no pause before the second.
_ROUNDS = Backoff(tries=5, first=0.5, at_once=2)
#: Most keys of DeleteObjects.
_AT_ONCE = 1000
#: Code of a refusal for want of a right. Another try is refused, too, until somebody grants it.
DENIED = "AccessDenied"
#: The object is missing already, or no longer the one that was listed: there is nothing to remove.
_NO_FAILURES = ("NoSuchKey", "PreconditionFailed")


#: Passing failures: a store that throttles answers 200 and names the keys that it did not remove.
_PASSING = ("SlowDown", "InternalError", "ServiceUnavailable", "RequestTimeout")
_TRIES = Backoff(tries=10, first=0.5, cap=8.0)


def remove(items: Iterable[tuple[str, str | None]]) -> Step[Mapping[str, str]]:
    """Remove keys; a key with an ETag only if its current ETag is the same.

    Not every store obeys the ETag. Keys that the store was too busy to remove are sent again. The
    removal stops after the first thousand in which keys were left.

    :returns: keys that may still be there, each with the S3 error code, or with the cause if there
        was no answer. Empty: all are removed.
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


def is_denied(cause: str) -> bool:
    """Return whether a removal or an abort was refused for want of a right.

    :param cause: as :func:`remove` and :func:`abort_uploads` return it.
    """
    return cause.startswith(DENIED)


def denial(key: str, cause: str) -> StoreRefusedError | None:
    """Build the error of a removal that was refused for want of a right; ``None``: of another one.

    :param cause: as :func:`remove` returns it.
    """
    if not is_denied(cause):
        return None
    return StoreRefusedError(
        f"The store does not let these credentials remove this object ({cause}).",
        lacks_right=True,
        key=key,
        remedy="Grant s3:DeleteObject, and see the bucket's policy and retention (Object Lock).",
    )


def abort_until_gone(
    uploads: Collection[ListedUpload],
    listed: Callable[[], Step[Iterable[ListedUpload]]],
    rounds: Backoff = _ROUNDS,
) -> Step[dict[ListedUpload, str]]:
    """Abort uploads until none of them is listed any more: the answer *done* is not enough.

    :param listed: lists those of the uploads that are still there, and perhaps others.
    :returns: uploads that are still there, each with the store's last answer.
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
    """Abort uploads, as many at once as the driver has connections.

    Only a listing shows that an upload is aborted: even after *done*, a part that arrives late can
    leave parts in the store.

    :returns: uploads whose abort was not answered by *done*, each with the answer.
    """
    said = yield from All(tuple(_abort(upload) for upload in uploads))
    return {upload: cause for upload, cause in zip(uploads, said, strict=True) if cause}


def _abort(upload: ListedUpload) -> Step[str]:
    """Abort an upload.

    :returns: the store's answer; ``""``: *done*.
    """
    try:
        answer = yield from AbortUpload(upload.key, upload.upload_id)
    except StoreRefusedError as error:
        return f"{DENIED}: {error.message}" if error.lacks_right else error.message
    except StoreUnreachableError as error:
        return error.message
    if isinstance(answer, Done):
        return ""
    return answer.code if isinstance(answer, Refused) else answer.cause
