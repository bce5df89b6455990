"""Heartbeats of a run's jobs: sent while a submission is held, waited for by later tries."""

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
#: Seconds between two looks.
POLL = 5.0


class LoadRun(Protocol):
    """One try of a run that loads a table, whichever scheduler it is of."""

    @property
    def idempotency_key(self) -> str:
        """The key of the run's job, the same in all its tries."""
        ...

    @property
    def is_first(self) -> bool:
        """Whether no try of the run can have been before."""
        ...

    def owns(self, owner: Owner) -> bool:
        """Whether a job's owner is this run, in whatever try."""
        ...

    def made(self, owner: Owner | None) -> bool:
        """Whether a job of this run was made by this very try, as far as is known."""
        ...


class RepeatableRun(LoadRun, Protocol):
    """A try that knows what to do where the run has committed before."""

    @property
    def owner(self) -> Owner:
        """Who its jobs' records say runs them."""
        ...

    def on_repeat(self, asked: str, committed_by: Owner | None = None) -> str:
        """Return ``skip``, ``replace_own`` or ``append``, as :meth:`.task_run.TaskRun.on_repeat`
        does."""
        ...


def heartbeats(table: LoadedTable, run: LoadRun) -> AbstractContextManager[None]:
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


def send_heartbeats(table: LoadedTable, run: LoadRun) -> list[str]:
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


def wait_for_living(table: LoadedTable, run: LoadRun) -> None:
    """Wait as long as an earlier try's application has an undecided job and sends heartbeats.

    Its worker has died and it goes on: what it commits is this run's, and to load beside it would
    fence it, however near to its end it is. ``execution_timeout`` limits the wait.
    """
    named: set[str] = set()
    while living := _living(table, run):
        for job, (number, silent) in living.items():
            if job not in named:
                _log.info(
                    "The application of try %s lives, without its worker: its job %s sent a "
                    "heartbeat %.0f s ago. Waiting for what becomes of it; nothing is submitted "
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
    """Jobs of earlier tries that are at work: number of the try, and seconds of silence."""
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
