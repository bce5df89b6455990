"""Ends of jobs that are broken off (Ctrl-C), or that two threads bring about, and what is known of
the job then."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import InvalidInputError, printable
from .state.job_state import JobState, OpenedJob

#: By job, the thread that commits or aborts it.
_under_way: dict[str, int] = {}
_lock = threading.Lock()


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


@contextmanager
def alone(opened: OpenedJob) -> Iterator[None]:
    """Let the block commit or abort a job while no other thread of this process does.

    Threads of one process are one holder of a job's claims: of two that commit it, or commit and
    abort it, each would take the other's claims for its own.

    :raises InvalidInputError: another one does; nothing was changed.
    """
    mine = threading.get_ident()
    with _lock:
        other = _under_way.setdefault(opened.job, mine)
    if other != mine:
        raise InvalidInputError(
            "This job is being committed or aborted in another thread of this process; this call "
            "changed nothing.",
            table=opened.root.url,
            job=opened.job,
            remedy="Wait for the other call: what it returns or raises holds for the job. Do not "
            "clean up after it.",
        )
    try:
        yield
    finally:
        with _lock:
            _under_way.pop(opened.job, None)
