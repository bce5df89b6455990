"""Selection of uploads: the path they lie below, their age, jobs, and whose they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..errors import InvalidInputError, without_secrets
from ..format.layout import require_job_id
from ..store.requests import ListedUpload, Step
from ..store.s3_urls import SCHEME, check_bucket_part
from .purge_plan import Judged, Whose

#: What an upload is told from others by: its key and UploadId.
Name = tuple[str, str]


def name_of(upload: ListedUpload) -> Name:
    """What an upload is told from others by."""
    return (upload.key, upload.upload_id)


@dataclass(frozen=True)
class NeededBy:
    """The job that may still complete an upload, ``""`` where its id is not known, and how that is
    known, a sentence without its full stop."""

    job: str
    reason: str


#: Which foreign uploads somebody may still need.
Spared = Callable[[Sequence[ListedUpload]], Step[Mapping[Name, NeededBy]]]


def spare_none(uploads: Sequence[ListedUpload]) -> Step[Mapping[Name, NeededBy]]:
    """Nothing is known of foreign uploads."""
    yield from ()
    return {}


def spare_needed(judged: Sequence[Judged], spared: Spared) -> Step[list[Judged]]:
    """Leave those of the foreign uploads that are to be aborted which somebody needs."""
    foreign = [it.upload for it in judged if it.abort and it.whose is Whose.FOREIGN]
    needed = (yield from spared(foreign)) if foreign else {}
    return [
        it
        if (by := needed.get(name_of(it.upload))) is None
        else replace(it, abort=False, job=by.job or None, reason=by.reason)
        for it in judged
    ]


@dataclass(frozen=True)
class UploadsPath:
    """A bucket, or a folder of it.

    :param prefix: ending with a slash, so that ``day=1`` is not ``day=10``; ``""`` for the whole
        bucket.
    """

    bucket: str
    prefix: str

    @staticmethod
    def parse(url: str) -> UploadsPath:
        """:raises InvalidInputError: it is no URL of S3."""
        check_bucket_part(url)
        # As of a table's root, a key may have '#' and '?'.
        match = re.fullmatch(rf"{SCHEME}([^/?#]+)(/.*)?", url)
        if match is None:
            raise InvalidInputError(
                f"{without_secrets(url)!r} is no path on S3.",
                remedy="Give s3://bucket or s3://bucket/folder.",
            )
        folder = (match[2] or "").strip("/")
        return UploadsPath(match[1], f"{folder}/" if folder else "")


@dataclass(frozen=True)
class Selection:
    """Which uploads below a path are meant.

    :param older_than: initiated at least so many seconds ago, by the store's clock.
    :param whose: of these only; empty for all.
    :param jobs: with one of these ids in their keys only; empty for all. Of one that no table has
        a record of, they are aborted on the caller's word.
    """

    older_than: float = 0.0
    whose: frozenset[Whose] = frozenset()
    jobs: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """:raises InvalidInputError: one of ``jobs`` is no job's id."""
        for job in self.jobs:
            require_job_id(job)
