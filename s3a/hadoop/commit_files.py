"""Files of the S3A committers: ``.pendingset``, ``_SUCCESS`` and job summary reports.

A summary report is a ``_SUCCESS`` with the job's stage and, of a job that failed, the exception.

The sources are Hadoop's classes ``SinglePendingCommit``, ``PendingSet`` and ``SuccessData`` in
``org.apache.hadoop.fs.s3a.commit.files``. Members they do not know are passed over, and so the
records of later versions are read as theirs would be. The records lie where whoever writes the
table can write: they are read without trust, and what is done with a record's bucket and key is
for the caller to check.
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
    """Both forms: a string, and in newer releases an object with a checksum beside the ETag."""
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
    """Algorithm and value of the second form; empty where there is none."""
    if not isinstance(value, dict):
        return ""
    algorithm, checksum = value.get("checksumAlgorithm"), value.get("checksum")
    if not (isinstance(algorithm, str) and isinstance(checksum, str) and algorithm and checksum):
        return ""
    return f"{algorithm} {checksum}"


def _text(value: Any) -> str:
    """One string for all that are equal: a job's records repeat its bucket, its UUID and its tasks
    in every file's."""
    if not isinstance(value, str):
        raise Unfit("is not a string")
    return sys.intern(value)


ETag = Annotated[str, Converted(str, _etag)]
PartChecksum = Annotated[str, Converted(str, _checksum)]
Filled = Annotated[str, Checked(bool, "is empty")]
Repeated = Annotated[str, Converted(str, _text)]
#: From string to string, where a null value counts as none.
Notes = Annotated[Mapping[str, str | None], DEFAULTED]


@dataclass(frozen=True, slots=True)
class PendingCommit:
    """One file of which all parts are uploaded, and the upload not completed.

    :param key: the key it will appear under, in ``bucket``; neither is trusted.
    :param etags: of parts 1…n, without quotes. Hadoop's own check lets an empty list pass; no
        store completes such an upload.
    :param checksums: of the same parts, ``CRC32 XHxvCQ==``; empty: none. A store that has them of
        an upload wants them named again to complete it.
    :param length: bytes of the finished object.
    :param job: the committer's UUID.
    :param created_ms: by the clock of the host that wrote it, 0 where it does not say.
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
    """What one committed task attempt asks the job to complete.

    :param job: the committer's UUID; ``""`` in those of the staging committers (Hadoop 3.5.0),
        of which only the folder and the names of files say whose they are.
    """

    commits: tuple[PendingCommit, ...]
    job: Annotated[str, Named("jobId"), DEFAULTED] = ""

    @staticmethod
    def parse(body: bytes, key: str) -> PendingSet:
        """Read a ``.pendingset`` object, or the file a staging task committed.

        :param key: the object's own key, for errors.
        :raises RecordDamagedError: what Hadoop's ``PendingSet.validate`` refuses; two commits of
            one destination are among it.
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
    """Statistics are no part of the contract: what is not a count is passed over."""
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
    """What a marker says besides what :class:`SuccessMarker` reads."""

    diagnostics: Notes = field(default_factory=dict)
    statistics: Annotated[_Statistics, Named("iostatistics"), DEFAULTED] = _Statistics()


@dataclass(frozen=True)
class JobSummary:
    """``_SUCCESS`` or ``summary-<job>.json``, with what the marker's reader leaves out.

    :param marker: job, committer, success, time, and at most 100 names of files.
    :param stage: how far the job came: ``preparing``, ``precommit``, ``commit``, ``marker``,
        ``cleanup``, ``completed``; ``""`` in a marker.
    :param exception: why it failed, ``""`` if it did not.
    :param counters: the statistics' counters; ``committer_commits_completed`` and
        ``committer_bytes_committed`` are the job's whole totals, which ``filenames`` is not.
    """

    marker: SuccessMarker
    stage: str
    exception: str
    counters: Mapping[str, int]

    @property
    def files(self) -> int | None:
        """Files the job committed; ``None`` where it does not say."""
        return self.counters.get("committer_commits_completed")

    @property
    def bytes(self) -> int | None:
        """Bytes the job committed; ``None`` where it does not say."""
        return self.counters.get("committer_bytes_committed")

    @staticmethod
    def parse(body: bytes, key: str) -> JobSummary:
        """Read a marker or a report.

        :raises RecordDamagedError: empty, or not Hadoop's SuccessData.
        """
        marker = SuccessMarker.parse(body, key)
        report = Document.parse(body, key).read(_MarkerDetails)
        return JobSummary(
            marker=marker,
            stage=report.diagnostics.get("stage") or "",
            exception=report.diagnostics.get("exception") or "",
            counters=report.statistics.counters,
        )
