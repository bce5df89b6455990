"""Steps of a job by the records of its table: opening, heartbeat, commit and abort."""

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
    """What a job asks of the records of its table."""

    @property
    def driver(self) -> BotoDriver: ...

    @property
    def root(self) -> TableRoot: ...

    def job_id(self) -> str:
        """Make the id of a job that is about to open."""
        ...

    def open(self, job: str, spec: JobSpec) -> OpenedJob:
        """Open a job, by its id.

        :raises RefusedError: nothing was written but an open record, which is removed again.
        """
        ...

    def forget(self, job: str) -> None:
        """Remove the open record of a job whose opening was broken off: there are no tasks yet."""
        ...

    def heartbeat(self, opened: OpenedJob, beats: Beats) -> Callable[[], bool] | None:
        """What sends one heartbeat of an open job at a call, ``False`` when none is to follow;
        ``None``: nobody reads them."""
        ...

    def commit(
        self, opened: OpenedJob, results: Sequence[TaskResult], tasks: int
    ) -> Committed | UnpublishedJob:
        """Commit an open job, or leave it unpublished where its specification says so.

        :param results: one of each task; ``tasks``: how many there were.
        :raises RefusedError: nothing of it is visible.
        :raises CommitStateUnknownError: it may be committed.
        :raises UnfinishedCommitError: it is.
        """
        ...

    def abort(self, opened: OpenedJob, results: Sequence[TaskResult]) -> Aborted | Committed:
        """Abort an open job, or find that it is committed."""
        ...


@dataclass(frozen=True)
class HeadSteps:
    """The steps of a job in a table of heads."""

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
