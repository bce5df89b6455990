"""Ends of jobs after an interruption (Ctrl-C), or with two threads that commit or abort at once."""

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
    """Describe in a sentence or two what became of a job, and what to do.

    :param state: the job's state as this process knows it.
    :param cause: why this process does not know it, or why something is left to do.
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
    """Ctrl-C during a job's commit. Says whether the job is committed.

    A ``KeyboardInterrupt``, so that programs that end on Ctrl-C still do.

    :param state: ``COMMITTED``, ``ABORTED``, or ``UNKNOWN`` if this process does not know.
    """

    def __init__(self, job: str, table: str, state: JobState, cause: str = "") -> None:
        super().__init__(fate(job, table, state, cause))
        self.job = job
        self.table = table
        self.state = state


@contextmanager
def alone(opened: OpenedJob) -> Iterator[None]:
    """Let the block commit or abort a job while no other thread of this process does.

    All threads of a process are one holder of a job's claims. If two of them committed the job, or
    one committed and one aborted it, each would take the other's claims for its own.

    :raises InvalidInputError: another thread does; nothing was changed.
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
