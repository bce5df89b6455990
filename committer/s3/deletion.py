"""Removing many objects, with every answer looked at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from .requests import DeleteMany, Step, Unknown

#: DeleteObjects takes no more keys than this.
_AT_ONCE = 1000
#: Gone already, or no longer the object that was listed: neither is the caller's to remove.
_NO_FAILURES = ("NoSuchKey", "PreconditionFailed")


def remove(items: Iterable[tuple[str, str | None]]) -> Step[Mapping[str, str]]:
    """Remove keys; one with an ETag only if that is still the current one, where the store heeds
    it. Stops at the first thousand that did not all go.

    :returns: keys that may still be there, each with the S3 error code or what happened instead
        of an answer. Empty where all are gone.
    """
    left = iter(items)
    while chunk := tuple(islice(left, _AT_ONCE)):
        answer = yield DeleteMany(chunk)
        if isinstance(answer, Unknown):
            return {key: answer.cause for key, _ in chunk}
        failed = {key: code for key, code in answer.errors.items() if code not in _NO_FAILURES}
        if failed:
            return failed
    return {}
