"""Wait for jobs of other runs that are at work on a run's partitions."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ...committer.format.job_spec import Mode

if TYPE_CHECKING:
    from ...committer.format.job_spec import OnConflict
    from ...committer.rival_wait import RivalWait
    from .loaded_table import LoadedTable


def wait_for_rivals(
    table: LoadedTable,
    waiting: RivalWait,
    partitions: Collection[str],
    mode: Mode | None,
    on_conflict: OnConflict | None,
    run: str | None,
) -> None:
    """Wait, before a run opens its job, until no job of another run is at work on its partitions.

    :param partitions: as the table spells them; empty: any.
    :param mode: ``None``: only the application knows it.
    :param run: the run's idempotency key.
    :raises CommitConflictError: such a job is still at work when the wait ends, under *fail*. The
        other policies decide when the job commits.
    """
    waiting.wait_for_rivals(
        lambda: table.rival_jobs(partitions, mode is Mode.APPEND, run=run),
        on_conflict,
        table.root.url,
        "Clear the task when that run has ended: it then loads on top of its rows.",
    )
