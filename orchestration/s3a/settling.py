"""Plans that let a run with Hadoop's committers settle a conflict: the whole run loads again.

The record of such a plan is the same as for a run with the native committer. It is in a folder
beside the destination, since an overwrite removes everything in the destination. Its version of a
partition is the number of attempts of other runs that had loaded the partition, by the ledger.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...committer.commit.narrowed_run import (
    end_narrowing,
    leave_narrowing,
    read_narrowing,
    too_late,
)
from ...committer.errors import InvalidInputError, first_few
from ...committer.format.job_spec import Mode
from ...committer.format.layout import UNPARTITIONED, TableRoot, new_write_id
from ...committer.format.records.narrowing import Narrowing
from ...s3a.runs import ledger
from ...s3a.runs.rivals import Loads, called_run, loads_of_others, written_at
from ...s3a.runs.try_record import COMMITTED, TryRecord

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ...committer import Table
    from ...tables import DeltaTable
    from ..runs.heartbeat import RepeatableRun

_log = logging.getLogger(__name__)


def plans_root(root: TableRoot) -> TableRoot:
    """Return the root of the plans for the runs of a destination."""
    return TableRoot(root.bucket, ledger.beside(root, "s3a-plans").rstrip("/"))


def taken_plan(table: Table, run: RepeatableRun) -> Narrowing | None:
    """Take the plan that lets this clear of a task settle a conflict; ``None``: there is none.

    Only a task with an earlier attempt can have a plan.

    :raises InvalidInputError: the run comes too late for the plan, so it is not known whether the
        plan cleared it.
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
    """Return the last attempt of a run that committed; if none has, the last attempt."""
    tries = table.run(ledger.tries_of(table.root, idempotency_key))
    done = [it.record for it in tries if it.record.state == COMMITTED]
    return done[-1] if done else tries[-1].record if tries else None


def load_to_repeat(table: Table, idempotency_key: str) -> TryRecord:
    """Return the last load of a run that is to load again, as :func:`last_load`.

    :raises InvalidInputError: no attempt of the run is on record any more.
    """
    found = last_load(table, idempotency_key)
    if found is None:
        raise InvalidInputError(
            f"No attempt of the run {idempotency_key} is on record any more. Nothing was loaded "
            "again.",
            remedy="Run it again by hand (clear its task, materialise its asset), with "
            "on_conflict='last_wins'.",
        )
    return found


def planned_loads(
    table: Table, winner: TryRecord, contested: Collection[str], losers: Collection[str]
) -> dict[str, int]:
    """Return the versions of a plan that lets a run settle a conflict.

    They are the number of attempts of other runs that have loaded each partition of the run.

    :param contested: the partitions in conflict.
    :param losers: the keys of the runs that give way there.
    :raises InvalidInputError: the whole run would load again, and it must not: it has appended, or
        a run that is not one of the losers has won one of its partitions.
    """
    _refuse_additions(winner)
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


def _refuse_additions(winner: TryRecord) -> None:
    """Refuse to let a run load again if it has added rows, or may have.

    :raises InvalidInputError: it has, or may have.
    """
    if winner.mode != Mode.REPLACE:
        how = "appended" if winner.mode == Mode.APPEND else "wrote as only its application knows"
        raise InvalidInputError(
            f"The run {called_run(winner)} has {how}, and with one of Hadoop's committers the "
            "whole run loads again: its rows would be there twice. Nothing was loaded again.",
            remedy="Look which rows are there, remove those that are not to stay, and load what "
            "is missing by hand. Runs that replace their partitions can settle a conflict.",
        )


@dataclass(frozen=True)
class AdoptedPlan:
    """Plan for a run of Hadoop's committers that is to load a directory which has become a Delta
    table. The run loads again as a job of that table, so its log has the versions.

    :param versions: of the partitions in conflict, in the log.
    :param is_whole: the run has loaded no other partition.
    """

    versions: Mapping[str, int]
    is_whole: bool


def plan_since_adoption(
    table: Table, delta: DeltaTable, idempotency_key: str, contested: Collection[str]
) -> AdoptedPlan:
    """Plan that a run settles a conflict from before the adoption, by a job of the Delta table.

    :param table: the directory, beside which the records of the run lie.
    :param contested: the partitions in conflict.
    :raises InvalidInputError: the run has appended; no attempt of it is on record; or the Delta
        table has other rows in the partitions by now.
    """
    # Imported on use: processes that only parse DAG files need not load it.
    from ...maintenance.conflicts import ADOPTION

    winner = load_to_repeat(table, idempotency_key)
    _refuse_additions(winner)
    found = delta.settled(dict.fromkeys(contested, ADOPTION))
    if moved := sorted(name for name, it in found.items() if it.version != ADOPTION):
        raise InvalidInputError(
            f"The directory has become a Delta table, where a job has changed {first_few(moved)} "
            "since. Nothing was loaded again.",
            table=table.root.url,
            remedy="Load the partition again by the task that is to own it, with "
            "on_conflict='last_wins'.",
        )
    is_whole = UNPARTITIONED in contested or (
        bool(winner.partitions) and {*winner.partitions} <= {*contested}
    )
    return AdoptedPlan(dict.fromkeys(contested, ADOPTION), is_whole)


def _refuse_doubtful(loads: Loads) -> None:
    if loads.doubtful:
        raise InvalidInputError(
            f"{called_run(loads.doubtful[0])} has begun to write the same partitions, and nobody "
            "knows yet whether it has committed. Nothing was loaded again.",
            remedy="Resolve the conflict when that run has ended. If its worker has died, its next "
            "attempt says what it did, or `zero-rename s3a-recover`.",
        )


def _folder(partition: str) -> str:
    return "the same destination" if partition == UNPARTITIONED else partition


def settled_by(table: Table, idempotency_key: str, contested: Mapping[str, int]) -> str | None:
    """Return the job by which a run has settled the conflict over partitions.

    :param contested: by partition, the number of attempts of other runs that had loaded it when
        the settlement was planned.
    :return: ``None`` if the run has not settled it, or another run has loaded one of them since.
    """
    tries = table.run(ledger.tries_of(table.root, idempotency_key))
    done = [it.record for it in tries if it.record.state == COMMITTED]
    if not done or not contested.keys() <= done[-1].settles.keys():
        return None
    found = table.run(loads_of_others(table.root, done[-1])).partitions
    numbers = {name: found[name].number if name in found else 0 for name in contested}
    report = done[-1].report or {}
    return report.get("job") if numbers == {**contested} and "conflict" not in report else None
