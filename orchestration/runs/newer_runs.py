"""Check before a submission: does the run give way? Then its application need not start."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from ...committer.errors import SupersededRunError, ZeroRenameError
from ...committer.format.job_spec import Mode, OnConflict, OnSuperseded
from ...committer.format.run_rank import NO_RANK, RunRanks

if TYPE_CHECKING:
    from ...committer.format.handoff import Handoff
    from .loaded_table import LoadedTable


_log = logging.getLogger(__name__)


def refuse_superseded(
    table: LoadedTable, handoff: Handoff, partitions: Callable[[], Collection[str]]
) -> None:
    """Refuse a run that gives way to others.

    A run gives way if newer runs have overtaken it, under ``on_conflict=newest_run``, or if a
    conflict was settled against it. A refused run is recorded as one that gave way, as its job
    would have done. Commits that come after this check are found by the job when it claims.

    It takes one request for each partition under ``newest_run``, and under ``fail`` if the task had
    an earlier attempt; otherwise none. A refusal takes one more.

    :param partitions: returns the partitions that the run is known to write.
    :raises SupersededRunError: the run gives way.
    :raises InvalidInputError: the ranks of the runs cannot be compared.
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
    # Imported on use: processes that only parse DAG files need not load it.
    from ...committer.commit.newest_run import refuse_overtaken

    ranks, run = handoff.run_rank or NO_RANK, handoff.idempotency_key
    found = table.newer_runs(named, ranks, mode is Mode.REPLACE, run=run, on_conflict=policy)
    try:
        refuse_overtaken(found, named, handoff.on_superseded or OnSuperseded.FAIL)
    except SupersededRunError as error:
        own = {name: rank for name in found if (rank := ranks.rank(name)) is not None}
        error.run_ranks = str(RunRanks(own)) if own else ""
        _put_on_record(table, handoff, error, named)
        raise


def _put_on_record(
    table: LoadedTable, handoff: Handoff, error: SupersededRunError, named: Collection[str]
) -> None:
    from ...committer.commit.failures import record_failure

    run = handoff.idempotency_key
    if run is None:
        return
    try:
        table.run(record_failure(error, table.root, run, handoff.owner, named))
    except ZeroRenameError as met:
        _log.warning("That this run gave way could not be put on record: %s", met)
