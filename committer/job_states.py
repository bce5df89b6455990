"""States of a table's jobs: what became of each."""

from __future__ import annotations

from typing import TypeVar

from .commit.apply import committed
from .commit.state.context import Context
from .commit.state.decide import read_decision
from .commit.state.heads import read_head
from .commit.state.job_state import Committed, JobState
from .commit.state.open_jobs import read_open
from .format.job_spec import Owner
from .format.layout import TableRoot
from .format.records.head import Slot
from .store.driver import BotoDriver
from .store.requests import Step
from .upkeep.recovery import OpenJob, open_jobs

T = TypeVar("T")


class JobStates:
    """The jobs of one table. Every method sends a few requests; none changes anything."""

    def __init__(self, root: TableRoot, driver: BotoDriver) -> None:
        self.root = root
        self.driver = driver
        self._context = Context(root)

    def run(self, step: Step[T]) -> T:
        """Carry out a step in this table's bucket, and return what it returns.

        For what this class has no method for: the parts of this package that look after other
        committers' jobs (``zero_rename.s3a``) are steps, too. See ``committer/store/requests.py``.
        """
        return self.driver.run(step)

    def job_state(self, job: str) -> JobState:
        """Whether a job is committed, aborted, undecided, or unknown here."""
        decided = self.driver.run(read_decision(self._context, job))
        if decided is not None:
            return JobState.COMMITTED if decided.decision.is_commit else JobState.ABORTED
        return JobState.UNKNOWN if self.is_closed(job) else JobState.UNDECIDED

    @property
    def retries(self) -> int:
        """Requests that this process had to send again so far, to this table's store."""
        return self.driver.retries

    def result(self, job: str) -> Committed | None:
        """What a committed job did; ``None`` for any other.

        It is ready for readers that list only when :meth:`is_closed` says so too.
        """
        decided = self.driver.run(read_decision(self._context, job))
        if decided is None or not decided.decision.is_commit:
            return None
        return committed(self._context, decided)

    def is_closed(self, job: str) -> bool:
        """Whether a job has no open record: nothing of it is left to do."""
        return self.driver.run(read_open(self._context, job)) is None

    def once_job(self, once: str) -> str | None:
        """The job that last did the work of this run's key, or ``None``.

        A decided commit counts before it is applied.
        """
        slot = Slot.once(self.root, once)
        head = self.driver.run(read_head(self._context, slot)).head
        if head.claim is not None and self.job_state(head.claim) is JobState.COMMITTED:
            return head.claim
        return head.last_job

    def partition_job(self, partition: str, beyond: int = 0) -> str | None:
        """The job that last moved a partition beyond an epoch, or ``None``.

        A decided commit counts before it is applied.
        """
        head = self.run(read_head(self._context, Slot.partition(self.root, partition))).head
        claim = head.claim
        if claim and head.epoch >= beyond and self.job_state(claim) is JobState.COMMITTED:
            return claim
        return head.last_job if head.epoch > beyond else None

    def claimed_by(self, slot: Slot) -> str | None:
        """The job that is about to change a partition, or to do the work of a run's key."""
        return self.run(read_head(self._context, slot)).head.claim

    def owner_of(self, job: str) -> Owner | None:
        """Who ran a job, by its decision; ``None`` where it has none."""
        decided = self.run(read_decision(self._context, job))
        return None if decided is None else decided.decision.owner

    def open_jobs(self) -> list[OpenJob]:
        """The jobs that are not wholly cleaned up yet, oldest first."""
        return self.driver.run(open_jobs(self._context))
