"""Look before a submission whether a run gives way: an application whose rows are then left out
need not start."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from ...committer.format.job_spec import Mode, OnConflict, OnSuperseded
from ...committer.format.run_rank import NO_RANK

if TYPE_CHECKING:
    from ...committer import Table
    from ...committer.format.handoff import Handoff


def refuse_superseded(
    table: Table, handoff: Handoff, partitions: Callable[[], Collection[str]]
) -> None:
    """Refuse a run that gives way: newer ones have overtaken it, under ``on_conflict=newest_run``,
    or a conflict was settled against it. What comes after this look its job finds as it claims.

    Requests: one for each partition, under ``newest_run``, and under ``fail`` where the task was
    tried before; else none.

    :param partitions: says which partitions the run is known to write.
    :raises SupersededRunError: it gives way.
    :raises InvalidInputError: ranks do not compare.
    """
    policy, mode = handoff.on_conflict, handoff.mode
    was_tried = (handoff.try_number or 1) > 1
    is_ranked = handoff.run_rank is not None and mode is not None
    asks = {OnConflict.FAIL: was_tried, OnConflict.NEWEST_RUN: is_ranked}
    if policy is None or not asks.get(policy):
        return
    named = partitions()
    if not named:
        return
    # On use: DAG files are parsed by processes that submit nothing.
    from ...committer.commit.newest_run import refuse_overtaken

    ranks, run = handoff.run_rank or NO_RANK, handoff.idempotency_key
    found = table.newer_runs(named, ranks, mode is Mode.REPLACE, run=run, on_conflict=policy)
    refuse_overtaken(found, named, handoff.on_superseded or OnSuperseded.FAIL)
