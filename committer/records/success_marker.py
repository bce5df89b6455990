"""``_SUCCESS``: Hadoop's SuccessData JSON with a reference to the job's manifest.

The format is that of ``org.apache.hadoop.fs.s3a.commit.files.SuccessData`` (version 1), which
ignores members it does not know; Hadoop's own loader reads these markers. One more member,
``manifest``, says which decision the marker stands for.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ..errors import RecordDamagedError
from ..job_spec import Owner
from ..layout import TableRoot
from .codec import Fields
from .open_record import owner_from

if TYPE_CHECKING:
    from ..state.decide import Decided
    from .decision import PartitionDecision

SUCCESS_NAME = "org.apache.hadoop.fs.s3a.commit.files.SuccessData/1"
COMMITTER = "zero_rename"
#: Hadoop's limit on the list of files in a marker.
FILENAMES_LIMIT = 100


@dataclass(frozen=True)
class ManifestReference:
    """Which decision a marker stands for, and what it did.

    :param decision: the decision's key; ``etag`` its ETag.
    :param files: files, bytes and rows that the job added where the marker lies: to its
        partition, or to all for the table's marker.
    :param epochs: epoch by partition since the job.
    :param decided_at: seconds since the epoch, by the store's clock.
    :param owner: who ran the job.
    :param once: the run's key.
    """

    job: str
    decision: str
    etag: str
    files: int
    bytes: int
    rows: int
    epochs: dict[str, int]
    decided_at: float
    owner: Owner
    once: str | None

    @property
    def partitions(self) -> int:
        return len(self.epochs)


@dataclass(frozen=True)
class SuccessMarker:
    """A marker as it was read, ours or one of Hadoop's committers.

    :param job: the committer's job id; ours is ``zr1-…``.
    :param committer: ``zero_rename``, ``magic``, ``directory``, ``partitioned`` …
    :param timestamp_ms: when it was made, by the clock of the host that made it.
    :param filenames: at most 100 keys, each with a leading slash.
    :param manifest: ``None`` in Hadoop's own markers.
    """

    job: str
    committer: str
    success: bool
    timestamp_ms: int
    hostname: str
    filenames: tuple[str, ...]
    manifest: ManifestReference | None

    @staticmethod
    def parse(body: bytes, key: str) -> SuccessMarker:
        """Read a marker's bytes.

        :raises RecordDamagedError: empty (the classic committer's), or not SuccessData.
        """
        if not body:
            raise RecordDamagedError(
                "The _SUCCESS marker is empty: a classic rename committer wrote it, and it does "
                "not say which job or files it stands for.",
                key=key,
                remedy="Write the table with zero_rename or an S3A committer.",
            )
        try:
            document = json.loads(body.decode())
        except (ValueError, RecursionError) as error:
            raise RecordDamagedError(
                f"The _SUCCESS marker is not JSON: {error}.",
                key=key,
                remedy="Find out what wrote it.",
            ) from error
        if not isinstance(document, dict) or document.get("name") != SUCCESS_NAME:
            raise RecordDamagedError(
                "The _SUCCESS marker is not Hadoop's SuccessData.",
                field="name",
                key=key,
                remedy="Find out what wrote it.",
            )
        read = Fields(document, key)
        manifest = read.optional_within("manifest")
        return SuccessMarker(
            job=read.string("jobId", ""),
            committer=read.string("committer", ""),
            success=read.boolean("success", True),
            timestamp_ms=read.integer("timestamp", 0),
            hostname=read.string("hostname", ""),
            filenames=read.strings("filenames", []),
            manifest=_manifest(manifest) if manifest else None,
        )

    @staticmethod
    def parse_or_none(body: bytes) -> SuccessMarker | None:
        """Like :meth:`parse`, with ``None`` for what is no SuccessData."""
        try:
            return SuccessMarker.parse(body, "")
        except RecordDamagedError:
            return None


def _manifest(read: Fields) -> ManifestReference:
    epochs = read.within("epochs")
    return ManifestReference(
        job=read.string("job"),
        decision=read.string("decision"),
        etag=read.string("etag"),
        files=read.integer("files"),
        bytes=read.integer("bytes"),
        rows=read.integer("rows"),
        epochs={name: epochs.integer(name) for name in read.mapping("epochs")},
        decided_at=read.number("decided_at"),
        owner=owner_from(read.within("owner")),
        once=read.optional_string("once"),
    )


def marker_write_id(body: bytes) -> str | None:
    """The write id in a marker of ours."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    manifest = document.get("manifest") if isinstance(document, dict) else None
    return manifest.get("write_id") if isinstance(manifest, dict) else None


def marker_bytes(
    root: TableRoot,
    decided: Decided,
    partitions: tuple[PartitionDecision, ...],
    write_id: str,
) -> bytes:
    """A marker for what a decision did to ``partitions``."""
    decision = decided.decision
    files = [file for change in partitions for file in change.files]
    head = {
        "hostname": decision.owner.host or socket.gethostname(),
        "committer": COMMITTER,
        "description": f"{decision.mode} into {root.url}",
        "jobId": decision.job,
        "jobIdSource": COMMITTER,
        "diagnostics": {"mode": str(decision.mode)},
    }
    more = {
        "metrics": {
            "committer_commits_completed": len(files),
            "committer_bytes_committed": sum(file.size for file in files),
        },
        "manifest": {
            "write_id": write_id,
            "job": decision.job,
            "decision": root.decision_key(decision.job),
            "etag": decided.etag,
            "files": len(files),
            "bytes": sum(file.size for file in files),
            "rows": sum(file.rows for file in files),
            "epochs": {change.partition: change.base_epoch + 1 for change in partitions},
            "decided_at": decided.date,
            "owner": vars(decision.owner),
            "once": decision.once,
        },
    }
    return success_data(head, decided.date, [file.key for file in files], **more)


def success_data(
    head: Mapping[str, Any],
    at: float,
    keys: Sequence[str],
    counters: Mapping[str, int] | None = None,
    **more: Any,
) -> bytes:
    """A marker's bytes with every member of Hadoop's SuccessData, version 1.

    :param head: who wrote it: hostname, committer, description, jobId, jobIdSource, diagnostics.
    :param at: seconds since the epoch.
    :param keys: of the job's files; the first 100 are named.
    :param counters: of its I/O statistics.
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
