"""The files that a job's pending sets name: where each is, and whose an object at its key is."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ...committer.s3.requests import All, Found, Head, Step
from ..hadoop.commit_files import PendingCommit
from .leftover_job import LeftoverJob


class Presence(StrEnum):
    """Where a file that a pending set names is."""

    WRITTEN = "written"
    OUTSTANDING = "outstanding"
    #: Neither an upload nor an object.
    MISSING = "missing"
    #: No upload, and an object at its key that is another's.
    FOREIGN = "foreign"
    #: No upload, and an object at its key of which only a person can say that it is this file:
    #: size and time speak for it, and its ETag neither for nor against.
    UNSURE = "unsure"


@dataclass(frozen=True)
class PlannedFile:
    """``since``: when the pending set that names it was written, by the store's clock."""

    commit: PendingCommit
    presence: Presence
    since: float

    def whose(self, found: Found) -> Presence:
        """What an object at its key is: written, unsure or foreign. An ETag made of the parts'
        proves it. Another one proves nothing: under SSE-KMS and SSE-C ETags are no checksums (S3
        User Guide, "Checking object integrity"), though they look like some, and other stores
        make them as they like.
        """
        if found.size != self.commit.length:
            return Presence.FOREIGN
        if found.etag == composite_etag(self.commit.etags):
            return Presence.WRITTEN
        return Presence.UNSURE if found.last_modified >= self.since else Presence.FOREIGN


def look_at_files(job: LeftoverJob) -> Step[tuple[PlannedFile, ...]]:
    """Where each file is that the job's pending sets name: one HEAD for each not outstanding."""
    under_way = {(upload.key, upload.upload_id) for upload in job.uploads}
    named = [
        PlannedFile(commit, Presence.OUTSTANDING, one.last_modified)
        for one in job.sets
        if one.read is not None
        for commit in one.read.commits
    ]
    return tuple((yield All(tuple(_look(file, under_way) for file in named))))


def _look(file: PlannedFile, under_way: set[tuple[str, str]]) -> Step[PlannedFile]:
    if (file.commit.key, file.commit.upload_id) in under_way:
        return file
    found = yield Head(file.commit.key)
    presence = file.whose(found) if isinstance(found, Found) else Presence.MISSING
    return PlannedFile(file.commit, presence, file.since)


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
