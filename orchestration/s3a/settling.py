"""Runs with Hadoop's committers that a plan lets settle a conflict: the whole run loads again.

The plan's word to such a run is the record that a native run has, below a folder beside the
destination: an overwrite takes away what lies in that. Its versions are how many tries of other
runs had loaded each partition, as the ledger says.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from ...committer.commit.narrowed_run import (
    end_narrowing,
    leave_narrowing,
    read_narrowing,
    too_late,
)
from ...committer.errors import InvalidInputError
from ...committer.format.job_spec import Mode
from ...committer.format.layout import UNPARTITIONED, TableRoot, new_write_id
from ...committer.format.records.narrowing import Narrowing
from ...s3a.runs import ledger
from ...s3a.runs.rivals import Loads, called_run, loads_of_others, written_at
from ...s3a.runs.try_record import COMMITTED, TryRecord

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ...committer import Table
    from ..runs.heartbeat import RepeatableRun

_log = logging.getLogger(__name__)


def plans_root(root: TableRoot) -> TableRoot:
    """Return the root below which plans tell the runs of a destination what to settle."""
    return TableRoot(root.bucket, ledger.beside(root, "s3a-plans").rstrip("/"))


def taken_plan(table: Table, run: RepeatableRun) -> Narrowing | None:
    """Take what a plan lets this clear of a task settle; ``None``: there is nothing. Only a task
    that was tried before asks.

    :raises InvalidInputError: it comes too late, and nobody knows whether it was cleared by that.
    """
    mine, root = run.owner.cleared, plans_root(table.root)
    if mine is None or (run.owner.try_number or 0) < 2:
        return None
    while True:
        left = table.run(read_narrowing(root, run.idempotency_key))
        if left is None or left.said.over:
            return None
        said = left.said
        if said.taken == mine:
            return said
        if said.taken is not None:
            table.run(end_narrowing(root, left, new_write_id()))
            _log.info("%s: a plan for the run %s is over", root.url, run.idempotency_key)
            return None
        if left.age > said.seconds:
            table.run(end_narrowing(root, left, new_write_id()))
            raise too_late(said, None)
        taken = replace(said, write_id=new_write_id(), taken=mine)
        if table.run(leave_narrowing(root, taken, left)):
            return taken


def last_load(table: Table, idempotency_key: str) -> TryRecord | None:
    """Return the latest try of a run, whether it committed or gave way."""
    tries = table.run(ledger.tries_of(table.root, idempotency_key))
    done = [it.record for it in tries if it.record.state == COMMITTED]
    return done[-1] if done else tries[-1].record if tries else None


def planned_loads(
    table: Table, winner: TryRecord, contested: Collection[str], losers: Collection[str]
) -> dict[str, int]:
    """Count how many tries of other runs have loaded each partition that a run loads again as it
    settles a conflict: the versions of its plan.

    :param contested: the partitions in conflict.
    :param losers: the keys of the runs that give way there.
    :raises InvalidInputError: the whole run loads again, and that cannot be: it has appended; or
        another run than those has won one of its partitions.
    """
    if winner.mode != Mode.REPLACE:
        how = "appended" if winner.mode == Mode.APPEND else "wrote as only its application knows"
        raise InvalidInputError(
            f"The run {called_run(winner)} has {how}, and with one of Hadoop's committers the "
            "whole run loads again: its rows would be there twice. Nothing was loaded again.",
            remedy="Look which rows are there, remove those that are not to stay, and load what "
            "is missing by hand. Runs that replace their partitions can settle a conflict.",
        )
    loads = table.run(loads_of_others(table.root, winner))
    _refuse_doubtful(loads)
    for name, it in loads.partitions.items():
        if name in contested and it.by.idempotency_key in losers:
            continue
        if name in contested or written_at(it.by) >= written_at(winner):
            raise InvalidInputError(
                f"The run {called_run(winner)} also loads {_folder(name)}, which "
                f"{called_run(it.by)} has won, and with one of Hadoop's committers the whole run "
                "loads again. Nothing was loaded again.",
                remedy=f"Resolve the conflict for {called_run(it.by)} there, too; or load what "
                "is missing by hand.",
            )
    named = winner.partitions or (UNPARTITIONED,)
    found = loads.partitions
    return {name: found[name].number if name in found else 0 for name in named}


def _refuse_doubtful(loads: Loads) -> None:
    if loads.doubtful:
        raise InvalidInputError(
            f"{called_run(loads.doubtful[0])} has begun to write the same partitions, and nobody "
            "knows yet whether it has committed. Nothing was loaded again.",
            remedy="Resolve the conflict when that run has ended. If its worker has died, its next "
            "try says what it did, or RecoverS3AJobsOperator.",
        )


def _folder(partition: str) -> str:
    return "the same destination" if partition == UNPARTITIONED else partition


def settled_by(table: Table, idempotency_key: str, contested: Mapping[str, int]) -> str | None:
    """Return the job by which a run has settled the conflict over partitions; ``None``: it has not,
    or another run has loaded one since.

    :param contested: each with how many tries of other runs had loaded it as that was planned.
    """
    tries = table.run(ledger.tries_of(table.root, idempotency_key))
    done = [it.record for it in tries if it.record.state == COMMITTED]
    if not done or not contested.keys() <= done[-1].settles.keys():
        return None
    found = table.run(loads_of_others(table.root, done[-1])).partitions
    numbers = {name: found[name].number if name in found else 0 for name in contested}
    report = done[-1].report or {}
    return report.get("job") if numbers == {**contested} and "conflict" not in report else None
