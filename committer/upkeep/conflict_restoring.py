"""Settling a conflict by bringing back the rows of the run that is to stand: in a table that is
read by heads, as long as the partition's head keeps them; where readers list files, only as long as
they are visible. The job writes no row, leaves in the head who stands, and is refused where the
partition has changed since the conflict was looked at."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from ..commit.brought_back import refuse_elsewhere
from ..commit.state.context import Context
from ..commit.state.decide import Decided, read_decision
from ..commit.state.found_table import read_table
from ..commit.state.heads import read_head
from ..commit.state.open_jobs import OpenEntry, list_open, read_open
from ..commit.state.partition_files import files_of_head
from ..errors import InvalidInputError, OtherJobError, first_few
from ..format.job_spec import JobSpec, Owner, Readers, SuccessMarkers
from ..format.layout import UNPARTITIONED
from ..format.read_base import ReadBase
from ..format.records.data_file import DataFile
from ..format.records.head import HeadState, Slot
from ..format.records.partition_ranks import SettledRuns, Settling
from ..format.records.run_conflict import ConflictingRun, RunConflict, SettledBy
from ..store.requests import All, Step
from .restoring import Restored, RestorePlan

#: Advice where rows cannot be brought back.
RERUN_REMEDY = "Let the run that is to stand load the partition again."


@dataclass(frozen=True)
class SettlementPlan:
    """What is to be done about a conflict.

    :param losers: the keys of the runs whose rows are not visible then.
    :param restore: which state is to be visible.
    :param readers: how readers find files. Where they list them, it is the present state.
    """

    how: SettledBy
    losers: tuple[str, ...]
    restore: RestorePlan
    readers: Readers

    def spec(self, conflict: RunConflict, winner: ConflictingRun, owner: Owner) -> JobSpec:
        """Return the job that carries it out: it leaves in the partition who stands, too."""
        runs = SettledRuns(winner.key, self.losers)
        settles = {conflict.partition: Settling(runs, conflict.highest_rank(winner))}
        plan = self.restore
        if self.readers is Readers.HEADS:
            return replace(plan.spec(owner), settles=settles)
        return JobSpec(
            plan.schema,
            only_partitions=(conflict.partition,) if plan.partition_by else None,
            base=ReadBase(plan.url, dict(plan.restored.found), whole=False),
            settles=settles,
            # The markers tell of the files that are there, and of the job that wrote them.
            success_markers=SuccessMarkers.NONE,
            owner=owner,
        )


def plan_settlement(
    context: Context, conflict: RunConflict, winner: ConflictingRun
) -> Step[SettlementPlan]:
    """Work out how a run's rows become visible again. Changes nothing.

    :raises InvalidInputError: the partition has changed since the look, or the rows are not kept,
        or rows of runs that are not in the conflict would go.
    :raises OtherJobError: a job is at work on the partition, or may be.
    """
    name = conflict.partition
    table = yield from read_table(context)
    context = context.of(table)
    yield from refuse_open_jobs(context, name)
    state = yield from read_head(context, Slot.partition(context.root, name))
    if state.head.version != conflict.version:
        raise InvalidInputError(
            f"{conflict.name} has changed since the conflict was looked at: it is at version "
            f"{state.head.version}, and was at {conflict.version}. Nothing was changed.",
            key=state.slot.key,
            remedy="Look for conflicts again, and settle what is there then.",
        )
    now = yield from _content(context, state)
    others = {it.key for it in conflict.runs if it.key != winner.key}
    if now.is_of(winner, state.head.last_job) and not others & now.runs:
        version, held = state.head.version, now
    else:
        if table.readers is not Readers.HEADS or winner.gave_way:
            why = (
                "it gave way, and wrote nothing"
                if winner.gave_way
                else "this table's readers list files, so a replace removes what it takes the "
                "place of"
            )
            raise InvalidInputError(
                f"The rows of {winner} in {conflict.name} cannot be brought back: {why}. Nothing "
                "was changed.",
                remedy=RERUN_REMEDY,
            )
        version, held = yield from _find_kept(context, state, conflict, winner)
    _refuse_lost_rows(conflict, winner, now, held)
    refuse_elsewhere(context.root, table, held.files)
    restored = Restored({name: version}, {name: state.head.version})
    plan = RestorePlan(context.root.url, table.schema, table.partition_by, restored)
    how = SettledBy.KEPT if version == state.head.version else SettledBy.RESTORE
    return SettlementPlan(how, tuple(sorted(others - held.runs)), plan, table.readers)


def check_rerun(context: Context, conflict: RunConflict, winner: ConflictingRun) -> Step[None]:
    """See that the run that is to stand may load a partition again. Changes nothing.

    :raises InvalidInputError: rows of runs that are not in the conflict would go.
    :raises OtherJobError: a job of another run is at work on the partition, or may be.
    """
    name = conflict.partition
    context = context.of((yield from read_table(context)))
    yield from refuse_open_jobs(context, name)
    now = yield from _content(
        context, (yield from read_head(context, Slot.partition(context.root, name)))
    )
    others = sorted(now.runs - {it.key for it in conflict.runs})
    if others:
        raise InvalidInputError(
            f"{first_few(others)} wrote rows to {conflict.name} that are no part of the conflict: "
            "they would go, too. Nothing was changed.",
            remedy="Clear the run that is to stand by hand, and then those.",
        )


def refuse_open_jobs(context: Context, partition: str, but: str | None = None) -> Step[None]:
    """See that no job is at work on a partition: one that names no partitions may be.

    :param but: the key of a run whose jobs do not count.
    :raises OtherJobError: there is one.
    """
    jobs = yield from list_open(context)
    found = yield from All(tuple(read_open(context, job) for job in sorted(jobs)))
    for entry in found:
        if entry is None or (entry.record and but and entry.record.idempotency_key == but):
            continue
        if _may_write(entry, partition):
            if (yield from read_decision(context, entry.job)) is not None:
                continue
            raise OtherJobError(
                f"{entry.job} is at work, and may write {_in_words(partition)}. Nothing was "
                "changed.",
                job=entry.job,
                remedy="Settle the conflict when that job has ended. One whose driver has died "
                f"ends by recovery: zero-rename recover {context.root.url} --apply",
            )


def _may_write(entry: OpenEntry, partition: str) -> bool:
    record = entry.record
    return record is None or not record.partitions or partition in record.partitions


def _in_words(partition: str) -> str:
    return "the table" if partition == UNPARTITIONED else partition


@dataclass(frozen=True)
class _KeptRows:
    """What a partition holds, or held: its files, and the keys of the runs whose rows they have."""

    files: tuple[DataFile, ...]
    runs: frozenset[str]

    def is_of(self, run: ConflictingRun, job: str | None) -> bool:
        """Tell whether rows of a run are there, or the run has left none.

        :param job: which made the partition so.
        """
        return run.key in self.runs or (not self.files and run.job == job)


def _content(context: Context, state: HeadState) -> Step[_KeptRows]:
    files = yield from files_of_head(context, state)
    jobs = {it.job for it in files if it.job}
    writers = yield from _decisions(context, jobs)
    name = state.slot.name
    merged = {
        job
        for it in writers.values()
        for change in it.changes.get(name, ())
        for job in change.merged
        if job
    }
    origins = {
        job
        for job, it in writers.items()
        if not any(change.merged for change in it.changes.get(name, ()))
    } | merged
    found = writers | (yield from _decisions(context, merged - writers.keys()))
    keys = (found[job].decision.idempotency_key or job for job in origins if job in found)
    return _KeptRows(files, frozenset(keys))


def _decisions(context: Context, jobs: Collection[str]) -> Step[dict[str, Decided]]:
    names = sorted(jobs)
    found = yield from All(tuple(read_decision(context, job) for job in names))
    return {job: it for job, it in zip(names, found, strict=True) if it is not None}


def _find_kept(
    context: Context, state: HeadState, conflict: RunConflict, winner: ConflictingRun
) -> Step[tuple[int, _KeptRows]]:
    """Find the last version of a partition that held rows of a run, of those that the head keeps.

    :raises InvalidInputError: it keeps none.
    """
    for line in reversed(state.head.lines):
        if not line.moves:
            continue
        version = line.moves[-1].version
        former = state.head.as_of(version)
        if former is None:
            continue
        held = yield from _content(context, replace(state, head=former))
        if held.is_of(winner, line.moves[-1].job):
            return version, held
    raise InvalidInputError(
        f"The rows of {winner} in {conflict.name} are not kept any more. Nothing was changed.",
        key=state.slot.key,
        remedy=f"{RERUN_REMEDY} How long they are kept is the table's retention: zero-rename "
        f"retention {context.root.url}",
    )


def _refuse_lost_rows(
    conflict: RunConflict, winner: ConflictingRun, now: _KeptRows, held: _KeptRows
) -> None:
    """See that no rows go but those of runs in the conflict.

    :raises InvalidInputError: others would.
    """
    lost = sorted(now.runs - held.runs - {it.key for it in conflict.runs})
    if lost:
        raise InvalidInputError(
            f"{first_few(lost)} wrote rows to {conflict.name} since those of {winner} were "
            "removed: they would go, too. Nothing was changed.",
            remedy=RERUN_REMEDY,
        )
