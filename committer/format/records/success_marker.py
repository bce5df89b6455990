"""``_SUCCESS``: Hadoop's SuccessData JSON with a reference to the job's manifest.

The format is that of ``org.apache.hadoop.fs.s3a.commit.files.SuccessData`` (version 1), which
ignores members it does not know; Hadoop's own loader reads these markers. One more member,
``manifest``, names the decision that the marker stands for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

from ...errors import RecordDamagedError
from ...store.conditional_put import write_id_of
from ...store.requests import RECORD_BYTES
from ..job_spec import Owner
from .codec import Document
from .marks import DEFAULTED, Count, Moment, Named

SUCCESS_NAME = "org.apache.hadoop.fs.s3a.commit.files.SuccessData/1"
COMMITTER = "zero_rename"
#: Hadoop's limit on the list of files in a marker.
FILENAMES_LIMIT = 100


@dataclass(frozen=True)
class ManifestReference:
    """Reference from a marker to its job's decision, with the decision's figures.

    :param decision: the decision's key; ``etag`` is its ETag.
    :param files: like ``bytes`` and ``rows``, what the job added: to the marker's partition, or
        for the table's marker to all partitions.
    :param versions: by partition, the version that the job made.
    :param decided_at: Unix seconds, by the store's clock.
    :param owner: who ran the job.
    :param idempotency_key: the run's key.
    """

    job: str
    decision: str
    etag: str
    files: Count
    bytes: Count
    rows: Count
    versions: Mapping[str, Count]
    decided_at: Moment
    owner: Owner
    idempotency_key: str | None

    @property
    def partitions(self) -> int:
        return len(self.versions)


@dataclass(frozen=True)
class SuccessMarker:
    """A ``_SUCCESS`` marker that was read: this package's, or one of Hadoop's committers.

    :param job: the committer's job id; this package's begin with ``zr1-``.
    :param committer: ``zero_rename``, ``magic``, ``directory``, ``partitioned`` …
    :param timestamp_ms: when it was made, by the clock of the host that made it; Unix milliseconds.
    :param filenames: at most 100 keys, each with a leading slash.
    :param manifest: ``None`` in Hadoop's own markers.
    """

    job: Annotated[str, Named("jobId"), DEFAULTED] = ""
    committer: Annotated[str, DEFAULTED] = ""
    success: Annotated[bool, DEFAULTED] = True
    timestamp_ms: Annotated[Count, Named("timestamp"), DEFAULTED] = 0
    hostname: Annotated[str, DEFAULTED] = ""
    filenames: Annotated[tuple[str, ...], DEFAULTED] = ()
    manifest: ManifestReference | None = None

    @staticmethod
    def parse(body: bytes, key: str) -> SuccessMarker:
        """Parse a marker's bytes.

        :raises RecordDamagedError: empty (the classic committer's), or not SuccessData.
        """
        if not body:
            raise RecordDamagedError(
                "The _SUCCESS marker is empty: a classic rename committer wrote it, and it does "
                "not say which job or files it stands for.",
                key=key,
                remedy="Write the table with zero_rename or an S3A committer.",
            )
        if len(body) > RECORD_BYTES:
            raise _damaged(key, f"has more than {RECORD_BYTES} bytes, so it is no committer's")
        try:
            document = json.loads(body.decode())
        except (ValueError, RecursionError) as error:
            raise _damaged(key, f"is not JSON: {error}") from error
        if not isinstance(document, dict) or document.get("name") != SUCCESS_NAME:
            raise _damaged(key, "is not Hadoop's SuccessData", "name")
        return Document(document, key).read(SuccessMarker)

    @staticmethod
    def parse_or_none(body: bytes) -> SuccessMarker | None:
        """Parse a marker's bytes, like :meth:`parse`; ``None`` if they are not SuccessData."""
        try:
            return SuccessMarker.parse(body, "")
        except RecordDamagedError:
            return None


def _damaged(key: str, what: str, field: str = "") -> RecordDamagedError:
    return RecordDamagedError(
        f"The _SUCCESS marker {what}.", field=field, key=key, remedy="Find out what wrote it."
    )


def marker_write_id(body: bytes) -> str | None:
    """Return the write id in a marker of this package."""
    return write_id_of(body, "manifest")


def success_data(
    head: Mapping[str, Any],
    at: float,
    keys: Sequence[str],
    counters: Mapping[str, int] | None = None,
    **more: Any,
) -> bytes:
    """Return a marker's bytes, with every member of Hadoop's SuccessData, version 1.

    :param head: members about the writer: hostname, committer, description, jobId, jobIdSource,
        diagnostics.
    :param at: Unix seconds.
    :param keys: keys of the job's files; the marker lists the first 100.
    :param counters: counters of its I/O statistics.
    :param more: other members.
    """
    kinds = ("gauges", "minimums", "maximums", "meanstatistics")
    document = {
        "name": SUCCESS_NAME,
        "success": True,
        "timestamp": int(at * 1000),
        "date": datetime.fromtimestamp(at, UTC).strftime("%a %b %d %H:%M:%S UTC %Y"),
        **head,
        "metrics": {},
        "filenames": [f"/{key}" for key in keys[:FILENAMES_LIMIT]],
        "iostatistics": {"counters": dict(counters or {}), **{kind: {} for kind in kinds}},
        "state": None,
        "stage": None,
        **more,
    }
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
