"""Multipart uploads under way below a table, each assigned to the S3A job that began it.

Nothing in a listing of uploads says whose they are, so an upload is a job's by, in this order: the
job's pending sets name it; its key is that of one of the job's files; its name carries a UUID that
the names of that job's files carry (Spark gives all files of one write the same).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable

from ...committer.layout import TableRoot
from ...committer.s3 import listing
from ...committer.s3.requests import ListedUpload, ServerName, Step
from .magic_paths import is_native, uuids_in_name

#: A store that lists uploads by prefix as it should; others may show none, as MinIO does.
_LISTS_BY_PREFIX = "AmazonS3"
#: More than one job claims it.
_SEVERAL = -1


def list_uploads(root: TableRoot) -> Step[list[ListedUpload]]:
    """The uploads under way below a table, but those of this package's own committer."""
    return (yield from uploads_below(f"{root.prefix}/"))


def uploads_below(prefix: str) -> Step[list[ListedUpload]]:
    """The same below a folder, with a slash at its end; ``""`` for the whole bucket.

    A store may show none for a prefix and all for the bucket: where the first shows none, the
    second is asked, unless the store is known to do as it should.
    """
    found = yield from listing.list_uploads(prefix)
    if not found and prefix and (yield ServerName()) != _LISTS_BY_PREFIX:
        found = yield from listing.list_uploads("")
    # A store that pages badly lists an upload twice.
    unique = {(u.key, u.upload_id): u for u in found if u.key.startswith(prefix)}
    return [u for u in unique.values() if not is_native(u.key)]


def staging_job(key: str) -> str:
    """The job in the name of a staging committer's file, ``""`` for none: it adds its UUID behind
    Spark's, so the last is the job's."""
    names = uuids_in_name(key)
    return names[-1] if names else ""


def is_staged_name(key: str) -> bool:
    """Whether a file has the name that a staging committer gives it: Spark's UUID of the write,
    and the job's (``fs.s3a.committer.staging.unique-filenames``, which is on)."""
    return len(uuids_in_name(key)) > 1


class UploadOwners:
    """The jobs that lay claim to uploads, by their places in the order they were given in.

    Names and keys are as many as files: each has one number, and none a set of its own.

    :param claims: of each job its UUID, ``""`` where it is not known; (key, UploadId) of those
        that its pending sets name; the keys of all its files, those of uncommitted task attempts
        included.
    """

    def __init__(
        self, claims: Iterable[tuple[str, Collection[tuple[str, str]], Collection[str]]]
    ) -> None:
        self._named: dict[tuple[str, str], int] = {}
        self._keys: dict[str, int] = {}
        self._uuids: dict[str, set[int]] = defaultdict(set)
        for index, (job, uploads, keys) in enumerate(claims):
            for named in uploads:
                self._named[named] = _SEVERAL if named in self._named else index
            for key in keys:
                self._keys[key] = _SEVERAL if key in self._keys else index
                for uuid in uuids_in_name(key):
                    self._uuids[uuid].add(index)
            if job:
                self._uuids[job.lower()].add(index)

    def owner_of(self, upload: ListedUpload) -> int | None:
        """The job of an upload; ``None`` where nothing or more than one job claims it."""
        index = self._named.get((upload.key, upload.upload_id), self._keys.get(upload.key))
        if index is None:
            by_name = [self._uuids.get(uuid, set()) for uuid in uuids_in_name(upload.key)]
            claims = set().union(*by_name)
            index = next(iter(claims)) if len(claims) == 1 else None
        return None if index == _SEVERAL else index
