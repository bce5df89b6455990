"""Wait of an asset's step for other runs of its partitions."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from zero_rename.committer.format.job_spec import Mode, OnConflict
from zero_rename.committer.rival_wait import RivalWait

if TYPE_CHECKING:
    from .asset_step import AssetStep, AssetTable


def rival_wait(step: AssetStep, longest: float | None) -> RivalWait | None:
    """Make a step's wait, which logs the runs that it waits for; ``None`` if the step does not
    wait.

    :param longest: seconds; ``None`` and 0: it does not wait.
    """
    return RivalWait(longest, log=step.step.log) if longest else None


def wait_for_others(
    step: AssetStep,
    table: AssetTable,
    partitions: Collection[str],
    longest: float | None,
    mode: Mode,
    on_conflict: str,
) -> float:
    """Wait while jobs of other runs are at work on a step's partitions.

    The step has no open job during the wait, so no other run waits for it.

    :param partitions: as the table spells them; empty: any.
    :param longest: seconds; ``None`` and 0: it does not wait.
    :returns: the seconds of waiting.
    :raises CommitConflictError: a job is still at work after all that time, under *fail*. The other
        policies decide when the job commits.
    """
    waiting = rival_wait(step, longest)
    if waiting is None:
        return 0.0
    appends, run = mode is Mode.APPEND, step.idempotency_key
    waiting.wait_for_rivals(
        lambda: table.rival_jobs(partitions, appends, run=run),
        OnConflict(on_conflict),
        table.root.url,
    )
    return waiting.waited
