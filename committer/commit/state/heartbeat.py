"""Heartbeats: they rewrite a job's open record, and never bring back one that was removed."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from ...format.records.open_record import OpenRecord
from ...store.conditional_put import NotWritten, Written, put_record
from ...store.driver import Driver
from ...store.requests import Absent, Get, Put, Step
from .context import Context
from .job_state import OpenedJob

logger = logging.getLogger("zero_rename.committer.commit.state.heartbeat")


@dataclass(frozen=True)
class Beats:
    """Schedule of a job's heartbeats.

    :param interval: seconds between two. A job counts as dead after ten intervals without one, and
        after ten minutes at least.
    :param longest: seconds after the job's opening when the heartbeats end.
    """

    interval: float
    longest: float

    @property
    def first(self) -> float:
        """Seconds until the first heartbeat.

        Jobs that are over by then cost no request. For others, the first heartbeat replaces their
        maximum duration by a shorter time of silence.
        """
        return min(10.0, self.interval / 2)


#: Heartbeats of a job whose rows are written by tasks of a cluster, for which it may have to wait.
OF_TASKS = Beats(10.0, math.inf)


def heartbeat_of(
    driver: Driver, context: Context, opened: OpenedJob, beats: Beats
) -> Callable[[], bool]:
    """Return a function that sends one heartbeat of an open job.

    The function returns ``False`` once no further heartbeat is to be sent.
    """
    began = time.monotonic()

    def send() -> bool:
        if time.monotonic() - began <= beats.longest:
            return driver.run(send_heartbeat(context, opened.job, beats.interval))
        logger.warning(
            "%s: job %s has been open for longer than its max_duration, %g seconds: no more "
            "heartbeats are sent, and others may take it for dead",
            opened.root.url,
            opened.job,
            beats.longest,
        )
        return False

    return send


def send_heartbeat(context: Context, job: str, interval: float) -> Step[bool]:
    """Rewrite a job's open record.

    Conditional on the record as it was read: one that was removed stays removed.

    :param interval: seconds until the next heartbeat, recorded for processes that judge the
        silence.
    :returns: whether the job is still open; ``True`` too when the store did not say.
    """
    key = context.root.open_key(job)
    found = yield from Get(key)
    if isinstance(found, Absent):
        return False
    record = OpenRecord.decode(found.body, key)
    opened_at = record.opened_at if record.opened_at is not None else found.last_modified
    write_id = context.write_id()
    new = replace(record, write_id=write_id, interval=interval, opened_at=opened_at)
    outcome = yield from put_record(Put(key, new.encode(), if_match=found.etag), write_id)
    if isinstance(outcome, Written):
        return True
    # Another process sent a heartbeat at the same time, or the job was closed.
    return not (isinstance(outcome, NotWritten) and isinstance(outcome.current, Absent))
