"""Selection of uploads: the path they lie below, their age, jobs, and whose they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from ..errors import InvalidInputError
from ..format.layout import require_job_id
from ..store.requests import ListedUpload, Step
from ..store.s3_urls import refuse_arn
from .purge_plan import Whose

_SCHEMES = ("s3", "s3a", "s3n")
#: What an upload is told from others by: its key and UploadId.
Name = tuple[str, str]
#: Why somebody may still need foreign uploads, by their names.
Spared = Callable[[Sequence[ListedUpload]], Step[Mapping[Name, str]]]


def name_of(upload: ListedUpload) -> Name:
    """What an upload is told from others by."""
    return (upload.key, upload.upload_id)


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
        refuse_arn(url)
        parts = urlsplit(url)
        if parts.scheme not in _SCHEMES or not parts.netloc or parts.query or parts.fragment:
            raise InvalidInputError(
                f"{url!r} is no path on S3.", remedy="Give s3://bucket or s3://bucket/folder."
            )
        folder = parts.path.strip("/")
        return UploadsPath(parts.netloc, f"{folder}/" if folder else "")


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
