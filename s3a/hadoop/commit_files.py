"""Files of the S3A committers: ``.pendingset``, ``_SUCCESS`` and job summary reports.

A summary report is a ``_SUCCESS`` with the job's stage and, for a job that failed, the exception.

The sources are Hadoop's classes ``SinglePendingCommit``, ``PendingSet`` and ``SuccessData`` in
``org.apache.hadoop.fs.s3a.commit.files``. Unknown members are ignored, so records of later versions
can be read, as Hadoop's own classes read them. Any process that can write the table can also write
these records. So they are read without trust, and the caller has to check a record's bucket and
key before it uses them.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from ...committer.errors import RecordDamagedError
from ...committer.format.records.codec import Document
from ...committer.format.records.marks import DEFAULTED, Checked, Converted, Count, Named
from ...committer.format.records.success_marker import SuccessMarker
from ...committer.format.records.typed_json import Unfit

#: ``PersistentCommitData.VERSION``. It stayed 2 when ETags became objects.
VERSION = 2
#: ``PendingSet.VERSION``: 3 in Hadoop 3.5.0, which left ``extraData`` out; 2 before.
SET_VERSION = 3
PENDING_SUFFIX = ".pending"
PENDING_SET_SUFFIX = ".pendingset"


def _etag(value: Any) -> str:
    """Return an ETag from a string or, in newer releases, an object with ETag and checksum."""
    path = ""
    if isinstance(value, dict):
        path, value = "etag", value.get("etag")
    if not isinstance(value, str):
        raise Unfit("is not an ETag", path)
    # The SDK hands ETags on as the header has them: in quotes.
    etag = value.removeprefix('"').removesuffix('"')
    if not etag:
        raise Unfit("is empty", path)
    return etag


def _checksum(value: Any) -> str:
    """Return algorithm and checksum beside an ETag in the newer form; ``""`` without them."""
    if not isinstance(value, dict):
        return ""
    algorithm, checksum = value.get("checksumAlgorithm"), value.get("checksum")
    if not (isinstance(algorithm, str) and isinstance(checksum, str) and algorithm and checksum):
        return ""
    return f"{algorithm} {checksum}"


def _text(value: Any) -> str:
    """Intern a string: a job's records repeat its bucket, UUID and tasks in every file's record."""
    if not isinstance(value, str):
        raise Unfit("is not a string")
    return sys.intern(value)


ETag = Annotated[str, Converted(str, _etag)]
PartChecksum = Annotated[str, Converted(str, _checksum)]
Filled = Annotated[str, Checked(bool, "is empty")]
Repeated = Annotated[str, Converted(str, _text)]
#: JSON object of strings. A null value counts as missing.
Notes = Annotated[Mapping[str, str | None], DEFAULTED]


@dataclass(frozen=True, slots=True)
class PendingCommit:
    """A file whose parts are all uploaded, by an upload not completed yet.

    :param key: the key of the finished object, in ``bucket``. Neither is trusted.
    :param etags: of parts 1…n, without quotes. Hadoop's own check accepts an empty list; no
        store completes such an upload.
    :param checksums: of the same parts, as ``CRC32 XHxvCQ==``; ``""`` for a part without one. If a
        store has them for an upload, the request that completes it has to name them again.
    :param length: bytes of the finished object.
    :param job: the committer's UUID.
    :param created_ms: by the clock of the host that wrote the record; 0 if it does not say.
    """

    bucket: Annotated[Repeated, Checked(bool, "is empty")]
    key: Annotated[Filled, Named("destinationKey")]
    upload_id: Annotated[Filled, Named("uploadId")]
    etags: tuple[ETag, ...]
    version: Annotated[int, Checked(VERSION.__eq__, f"is not {VERSION}")]
    length: Annotated[Count, DEFAULTED] = 0
    job: Annotated[Repeated, Named("jobId"), DEFAULTED] = ""
    created_ms: Annotated[int, Named("created"), DEFAULTED] = 0
    checksums: Annotated[tuple[PartChecksum, ...], Named("etags")] = ()


@dataclass(frozen=True)
class _Versioned:
    version: Count


@dataclass(frozen=True)
class PendingSet:
    """The files of one committed task attempt, for the job commit to complete.

    :param job: the committer's UUID; ``""`` in pending sets of the staging committers (Hadoop
        3.5.0), whose job is known only by the folder and the names of the files.
    """

    commits: tuple[PendingCommit, ...]
    job: Annotated[str, Named("jobId"), DEFAULTED] = ""

    @staticmethod
    def parse(body: bytes, key: str) -> PendingSet:
        """Read a ``.pendingset`` object, or the file that a staging task committed.

        :param key: the object's own key, for errors.
        :raises RecordDamagedError: Hadoop's ``PendingSet.validate`` would refuse it, for example
            because two commits have one destination; or its version is newer than this reader.
        """
        document = Document.parse(body, key)
        version = document.read(_Versioned).version
        if version > SET_VERSION:
            raise RecordDamagedError(
                f"The S3A commit record is of version {version}; this reads up to {SET_VERSION}. "
                "It was left as it is.",
                field="version",
                key=document.key,
                remedy="Upgrade airflow-provider-zero-rename here.",
            )
        if version < VERSION:
            raise document.damaged("version", f"is {version}, not {VERSION}")
        found = document.read(PendingSet)
        keys = Counter(commit.key for commit in found.commits)
        for index, commit in enumerate(found.commits):
            if keys[commit.key] > 1:
                raise document.damaged(
                    f"commits[{index}].destinationKey",
                    f"names {commit.key!r}, as another commit of the set does",
                )
        return found


def _counts(value: Any) -> dict[str, int]:
    """Keep the integers of a JSON object.

    Statistics are not part of the contract, so other values are ignored.
    """
    if not isinstance(value, dict):
        raise Unfit("is not an object")
    return {name: count for name, count in value.items() if type(count) is int}


@dataclass(frozen=True)
class _Statistics:
    counters: Annotated[Mapping[str, int], Converted(dict, _counts), DEFAULTED] = field(
        default_factory=dict
    )


@dataclass(frozen=True)
class _MarkerDetails:
    """Members of a marker that :class:`SuccessMarker` does not read."""

    diagnostics: Notes = field(default_factory=dict)
    statistics: Annotated[_Statistics, Named("iostatistics"), DEFAULTED] = _Statistics()


@dataclass(frozen=True)
class JobSummary:
    """A ``_SUCCESS`` or ``summary-<job>.json``, with the members that the marker's reader omits.

    :param marker: job, committer, success, time, and at most 100 names of files.
    :param stage: how far the job came: ``preparing``, ``precommit``, ``commit``, ``marker``,
        ``cleanup``, ``completed``; ``""`` in a marker.
    :param exception: why it failed; ``""`` if it did not.
    :param counters: the statistics' counters. ``committer_commits_completed`` and
        ``committer_bytes_committed`` count all files of the job; ``filenames`` may not name all.
    """

    marker: SuccessMarker
    stage: str
    exception: str
    counters: Mapping[str, int]

    @staticmethod
    def parse(body: bytes, key: str) -> JobSummary:  # pyrefly: ignore[not-a-type]
        """Read a marker or a report.

        :raises RecordDamagedError: it is empty, or not Hadoop's SuccessData.
        """
        marker = SuccessMarker.parse(body, key)
        report = Document.parse(body, key).read(_MarkerDetails)
        return JobSummary(
            marker=marker,
            stage=report.diagnostics.get("stage") or "",
            exception=report.diagnostics.get("exception") or "",
            counters=report.statistics.counters,
        )

    @property
    def files(self) -> int | None:
        """Number of files that the job committed; ``None`` if it does not say."""
        return self.counters.get("committer_commits_completed")

    @property
    def bytes(self) -> int | None:
        """Number of bytes that the job committed; ``None`` if it does not say."""
        return self.counters.get("committer_bytes_committed")
