"""The ``_SUCCESS`` of a destination, and that of a job that was rolled forward: what its committer
would have written."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from ...committer.records.success_marker import SuccessMarker, success_data
from ...committer.s3.conditional_put import NotWritten, Uncertain, Written, put_record
from ...committer.s3.requests import Found, Get, Put, Step
from .leftover_job import LeftoverJob

_TRIES = 3


class MarkerOutcome(StrEnum):
    """What became of a marker."""

    WRITTEN = "written"
    THERE = "there already"
    #: A job that committed later has its own there, or nobody can tell whose it is.
    KEPT = "another job's was kept"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class DestinationMarker:
    """A destination's marker: ``job`` is ``None`` where there is none or it does not say.

    :param keys: of files that its job committed, as many as it names.
    """

    etag: str = ""
    last_modified: float = 0.0
    job: str | None = None
    keys: frozenset[str] = frozenset()

    def is_newer_than(self, moment: float) -> bool:
        """Whether it was not written before a moment, by the store's clock in whole seconds."""
        return bool(self.etag) and self.last_modified >= moment


def read_marker(destination: str) -> Step[DestinationMarker]:
    """What the ``_SUCCESS`` of a destination says; an unreadable one is another job's."""
    found = yield Get(f"{destination}/_SUCCESS")
    if not isinstance(found, Found):
        return DestinationMarker()
    read = SuccessMarker.parse_or_none(found.body)
    if read is None:
        return DestinationMarker(found.etag, found.last_modified)
    keys = frozenset(name.lstrip("/") for name in read.filenames)
    return DestinationMarker(found.etag, found.last_modified, read.job, keys)


def write_marker(
    job: LeftoverJob,
    committer: str,
    since: float,
    clock: Callable[[], float] = time.time,
    host: Callable[[], str] = socket.gethostname,
) -> Step[MarkerOutcome]:
    """Write a job's marker, Hadoop's SuccessData, version 1, as the committer of this name fills
    it; never over one that is newer than the job's last task.

    :param since: when the job's last pending set was written, by the store's clock. Its own
        committer would have replaced any marker that was there then.
    """
    commits = job.commits
    counters = {
        "committer_commits_completed": len(commits),
        "committer_bytes_committed": sum(commit.length for commit in commits),
        "committer_tasks_completed": len(job.sets),
        "committer_jobs_completed": 1,
    }
    head = {
        "hostname": host(),
        "committer": committer,
        "description": "Rolled forward by zero_rename after its driver died",
        "jobId": job.uuid,
        "jobIdSource": "zero_rename recovery",
        "diagnostics": {"recovered_by": "zero_rename"},
    }
    body = success_data(head, clock(), [commit.key for commit in commits], counters)
    for _ in range(_TRIES):
        there = yield from read_marker(job.destination)
        if there.job == job.uuid:
            return MarkerOutcome.THERE
        if there.is_newer_than(since):
            return MarkerOutcome.KEPT
        none, etag = not there.etag, there.etag or None
        put = Put(f"{job.destination}/_SUCCESS", body, if_none_match=none, if_match=etag)
        outcome = yield from put_record(put, job.uuid, _job_of)
        if isinstance(outcome, Written):
            return MarkerOutcome.WRITTEN
        if isinstance(outcome, Uncertain):
            return MarkerOutcome.UNKNOWN
        assert isinstance(outcome, NotWritten)  # Another wrote meanwhile: look again.
    return MarkerOutcome.KEPT


def _job_of(body: bytes) -> str | None:
    read = SuccessMarker.parse_or_none(body)
    return read.job if read else None
