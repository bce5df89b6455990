"""Heartbeats for a job while its operator holds the submission."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from ...committer.periodic import repeating

if TYPE_CHECKING:
    from ...committer import Table
    from .load_run import LoadRun

_log = logging.getLogger(__name__)
#: Seconds between heartbeats.
INTERVAL = 30.0


def heartbeats(table: Table, run: LoadRun) -> AbstractContextManager[None]:
    """Keeps the jobs that a try opens alive while the block runs.

    PySpark runs a data source's methods in short-lived processes, so a thread there would die
    during a long shuffle; the operator lives as long as its submission.
    """
    known: set[str] = set()

    def beat() -> None:
        for job in send_heartbeats(table, run):
            if job not in known:
                _log.info("The application has opened the job %s", job)
            known.add(job)

    return repeating(beat, INTERVAL)


def send_heartbeats(table: Table, run: LoadRun) -> list[str]:
    """Send a heartbeat for each job of a try that is open and undecided: a job that is decided
    needs none.

    :return: their ids.
    """
    alive = []
    for job in table.open_jobs():
        mine = run.owns(job.owner) and run.made(job.owner)
        if mine and job.decided is None and table.send_heartbeat(job.job, INTERVAL):
            alive.append(job.job)
    return alive
