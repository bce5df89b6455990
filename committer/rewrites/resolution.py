"""Resolution of a conflict over a partition: which runs' rows it shall hold, as a new atomic job.

The job replaces the partition by the rows of files that are there, and refuses where the partition
has changed since it was looked at. What it replaces stays in the store, where no reader through the
heads sees it, unless it is to be discarded: so the same can be undone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ..errors import InvalidInputError
from ..job_spec import JobSpec, Mode, Owner, SuccessMarkers
from ..layout import jobs_on_record
from ..maintenance.conflicts import ConflictReport, PartitionConflict, files_of_job, find_conflicts
from ..protocol.snapshot import Snapshot, take_snapshot
from ..records.data_file import DataFile
from ..s3.listing import list_objects
from ..s3.requests import All, Step
from ..state.context import Context
from ..state.data_listing import list_data
from ..state.decide import Decided, read_decision
from ..state.partition_files import files_of_decision


class Keep(StrEnum):
    """Policies: whose rows stay, of those that conflict. Those of other runs always do."""

    NEWEST = "newest"
    ALL = "all"


@dataclass(frozen=True)
class Resolution:
    """What a partition is to hold, or holds since ``job`` committed.

    :param kept: jobs whose rows stay; ``dropped``: whose do not.
    :param files: that the rows are read from.
    :param rows: ``None`` where foreign files are among them, whose rows nobody counted.
    """

    partition: str
    kept: tuple[str, ...]
    dropped: tuple[str, ...]
    files: int
    rows: int | None
    job: str | None = None


@dataclass(frozen=True)
class ResolutionPlan:
    """A resolution, the files whose rows make it, and the state that it was worked out from."""

    resolution: Resolution
    files: tuple[DataFile, ...]
    snapshot: Snapshot

    def spec(self, owner: Owner, discard: bool) -> JobSpec:
        """The job that carries it out."""
        partitions = () if not self.snapshot.partition_by else (self.resolution.partition,)
        return JobSpec(
            self.snapshot.schema,
            Mode.REPLACE,
            replace_partitions=partitions,
            replace_table=not partitions,
            base=self.snapshot.base,
            keep_replaced=not discard,
            merges={self.resolution.partition: self.resolution.kept},
            success_markers=SuccessMarkers.NONE,
            owner=owner,
        )


def plan_resolution(
    context: Context, partition: str, keep: Sequence[str], window: float, since: float
) -> Step[ResolutionPlan]:
    """Work out what a partition is to hold. Changes nothing.

    :param keep: :class:`Keep`, or the ids of jobs of the conflict.
    :param window: with ``since``, as in :func:`.conflicts.find_conflicts`.
    :raises InvalidInputError: there is no such conflict, or files of a job to keep are gone.
    """
    report: ConflictReport = yield from find_conflicts(context, window, since, partition)
    conflict = next((it for it in report.conflicts if len(it.touches) > 1), None)
    if conflict is None:
        raise InvalidInputError(
            f"No two runs touched {partition} so near to each other in that time; nothing was "
            "changed.",
            table=context.root.url,
            remedy="Give a greater --window or --since; zero-rename conflicts "
            f"{context.root.url} names what there is.",
        )
    kept = _kept(context, conflict, keep)
    # After the report: what has come since is nobody's to drop.
    snapshot: Snapshot = yield from take_snapshot(context, [partition])
    dropped = [it.job for it in conflict.touches if it.job not in kept]
    files = [file for file in snapshot.files if file.job not in dropped]
    seen = {file.key for file in snapshot.files}
    for touch in conflict.touches:
        if touch.job in kept and touch.visible < touch.files:
            own = yield from files_of_job(context, touch.job, partition)
            files += (file for file in own if file.key not in seen)
    yield from _require(context, partition, files)
    return _plan(partition, kept, dropped, files, snapshot)


def plan_undoing(context: Context, partition: str, job: str) -> Step[ResolutionPlan]:
    """Work out what a partition held before a job replaced it. Changes nothing.

    By the decisions of all jobs, which say in which order each came: one request a decision.

    :raises InvalidInputError: the job has not changed the partition, others have since, or files
        of that state are gone.
    """
    changes = yield from _history(context, partition)
    last = max(changes, default=None)
    if last is None or changes[last].decision.job != job:
        raise InvalidInputError(
            f"{job} is not the job that changed {partition} last; nothing was changed.",
            table=context.root.url,
            job=job,
            remedy=f"zero-rename conflicts {context.root.url} names the runs that did.",
        )
    snapshot: Snapshot = yield from take_snapshot(context, [partition])
    if _only_adds(changes[last], partition):
        files = [file for file in snapshot.files if file.job != job]
    else:
        files = _state_before(context, changes, partition, last)
    yield from _require(context, partition, files)
    kept = dict.fromkeys(file.job for file in files if file.job)
    return _plan(partition, tuple(kept), [job], files, snapshot)


def _history(context: Context, partition: str) -> Step[Mapping[int, Decided]]:
    """The commits that changed a partition, by the epoch that they found."""
    prefix = context.root.decisions_prefix
    listing = yield from list_objects(prefix)
    jobs = sorted(jobs_on_record(prefix, listing.keys))
    found = yield All(tuple(read_decision(context, job) for job in jobs))
    return {
        change.base_epoch: it
        for it in found
        if it is not None
        for change in it.decision.partitions
        if change.partition == partition
    }


def _only_adds(decided: Decided, partition: str) -> bool:
    changes = decided.changes[partition]
    return not any(change.replace or change.dropped_job for change in changes)


def _state_before(
    context: Context, changes: Mapping[int, Decided], partition: str, end: int
) -> list[DataFile]:
    files: list[DataFile] = []
    unknown = ""
    for epoch in sorted(epoch for epoch in changes if epoch < end):
        decision = changes[epoch].decision
        for change in changes[epoch].changes[partition]:
            gone = change.dropped_job
            files = [] if change.replace else [it for it in files if it.job != gone]
            unknown = "" if change.replace else unknown
        files += files_of_decision(decision, partition)
        unknown = decision.job if decision.settled else unknown
    if unknown:
        raise InvalidInputError(
            f"What {partition} held then is not on record any more: gc has settled it. Nothing was "
            "changed.",
            table=context.root.url,
            job=unknown,
            remedy="Load the partition again with mode replace.",
        )
    return files


def _kept(context: Context, conflict: PartitionConflict, keep: Sequence[str]) -> tuple[str, ...]:
    jobs = [it.job for it in conflict.touches]
    if list(keep) == [Keep.NEWEST]:
        return (jobs[-1],)
    if list(keep) == [Keep.ALL]:
        return tuple(jobs)
    strangers = [job for job in keep if job not in jobs]
    if strangers or not keep:
        what = strangers[0] if strangers else "no job"
        raise InvalidInputError(
            f"{what} is none of those that conflict over {conflict.partition}. Nothing was "
            "changed.",
            table=context.root.url,
            remedy=f"Give newest, all, or some of {', '.join(jobs)}.",
        )
    return tuple(job for job in jobs if job in keep)


def _require(context: Context, partition: str, files: Collection[DataFile]) -> Step[None]:
    """:raises InvalidInputError: one of the files is no longer there."""
    listed = yield from list_data(context.root, partition)
    sizes = {item.key: item.size for item in listed}
    lost = [file for file in files if sizes.get(file.key) != file.size]
    if lost:
        raise InvalidInputError(
            f"{len(lost)} of {len(files)} files with the rows to keep in {partition} are gone: a "
            "replace has removed them. Nothing was changed.",
            table=context.root.url,
            job=lost[0].job or None,
            key=lost[0].key,
            remedy="Keep what is visible, and run the job again whose rows are wanted.",
        )


def _plan(
    partition: str,
    kept: tuple[str, ...],
    dropped: Sequence[str],
    files: Sequence[DataFile],
    snapshot: Snapshot,
) -> ResolutionPlan:
    counted = all(not file.is_foreign for file in files)
    rows = sum(file.rows for file in files) if counted else None
    resolution = Resolution(partition, kept, tuple(dropped), len(files), rows)
    return ResolutionPlan(resolution, tuple(files), snapshot)
