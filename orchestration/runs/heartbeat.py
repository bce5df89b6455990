"""Heartbeats of a run's jobs: sent while a submission runs, and waited for by later attempts."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from time import sleep
from typing import TYPE_CHECKING, Protocol

from ...committer.periodic import INTERVAL, repeating

if TYPE_CHECKING:
    from ...committer import Owner
    from .loaded_table import LoadedTable

_log = logging.getLogger(__name__)
#: Seconds of silence after which an application counts as dead: three of its heartbeats.
PATIENCE = 30.0
#: Seconds between two polls.
POLL = 5.0


class LoadRun(Protocol):
    """One attempt of a run that loads a table, in any scheduler."""

    @property
    def idempotency_key(self) -> str:
        """The key of the run's job, the same in all attempts of the run."""
        ...

    @property
    def is_first(self) -> bool:
        """True if the run cannot have had an earlier attempt."""
        ...

    def owns(self, owner: Owner) -> bool:
        """Return whether a job's owner is this run, in any attempt."""
        ...

    def made(self, owner: Owner | None) -> bool:
        """Return whether a job of this run was made by this attempt; true if that is unknown."""
        ...


class RepeatableRun(LoadRun, Protocol):
    """An attempt that decides what to do if its run has committed before."""

    @property
    def owner(self) -> Owner:
        """The owner that the records of its jobs name."""
        ...

    def on_repeat(self, asked: str, committed_by: Owner | None = None) -> str:
        """Return ``skip``, ``replace_own`` or ``append`` (:meth:`.task_run.TaskRun.on_repeat`)."""
        ...

    def comes_after(self, owner: Owner) -> bool:
        """Return whether an earlier attempt made a job of this run."""
        ...


def heartbeats(table: LoadedTable, run: LoadRun) -> AbstractContextManager[None]:
    """Send heartbeats for the jobs that an attempt opens, while the block runs.

    PySpark runs a data source's methods in short-lived processes, so a thread there would die
    during a long shuffle. The operator lives as long as its submission.
    """
    known: set[str] = set()

    def beat() -> None:
        for job in send_heartbeats(table, run):
            if job not in known:
                _log.info("The application has opened the job %s", job)
            known.add(job)

    return repeating(beat, INTERVAL)


def send_heartbeats(table: LoadedTable, run: LoadRun) -> list[str]:
    """Send a heartbeat for each open job of an attempt that has not decided yet.

    :return: the ids of these jobs, also in a Delta table, to which no heartbeats are sent.
    """
    found = []
    for job in table.open_jobs():
        mine = run.owns(job.owner) and run.made(job.owner)
        if mine and job.decided is None:
            table.send_heartbeat(job.job, INTERVAL)
            found.append(job.job)
    return found


def wait_for_living(table: LoadedTable, run: LoadRun) -> None:
    """Wait as long as an earlier attempt's application has an undecided job and sends heartbeats.

    The worker of that attempt has died, but its application goes on, and its commit counts as this
    run's. A second load at the same time would fence it, even if it is nearly done. Only
    ``execution_timeout`` limits the wait. A job in a Delta table sends no heartbeats: the only sign
    of life is its opening.
    """
    named: set[str] = set()
    while living := _living(table, run):
        for job, (number, silent) in living.items():
            if job not in named:
                _log.info(
                    "The application of attempt %s lives, without its worker: its job %s gave a "
                    "sign of life %.0f s ago. Waiting for what becomes of it; nothing is submitted "
                    "meanwhile. To load at once, end that application.",
                    number,
                    job,
                    silent,
                )
        named |= living.keys()
        sleep(POLL)
    if named:
        _log.info("No earlier application is at work any more.")


def _living(table: LoadedTable, run: LoadRun) -> dict[str, tuple[int | None, float]]:
    """Find jobs of earlier attempts that are at work.

    :return: by job, the number of the attempt and the seconds since its last heartbeat.
    """
    if run.is_first:
        return {}
    return {
        job.job: (job.owner.try_number, job.age_seconds)
        for job in table.open_jobs()
        if run.owns(job.owner)
        and not run.made(job.owner)
        and job.decided is None
        and not job.unpublished
        and job.age_seconds < PATIENCE
    }
