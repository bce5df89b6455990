"""Markers of step 6: ``_SUCCESS`` of partitions and of the table, which never go back in time."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from ..errors import UnfinishedCommitError
from ..format.layout import UNPARTITIONED, TableRoot
from ..format.records.head import Slot
from ..format.records.partition_decision import PartitionDecision
from ..format.records.success_marker import (
    COMMITTER,
    ManifestReference,
    SuccessMarker,
    marker_write_id,
    success_data,
)
from ..format.records.typed_json import to_members
from ..store.conditional_put import Written, put_record
from ..store.requests import Absent, Get, Put, Step
from .state.context import Context
from .state.decide import Decided, unfinished
from .state.heads import read_head

_TRIES = 8


@dataclass(frozen=True)
class MarkerState:
    """Marker as it was read.

    :param etag: ``None`` if there is no marker.
    :param marker: ``None`` also if the object is neither one of ours nor one of Hadoop's.
    """

    key: str
    etag: str | None
    marker: SuccessMarker | None


def look_at_marker(context: Context, partition: str) -> Step[MarkerState]:
    """Read the marker of a partition; the unpartitioned one's is the table's."""
    key = context.root.marker_key(partition)
    found = yield from Get(key)
    if isinstance(found, Absent):
        return MarkerState(key, None, None)
    return MarkerState(key, found.etag, SuccessMarker.parse_or_none(found.body))


def write_partition_marker(
    context: Context, decided: Decided, change: PartitionDecision, seen: MarkerState | None
) -> Step[None]:
    """Write a partition's marker, unless a later job's is due.

    The steps are: read the marker's ETag, check that the head names this job as its last one, write
    on that ETag. So a slow applier of an earlier job finds a later job in the head, or loses the
    condition.

    :param seen: the marker as it was before *this process* moved the head to this job.
    """
    job = decided.decision.job
    slot = Slot.partition(context.root, change.partition)
    for _ in range(_TRIES):
        if seen is None:
            seen = yield from look_at_marker(context, change.partition)
            if seen.marker is not None and seen.marker.job == job and seen.marker.manifest:
                return
            state = yield from read_head(context, slot)
            if state.head.last_job != job:
                return
        if (yield from _put_marker(context, decided, (change,), seen)):
            return
        seen = None
    raise _unwritten(context, decided, slot.key)


def write_table_marker(context: Context, decided: Decided) -> Step[None]:
    """Write the table's marker, unless a later job's marker is there."""
    partitions = decided.decision.partitions
    for _ in range(_TRIES):
        seen = yield from look_at_marker(context, UNPARTITIONED)
        there = seen.marker.manifest if seen.marker else None
        if there is not None and not _is_before(there, decided):
            return
        if (yield from _put_marker(context, decided, partitions, seen)):
            return
    raise _unwritten(context, decided, context.root.marker_key(UNPARTITIONED))


def _is_before(there: ManifestReference, decided: Decided) -> bool:
    """Return whether a marker's job comes before another one.

    Jobs that share a partition follow each other there, so its versions decide. Otherwise the
    store's dates decide, which are whole seconds; within one second, the ids do, so that all
    appliers agree.
    """
    job = decided.decision.job
    if there.job == job:
        return False
    for change in decided.decision.partitions:
        version = there.versions.get(change.partition)
        if version is not None:
            return version <= change.base_version
    return (there.decided_at, there.job) < (decided.date, job)


def _put_marker(
    context: Context, decided: Decided, partitions: tuple[PartitionDecision, ...], seen: MarkerState
) -> Step[bool]:
    write_id = context.write_id()
    body = marker_bytes(context.root, decided, partitions, write_id)
    put = Put(seen.key, body, if_none_match=seen.etag is None, if_match=seen.etag)
    outcome = yield from put_record(put, write_id, marker_write_id)
    return isinstance(outcome, Written)


def marker_bytes(
    root: TableRoot, decided: Decided, partitions: tuple[PartitionDecision, ...], write_id: str
) -> bytes:
    """Encode a marker of a decision's changes of ``partitions``."""
    decision = decided.decision
    files = [file for change in partitions for file in change.files]
    reference = ManifestReference(
        job=decision.job,
        decision=root.decision_key(decision.job),
        etag=decided.etag,
        files=len(files),
        bytes=sum(file.size for file in files),
        rows=sum(file.rows for file in files),
        versions={change.partition: change.base_version + 1 for change in partitions},
        decided_at=decided.date,
        owner=decision.owner,
        idempotency_key=decision.idempotency_key,
    )
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
            "committer_commits_completed": reference.files,
            "committer_bytes_committed": reference.bytes,
        },
        "manifest": {"write_id": write_id, **to_members(reference)},
    }
    return success_data(head, decided.date, [file.key for file in files], **more)


def _unwritten(context: Context, decided: Decided, key: str) -> UnfinishedCommitError:
    what = ", and a _SUCCESS marker could not be written."
    return unfinished(context, decided.decision.job, what, key)
