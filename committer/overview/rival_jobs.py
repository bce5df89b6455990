"""Rivals of a run: jobs of other runs that are at work on its partitions, by their open records."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ..commit.state.context import Context
from ..commit.state.found_table import find_table
from ..commit.state.open_jobs import list_open
from ..commit.state.tolerance import or_damage
from ..errors import DamagedError, first_few
from ..format.job_spec import NOBODY, Mode, Owner
from ..format.records.decision import Verdict
from ..format.schema.hive_paths import spelled_as_stored
from ..store.requests import All, Step
from ..upkeep.recovery import JudgedJob, judge_job, known

#: Columns and partition columns of a table.
TableShape = tuple[pa.Schema, Sequence[str]]


@dataclass(frozen=True)
class RivalJob:
    """Job of another run that is at work.

    :param silent_for: seconds since its last heartbeat, by the store's clock.
    :param partitions: the only ones that it may write; empty: this is not known.
    """

    job: str
    owner: Owner
    silent_for: float
    partitions: tuple[str, ...]

    def __str__(self) -> str:
        where = first_few(self.partitions) if self.partitions else "any partition"
        return f"{self.job} (of {_named(self.owner)}; it writes {where})"


def find_rivals(
    context: Context, partitions: Collection[str], appends: bool, run: str | None
) -> Step[list[RivalJob]]:
    """Find the jobs of other runs that are at work on partitions, the oldest first.

    A job that is aborted, or silent for so long that it counts as dead, is not at work. Two appends
    are not rivals. Requests: a LIST, and if jobs are open, two for each.

    :param partitions: the run's partitions; empty: any.
    :param appends: whether the run appends.
    :param run: its idempotency key, whose own jobs are not rivals.
    """
    jobs = sorted((yield from list_open(context)))
    if not jobs:
        return []
    found = yield from find_table(context)
    shape = None if found is None else (found.record.schema, found.record.partition_by)
    mine = stored_names(partitions, shape)
    context, _ = yield from known(context, found)
    judged = yield from All(tuple(or_damage(judge_job(context, job, None)) for job in jobs))
    rivals = []
    for it in judged:
        # If the decision cannot be read, the job is left out: recovery reports it, and waiting for
        # it would never end.
        if it is None or isinstance(it, DamagedError) or not _is_at_work(it):
            continue
        record = it.entry.record
        if record is None:
            rivals.append(RivalJob(it.entry.job, NOBODY, it.entry.silent_for, ()))
            continue
        is_own = run is not None and record.idempotency_key == run
        both_append = appends and record.mode is Mode.APPEND
        theirs = stored_names(record.partitions, shape)
        if not is_own and not both_append and meet(mine, theirs):
            rivals.append(RivalJob(record.job, record.owner, it.entry.silent_for, theirs))
    return rivals


def _is_at_work(it: JudgedJob) -> bool:
    is_aborted = it.decided is not None and it.decided.decision.verdict is Verdict.ABORT
    return not is_aborted and it.entry.silent_for < it.allowed


def stored_names(partitions: Collection[str], shape: TableShape | None) -> tuple[str, ...]:
    """Return partitions in the form in which the table stores them.

    Two jobs may name one partition in two ways, ``day=1`` and ``day=01``.

    :param shape: the table's columns and partition columns; ``None``: there is no table yet.
    """
    if shape is None:
        return tuple(partitions)
    return tuple(spelled_as_stored(path, *shape) for path in partitions)


def meet(mine: Collection[str], others: Collection[str]) -> bool:
    """Return whether two jobs may write the same partition.

    Each names the partitions that it may write, or none if it may write any.
    """
    return not mine or not others or not set(mine).isdisjoint(others)


def _named(owner: Owner) -> str:
    if owner.dag_id is None:
        return owner.application or "another run"
    return f"{owner.dag_id}.{owner.task_id} of run {owner.run_id}"
