"""Wait of a run for the jobs of other runs that are at work on its partitions."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING

from ...committer.errors import CommitConflictError, first_few
from ...committer.format.job_spec import Mode, OnConflict

if TYPE_CHECKING:
    from ...committer.rival_wait import RivalWait
    from .loaded_table import LoadedTable

_log = logging.getLogger(__name__)


def wait_for_rivals(
    table: LoadedTable,
    waiting: RivalWait,
    partitions: Collection[str],
    mode: Mode | None,
    on_conflict: OnConflict | None,
    run: str | None,
) -> None:
    """Wait as long as jobs of other runs are at work on a run's partitions, before it begins one.

    :param partitions: as the table spells them; none: any.
    :param mode: ``None``: only the application knows.
    :param run: the run's idempotency key.
    :raises CommitConflictError: one is at work after all that time, under *fail*. The other
        policies decide as the job commits.
    """
    left = waiting.wait_while(lambda: table.rival_jobs(partitions, mode is Mode.APPEND, run=run))
    if not left:
        return
    said = (
        f"Another run is at work on the same partitions after "
        f"wait_for_other_runs={waiting.longest:.0f} s: {first_few(left)}"
    )
    if on_conflict in (OnConflict.LAST_WINS, OnConflict.NEWEST_RUN):
        _log.warning("%s. on_conflict=%s decides which rows stay.", said, on_conflict)
        return
    raise CommitConflictError(
        f"{said}. Nothing was submitted or written.",
        table=table.root.url,
        remedy="Clear the task when that run has ended: it then loads on top of its rows. Or wait "
        "for it longer, by wait_for_other_runs.",
    )
