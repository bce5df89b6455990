"""Files of a dead job: where each is that its pending sets name, whose an object at its key is,
and which others carry its UUID."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ...committer.store.listing import list_objects
from ...committer.store.requests import All, Found, Head, ListedObject, Step
from ..hadoop.commit_files import PendingCommit
from ..hadoop.magic_paths import is_magic, is_staged_name, uuids_in_name
from .leftovers import Kind, LeftoverJob


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


def look_at_files(job: LeftoverJob) -> Step[tuple[PlannedFile, ...]]:
    """Where each file is that the job's pending sets name: one HEAD for each not outstanding."""
    under_way = {(upload.key, upload.upload_id) for upload in job.uploads}
    looks = [
        _look(commit, (commit.key, commit.upload_id) in under_way, one.last_modified)
        for one in job.sets
        if one.read is not None
        for commit in one.read.commits
    ]
    return tuple((yield from All(tuple(looks))))


def _look(commit: PendingCommit, is_under_way: bool, since: float) -> Step[PlannedFile]:
    file = PlannedFile(commit, Presence.OUTSTANDING, since)
    if is_under_way:
        return file
    found = yield from Head(commit.key)
    presence = file.whose(found) if isinstance(found, Found) else Presence.MISSING
    return PlannedFile(commit, presence, since)


def unclaimed_files(job: LeftoverJob) -> Step[tuple[str, ...] | None]:
    """Keys of complete files that no readable pending set names and that carry the UUID of a job
    whose sets do not name all it wrote; ``None`` where nothing says what its files are called.

    A staging committer's driver that dies in its job commit leaves some files complete and the
    uploads of the others; a pending set that cannot be read may have named some. Names are easily
    made: such files are told, and never removed.
    """
    alone = {upload.key for upload in job.uploads}
    named = {commit.key for commit in job.commits}
    if job.kind is Kind.UPLOADS:
        uuids, direct = {job.uuid.lower()} - {""}, not any(map(is_staged_name, alone))
    else:
        direct = False
        uuids = {uuid for key in alone.union(job.running, named) for uuid in uuids_in_name(key)}
        # The names of a magic job's files carry Spark's UUID alone.
        uuids |= {job.uuid.lower()} if job.kind is Kind.STAGING else set()
    if not uuids:
        return () if job.kind is Kind.UPLOADS else None

    def is_its(item: ListedObject) -> bool:
        return not is_magic(item.key) and not uuids.isdisjoint(uuids_in_name(item.key))

    # What a staging job completed may be anywhere; else it is asked whether other attempts won.
    places = {f"{key.rpartition('/')[0]}/" for key in alone} if direct else {f"{job.destination}/"}
    listed = yield from All(tuple(list_objects(place, direct, is_its) for place in sorted(places)))
    return tuple(sorted({key for one in listed for key in one.keys} - named))
