"""Comparison of an object with the upload that would have become it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from enum import Enum

from ...committer.s3.requests import Found
from ..hadoop.commit_files import PendingCommit


class Match(Enum):
    """Whether an object is what completing an upload made."""

    SAME = 1
    #: Size and time speak for it, and its ETag neither for nor against.
    UNSURE = 2
    OTHER = 3


def composite_etag(etags: Sequence[str]) -> str | None:
    """The ETag S3 gives an object made of parts, where the parts' ETags are MD5 sums; ``None``
    where they do not look like it."""
    try:
        digests = b"".join(bytes.fromhex(etag) for etag in etags)
    except ValueError:
        return None
    if not etags or len(digests) != 16 * len(etags):
        return None
    return f"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(etags)}"


def compare(commit: PendingCommit, found: Found, since: float) -> Match:
    """Compare. An ETag made of the parts' proves it. Another one proves nothing: under SSE-KMS
    and SSE-C ETags are no checksums (S3 User Guide, "Checking object integrity"), though they
    look like some, and other stores make them as they like.

    :param since: when the task had committed, by the store's clock: the file came later.
    """
    if found.size != commit.length:
        return Match.OTHER
    if found.etag == composite_etag(commit.etags):
        return Match.SAME
    return Match.UNSURE if found.last_modified >= since else Match.OTHER
