"""Steps of a job on the records of its table: opening, heartbeat, commit and abort."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from .commit.checked_open import open_checked
from .commit.commit import abort_job, commit_job
from .commit.state.context import Context
from .commit.state.heartbeat import Beats, heartbeat_of
from .commit.state.job_state import Aborted, Committed, OpenedJob, UnpublishedJob
from .format.job_spec import JobSpec
from .format.layout import TableRoot
from .format.records.pending_file import TaskResult
from .store.driver import BotoDriver
from .store.requests import Delete


class JobSteps(Protocol):
    """Interface of a job to the records of its table."""

    @property
    def driver(self) -> BotoDriver: ...

    @property
    def root(self) -> TableRoot: ...

    def job_id(self) -> str:
        """Make the id of a job that is about to open."""
        ...

    def open(self, job: str, spec: JobSpec) -> OpenedJob:
        """Open a job, by its id.

        :raises RefusedError: only an open record was written, which is removed again.
        """
        ...

    def forget(self, job: str) -> None:
        """Remove the open record of a job whose opening was interrupted. It has no tasks yet."""
        ...

    def heartbeat(self, opened: OpenedJob, beats: Beats) -> Callable[[], bool] | None:
        """Return a function that sends one heartbeat of an open job.

        The function returns ``False`` once no further heartbeat is to be sent.

        :returns: ``None``: no process would read the heartbeats.
        """
        ...

    def commit(
        self, opened: OpenedJob, results: Sequence[TaskResult], tasks: int
    ) -> Committed | UnpublishedJob:
        """Commit an open job, or leave it unpublished if its specification says so.

        :param results: one of each task; ``tasks``: how many there were.
        :raises RefusedError: nothing of it is visible.
        :raises CommitStateUnknownError: it may be committed.
        :raises UnfinishedCommitError: it is committed.
        """
        ...

    def abort(self, opened: OpenedJob, results: Sequence[TaskResult]) -> Aborted | Committed:
        """Abort an open job, or find that it is committed."""
        ...


@dataclass(frozen=True)
class HeadSteps:
    """Steps of a job in a table of heads."""

    driver: BotoDriver
    context: Context

    @property
    def root(self) -> TableRoot:
        return self.context.root

    def job_id(self) -> str:
        return self.context.job_id()

    def open(self, job: str, spec: JobSpec) -> OpenedJob:
        return open_checked(self.driver, replace(self.context, job_id=lambda: job), spec)

    def forget(self, job: str) -> None:
        self.driver.run(Delete(self.root.open_key(job)))

    def heartbeat(self, opened: OpenedJob, beats: Beats) -> Callable[[], bool] | None:
        if not opened.facts.conditional_put:
            return None
        return heartbeat_of(self.driver, self.context, opened, beats)

    def commit(self, opened: OpenedJob, results: Sequence[TaskResult], tasks: int) -> Committed:
        return self.driver.run(commit_job(self.context, opened, results, tasks))

    def abort(self, opened: OpenedJob, results: Sequence[TaskResult]) -> Aborted | Committed:
        return self.driver.run(abort_job(self.context, opened, results))
