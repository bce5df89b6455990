"""Files of the S3A committers: ``.pending``, ``.pendingset`` and job summary reports.

``_SUCCESS`` itself is read by :class:`..committer.success_marker.SuccessMarker`; a summary report
is the same JSON with the job's stage and, of a job that failed, the exception.

The sources are Hadoop's classes ``SinglePendingCommit``, ``PendingSet`` and ``SuccessData`` in
``org.apache.hadoop.fs.s3a.commit.files``. What they refuse is refused here, members they do not
know are passed over, and so the records of later versions are read as theirs would be. The
records lie where whoever writes the table can write: they are read without trust, and what is
done with a record's bucket and key is for the caller to check.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...committer.errors import RecordDamagedError
from ...committer.records.codec import Fields
from ...committer.records.success_marker import SuccessMarker

#: ``PersistentCommitData.VERSION``. It stayed 2 when ETags became objects.
VERSION = 2
#: ``PendingSet.VERSION``: 3 in Hadoop 3.5.0, which left ``extraData`` out; 2 before.
SET_VERSION = 3
PENDING_SUFFIX = ".pending"
PENDING_SET_SUFFIX = ".pendingset"
_TASK_ATTEMPT = "task.attempt.id"


@dataclass(frozen=True)
class PendingCommit:
    """One file of which all parts are uploaded, and the upload not completed.

    :param key: the key it will appear under, in ``bucket``; neither is trusted.
    :param etags: of parts 1…n, without quotes. Hadoop's own check lets an empty list pass; no
        store completes such an upload.
    :param length: bytes of the finished object.
    :param job: the committer's UUID; empty in a ``.pending`` of the magic committer, which sets
        it when the task commits.
    :param task: the task attempt's id, empty likewise.
    :param uri: ``s3a://…``, for people: in the magic committer's records the path of the task's
        own file, not of the finished one.
    :param created_ms: by the clock of the host that wrote it, 0 where it does not say.
    """

    bucket: str
    key: str
    upload_id: str
    etags: tuple[str, ...]
    length: int
    job: str
    task: str
    uri: str
    created_ms: int

    @staticmethod
    def parse(body: bytes, key: str) -> PendingCommit:
        """Read a ``.pending`` object.

        :param key: the object's own key, for errors.
        :raises RecordDamagedError: what Hadoop's ``SinglePendingCommit.validate`` refuses.
        """
        read = _load(body, key)
        _check_version(read, key, newest=VERSION)
        return _commit(read)


@dataclass(frozen=True)
class PendingSet:
    """What one committed task attempt asks the job to complete.

    :param job: the committer's UUID; ``""`` in those of the staging committers (Hadoop 3.5.0),
        of which only the folder and the names of files say whose they are.
    :param task_attempt: the attempt that wrote it, ``""`` likewise.
    """

    job: str
    commits: tuple[PendingCommit, ...]
    task_attempt: str

    @property
    def bytes(self) -> int:
        return sum(commit.length for commit in self.commits)

    @staticmethod
    def parse(body: bytes, key: str) -> PendingSet:
        """Read a ``.pendingset`` object, or the file a staging task committed.

        :param key: the object's own key, for errors.
        :raises RecordDamagedError: what Hadoop's ``PendingSet.validate`` refuses; two commits of
            one destination are among it.
        """
        read = _load(body, key)
        _check_version(read, key, newest=SET_VERSION)
        commits = read.each("commits", _commit)
        keys = Counter(commit.key for commit in commits)
        for index, commit in enumerate(commits):
            if keys[commit.key] > 1:
                raise read.damaged(
                    f"commits[{index}].destinationKey",
                    f"names {commit.key!r}, as another commit of the set does",
                )
        extra = _strings_of(read, "extraData")
        own = commits[0].task if commits else ""
        return PendingSet(
            job=read.string("jobId", ""),
            commits=commits,
            task_attempt=extra.get(_TASK_ATTEMPT, own),
        )


@dataclass(frozen=True)
class JobSummary:
    """``_SUCCESS`` or ``summary-<job>.json``, with what the marker's reader leaves out.

    :param marker: job, committer, success, time, and at most 100 names of files.
    :param job_source: where the committer took its UUID from: ``fs.s3a.committer.uuid``,
        ``spark.sql.sources.writeJobUUID``, ``JobID`` …
    :param stage: how far the job came: ``preparing``, ``precommit``, ``commit``, ``marker``,
        ``cleanup``, ``completed``; ``""`` in a marker.
    :param exception: why it failed, ``""`` if it did not.
    :param counters: the statistics' counters; ``committer_commits_completed`` and
        ``committer_bytes_committed`` are the job's whole totals, which ``filenames`` is not.
    :param diagnostics: whatever else the committer noted, for people.
    """

    marker: SuccessMarker
    job_source: str
    stage: str
    exception: str
    counters: Mapping[str, int]
    diagnostics: Mapping[str, str]

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
        read = Fields(json.loads(body), key)
        diagnostics = _strings_of(read, "diagnostics")
        statistics = read.optional_within("iostatistics")
        counters = statistics.mapping("counters", {}) if statistics else {}
        return JobSummary(
            marker=marker,
            job_source=read.string("jobIdSource", ""),
            stage=diagnostics.get("stage", ""),
            exception=diagnostics.get("exception", ""),
            # Statistics are no part of the contract: what is not a count is passed over.
            counters={n: v for n, v in counters.items() if type(v) is int},
            diagnostics=diagnostics,
        )


def _load(body: bytes, key: str) -> Fields:
    try:
        document: Any = json.loads(body.decode())
    except (ValueError, RecursionError) as error:
        raise Fields({}, key).damaged("", f"is not JSON ({len(body)} bytes): {error}") from error
    if not isinstance(document, dict):
        raise Fields({}, key).damaged("", "is not a JSON object")
    return Fields(document, key)


def _check_version(read: Fields, key: str, newest: int) -> None:
    version = read.integer("version")
    if version > newest:
        raise RecordDamagedError(
            f"The S3A commit record is of version {version}; this reads up to {newest}. "
            "It was left as it is.",
            field="version",
            key=key,
            remedy="Upgrade airflow-provider-zero-rename here.",
        )
    if version < VERSION:
        raise read.damaged("version", f"is {version}, not {VERSION}")


def _commit(read: Fields) -> PendingCommit:
    version = read.integer("version")
    if version != VERSION:
        raise read.damaged("version", f"is {version}, not {VERSION}")
    _strings_of(read, "extraData")
    return PendingCommit(
        bucket=_filled(read, "bucket"),
        key=_filled(read, "destinationKey"),
        upload_id=_filled(read, "uploadId"),
        etags=_etags(read),
        length=read.integer("length", 0),
        job=read.string("jobId", ""),
        task=read.string("taskId", ""),
        uri=_filled(read, "uri"),
        created_ms=read.signed("created") or 0,
    )


def _filled(read: Fields, member: str) -> str:
    value = read.string(member)
    if not value:
        raise read.damaged(member, "is empty")
    return value


def _etags(read: Fields) -> tuple[str, ...]:
    """Both forms: strings, and in newer releases objects with a checksum beside the ETag."""
    values = enumerate(read.values("etags"))
    return tuple(_etag(read, f"etags[{index}]", value) for index, value in values)


def _etag(read: Fields, member: str, value: Any) -> str:
    if isinstance(value, dict):
        member, value = f"{member}.etag", value.get("etag")
    if not isinstance(value, str):
        raise read.damaged(member, "is not an ETag")
    # The SDK hands ETags on as the header has them: in quotes.
    etag = value.removeprefix('"').removesuffix('"')
    if not etag:
        raise read.damaged(member, "is empty")
    return etag


def _strings_of(read: Fields, member: str) -> dict[str, str]:
    """A map from string to string, ``{}`` where there is none; null values are passed over."""
    found: dict[str, str] = {}
    for name, value in read.mapping(member, {}).items():
        if value is None:
            continue
        if not isinstance(value, str):
            raise read.damaged(f"{member}.{name}", "is not a string")
        found[name] = value
    return found
