"""Interrupts (Ctrl-C) while a job of plain Python commits, and what is known of the job then."""

from __future__ import annotations

from .errors import printable
from .state.job_state import JobState


def fate(job: str, table: str, state: JobState, cause: str = "") -> str:
    """A sentence or two on what became of a job, and what to do.

    :param state: as far as this process knows.
    :param cause: why it does not know, or why something is left to do.
    """
    why = f" ({printable(cause)})" if cause else ""
    if state is JobState.ABORTED:
        return (
            f"Job {job} of {table} is aborted: nothing of it is visible, and it can be run "
            f"again{why}."
        )
    if state is JobState.COMMITTED:
        return (
            f"Job {job} of {table} is committed: its rows are visible to readers through heads, "
            f"and it must not be run again{why}. What is left to do, zero-rename recover {table} "
            "--apply does."
        )
    return (
        f"Whether job {job} of {table} is committed is not known{why}. Do not run it again before "
        f"that is known: zero-rename jobs {table} shows it while it is open, and zero-rename "
        f"recover {table} --apply settles it when it has been silent for long enough."
    )


class JobInterrupted(KeyboardInterrupt):
    """Ctrl-C came while a job was committed. Says whether the job is committed.

    A ``KeyboardInterrupt``, so that whatever ends on Ctrl-C still does.

    :param state: ``COMMITTED``, ``ABORTED``, or ``UNKNOWN`` where this process cannot tell.
    """

    def __init__(self, job: str, table: str, state: JobState, cause: str = "") -> None:
        super().__init__(fate(job, table, state, cause))
        self.job = job
        self.table = table
        self.state = state
