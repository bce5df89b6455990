"""Selection of uploads by path, age, job and owner."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...errors import InvalidInputError, without_secrets
from ...format.given_numbers import check_age
from ...format.layout import require_job_id
from ...store.requests import ListedUpload, Step
from ...store.s3_urls import SCHEME, check_bucket_part
from .purge_plan import Judged, Whose

#: The identity of an upload: its key and UploadId.
Name = tuple[str, str]


def name_of(upload: ListedUpload) -> Name:
    """Return the identity of an upload."""
    return (upload.key, upload.upload_id)


@dataclass(frozen=True)
class NeededBy:
    """The job that may still complete an upload, and the reason for that judgement.

    :param job: its id; ``""`` if the id is not known.
    :param reason: a sentence without its full stop.
    """

    job: str
    reason: str


#: A step that finds out which foreign uploads a job may still need.
Spared = Callable[[Sequence[ListedUpload]], Step[Mapping[Name, NeededBy]]]


def spare_none(uploads: Sequence[ListedUpload]) -> Step[Mapping[Name, NeededBy]]:
    """Spare no foreign upload: nothing is known of their jobs."""
    yield from ()
    return {}


def spare_needed(judged: Sequence[Judged], spared: Spared) -> Step[list[Judged]]:
    """Keep foreign uploads that were to be aborted, but that a job may still need."""
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

    :param prefix: the folder, ending with a slash, so that ``day=1`` does not match ``day=10``;
        ``""`` for the whole bucket.
    """

    bucket: str
    prefix: str

    @staticmethod
    def parse(url: str) -> UploadsPath:
        """Read the path from a URL.

        :raises InvalidInputError: the URL is not one of S3.
        """
        check_bucket_part(url)
        # A key may contain '#' and '?', as that of a table's root may.
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
    """Conditions for the uploads below a path that are selected.

    :param older_than: initiated at least so many seconds ago, by the store's clock.
    :param whose: only uploads of these owners; empty for all.
    :param jobs: only uploads with one of these job ids in their keys; empty for all. If no table
        has a record of such a job, its uploads are aborted because the caller asks for it.
    """

    older_than: float = 0.0
    whose: frozenset[Whose] = frozenset()
    jobs: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Check the age and the ids of jobs.

        :raises InvalidInputError: one of ``jobs`` is not a job id, or ``older_than`` is negative or
            no number.
        """
        check_age("older_than", self.older_than)
        for job in self.jobs:
            require_job_id(job)
