"""Interface of tables for loads: a ``Table`` (directories) or a ``DeltaTable``."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa

    from ...committer import Committed, OnConflict, Owner, RunRanks
    from ...committer.commit.newest_run import SupersededBy
    from ...committer.format.layout import TableRoot
    from ...committer.format.records.inputs import Inputs
    from ...committer.overview.rival_jobs import RivalJob
    from ...committer.upkeep.recovery import OpenJob, Recovered

T = TypeVar("T")


class LoadedTable(Protocol):
    """Methods of a table that a load calls before and after it submits an application."""

    root: TableRoot

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def partition_by(self) -> tuple[str, ...]: ...

    def exists(self) -> bool: ...

    def run(self, step: Generator[Any, Any, T]) -> T:
        """Carry out a step of the protocol on the table's store."""
        ...

    def job_of_key(self, idempotency_key: str) -> str | None:
        """Return the job that last did the work of a run's key; ``None``: there is none, or it is
        not known."""
        ...

    def has_done(self, idempotency_key: str) -> bool:
        """Return whether a job has done the work of a run's key, also if it is not known."""
        ...

    def owner_of(self, job: str) -> Owner | None: ...

    def result(self, job: str) -> Committed | None:
        """Return what a committed job did; ``None`` for a job that is not committed."""
        ...

    def is_closed(self, job: str) -> bool:
        """Return whether nothing is left to do for a job."""
        ...

    def open_jobs(self) -> list[OpenJob]: ...

    def send_heartbeat(self, job: str, interval: float = ...) -> bool: ...

    def recover(self, patience: float | None = ...) -> list[Recovered]: ...

    def settle(self, jobs: Collection[str]) -> list[Recovered]:
        """Finish or abort open jobs whose processes have ended."""
        ...

    def inputs_of(self, job: str) -> Inputs: ...

    def newer_runs(
        self,
        partitions: Iterable[str],
        run_rank: RunRanks,
        replaces: bool,
        *,
        run: str | None = ...,
        on_conflict: OnConflict | str = ...,
    ) -> dict[str, SupersededBy]:
        """Find the partitions in which a run gives way to others."""
        ...

    def rival_jobs(
        self, partitions: Collection[str], appends: bool, *, run: str | None = ...
    ) -> list[RivalJob]:
        """Find the jobs of other runs that are at work on partitions."""
        ...
