"""Resolution: a new atomic job keeps the rows of chosen jobs in a partition and drops the others.

The job replaces the partition by rows of files that are still there, and is refused if the
partition has changed since the plan. For this the plan reads the partition's head first, as the
job's base, and only then decisions, lists of files and a listing. The replaced files stay in the
store, invisible to readers through the heads, unless they are to be discarded. So a resolution can
be undone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ...commit.snapshot import Snapshot, take_snapshot
from ...commit.state.context import Context
from ...commit.state.data_listing import list_data
from ...commit.state.decide import Decided, read_decision
from ...commit.state.found_table import read_table
from ...commit.state.partition_files import files_of_decision
from ...commit.state.tolerance import or_damage
from ...errors import InvalidInputError, counted, first_few
from ...format.job_spec import FileOptions, JobSpec, Mode, Owner, SuccessMarkers
from ...format.layout import jobs_on_record, require_job_id
from ...format.records.data_file import DataFile, rows_of
from ...store.listing import list_objects
from ...store.requests import All, Step
from ..compaction import all_of, content_kept, origins_of
from .touches import Touch, files_of_job, touches_of


class Keep(StrEnum):
    """Choice among the jobs that changed a partition near to each other: keep the rows of the
    newest, or of all. The rows of other jobs always stay."""

    NEWEST = "newest"
    ALL = "all"


@dataclass(frozen=True)
class Resolution:
    """The rows that a partition will hold, or holds since ``job`` committed.

    :param kept: jobs whose rows stay; ``dropped``: jobs whose rows do not.
    :param files: the number of files that the rows are read from.
    :param rows: their rows; ``None`` if foreign files are among them, whose rows are not counted.
    """

    partition: str
    kept: tuple[str, ...]
    dropped: tuple[str, ...]
    files: int
    rows: int | None
    job: str | None = None


@dataclass(frozen=True)
class ResolutionPlan:
    """A resolution, the files with its rows, and the snapshot that it was planned from.

    :param origins: the jobs that first wrote those rows.
    """

    resolution: Resolution
    files: tuple[DataFile, ...]
    snapshot: Snapshot
    origins: tuple[str, ...]

    def spec(self, owner: Owner, discard: bool) -> JobSpec:
        """Return the job that carries out the plan.

        :param discard: also remove the replaced files from the store.
        """
        partitions = (self.resolution.partition,) if self.snapshot.partition_by else None
        return JobSpec(
            self.snapshot.schema,
            Mode.REPLACE,
            replace_partitions=partitions,
            replace_table=partitions is None,
            base=self.snapshot.base,
            keep_replaced=not discard,
            merges={self.resolution.partition: self.origins},
            other_rows={it.key for it in self.files} != {it.key for it in self.snapshot.files},
            success_markers=SuccessMarkers.NONE,
            owner=owner,
            files=FileOptions(content=content_kept(self.files)),
        )


def plan_resolution(
    context: Context, partition: str, keep: Sequence[str], window: float, since: float
) -> Step[ResolutionPlan]:
    """Plan the rows that :meth:`.table.Table.keep_rows` keeps. Changes nothing.

    :raises InvalidInputError: there is nothing to choose from, or the rows to keep are not there.
    """
    # Before the decisions: a change after this snapshot is never dropped, but refuses the job.
    snapshot = yield from take_snapshot(context, [partition])
    touches = yield from touches_of(context, partition, snapshot, window, since)
    if len(touches) < 2:
        raise InvalidInputError(
            f"No two jobs changed {partition} so near to each other in that time; nothing was "
            "changed.",
            remedy="Give a greater --window or --since; zero-rename history "
            f"{context.root.url} names what there is.",
        )
    kept = _kept(partition, touches, keep)
    files, origins = yield from _files_of(context, partition, touches, kept, snapshot.files)
    yield from _require(context, snapshot, partition, files)
    dropped = [it.job for it in touches if it.job not in kept]
    return _plan(partition, kept, dropped, files, snapshot, origins)


def _files_of(
    context: Context,
    partition: str,
    touches: Sequence[Touch],
    kept: Collection[str],
    visible: Sequence[DataFile],
) -> Step[tuple[list[DataFile], frozenset[str]]]:
    """Find the files with the rows to keep, and the jobs that first wrote these rows.

    :param touches: the changes to choose among; rows of all other jobs stay, too.
    :raises InvalidInputError: rows to keep were rewritten together with rows to drop.
    """
    named = {it.job for it in touches}
    dropped = named.difference(kept)
    origins = {it.job: frozenset(it.merged or {it.job}) for it in touches}
    origins |= yield from origins_of(context, partition, visible)
    for job in sorted({file.job for file in visible}):
        mixed = origins[job] - named if job in dropped else origins[job] & dropped
        if mixed:
            raise _one_piece(context, partition, job, origins[job])
    files = [file for file in visible if file.job not in dropped]
    there = all_of(origins, files)
    # Jobs with rows of their own come first: rewriting jobs may have the same rows.
    for touch in sorted(touches, key=lambda it: bool(it.merged)):
        own = origins[touch.job]
        if touch.job not in kept or touch.visible or not touch.files or own <= there:
            continue
        if own & there:
            raise _one_piece(context, partition, touch.job, own)
        files += yield from files_of_job(context, touch.job, partition)
        there |= own
    return files, there


def plan_undoing(context: Context, partition: str, job: str) -> Step[ResolutionPlan]:
    """Plan the return to what a partition held before its last job. Changes nothing.

    It reads the decisions of all jobs, which say in which order they came: one request for each.

    :param job: the job that changed the partition last.
    :raises InvalidInputError: another job changed it last, or its former rows are not there.
    """
    require_job_id(job)
    # Before the history: a change after this snapshot refuses the job.
    snapshot = yield from take_snapshot(context, [partition])
    changes = yield from _history(context, partition)
    last = max(changes, default=-1)
    now = snapshot.versions.get(partition, 0)
    if last < 0 or last + 1 != now or changes[last].decision.job != job:
        raise InvalidInputError(
            f"{job} is not the job that changed {partition} last; nothing was changed.",
            job=job,
            remedy=f"zero-rename history {context.root.url} names the runs that did.",
        )
    if _only_adds(changes[last], partition):
        files = [file for file in snapshot.files if file.job != job]
    else:
        files = _state_before(changes, partition, last)
    yield from _require(context, snapshot, partition, files)
    origins = yield from origins_of(context, partition, files)
    kept = dict.fromkeys(file.job for file in files if file.job)
    return _plan(partition, tuple(kept), [job], files, snapshot, all_of(origins, files))


def _history(context: Context, partition: str) -> Step[Mapping[int, Decided]]:
    """Read the commits that changed a partition, by the version that each found. Decisions that
    cannot be read are left out."""
    prefix = context.root.decisions_prefix
    listing = yield from list_objects(prefix)
    jobs = sorted(jobs_on_record(prefix, listing.keys))
    found = yield from All(tuple(or_damage(read_decision(context, job)) for job in jobs))
    return {
        change.base_version: it
        for it in found
        if isinstance(it, Decided)
        for change in it.changes.get(partition, ())
    }


def _only_adds(decided: Decided, partition: str) -> bool:
    changes = decided.changes[partition]
    return not any(change.replace or change.dropped_job for change in changes)


def _state_before(changes: Mapping[int, Decided], partition: str, end: int) -> list[DataFile]:
    """Return the files that a partition held at version ``end``, by repeating the changes of its
    jobs from the last replace on.

    :raises InvalidInputError: one of these changes is missing or condensed; or the state is that
        before the first job, and this job replaced files that no job of the table wrote.
    """

    def replaces(version: int) -> bool:
        return any(change.replace for change in changes[version].changes[partition])

    start = max((it for it in changes if it < end and replaces(it)), default=0)
    lost = next((it for it in range(start, end) if not _is_whole(changes.get(it))), None)
    if end == 0 and any(change.sums.removed for change in changes[0].changes[partition]):
        lost = 0
    if lost is not None:
        decided = changes.get(lost)
        raise InvalidInputError(
            f"What {partition} held then is not on record any more: "
            f"{_why_lost(decided, lost)}. Nothing was changed.",
            job=None if decided is None else decided.decision.job,
            remedy="Load the partition again with mode replace.",
        )
    files: dict[str, DataFile] = {}
    for version in range(start, end):
        of_version = changes[version].changes[partition]
        gone = {job for change in of_version for job in change.dropped_jobs}
        files = {key: file for key, file in files.items() if file.job not in gone}
        # A run's later attempt names again the files that its earlier one found there.
        files |= {it.key: it for it in files_of_decision(changes[version].decision, partition)}
    return list(files.values())


def _is_whole(decided: Decided | None) -> bool:
    """Return whether a decision is on record and still names its files."""
    return decided is not None and not decided.decision.condensed


def _why_lost(decided: Decided | None, version: int) -> str:
    if decided is None:
        return f"the decision of the job that went on from version {version} is gone or damaged"
    if decided.decision.condensed:
        return "gc has condensed it"
    return "files that no job of the table wrote, which this one replaced"


def _kept(partition: str, touches: Sequence[Touch], keep: Sequence[str]) -> tuple[str, ...]:
    jobs = [it.job for it in touches]
    if list(keep) == [Keep.NEWEST]:
        return (jobs[-1],)
    if list(keep) == [Keep.ALL]:
        return tuple(jobs)
    strangers = [job for job in keep if job not in jobs]
    if strangers or not keep:
        what = strangers[0] if strangers else "no job"
        raise InvalidInputError(
            f"{what} is none of the jobs that changed {partition} near to each other. Nothing was "
            "changed.",
            remedy=f"Give newest, all, or some of {', '.join(jobs)}.",
        )
    return tuple(job for job in jobs if job in keep)


def _one_piece(
    context: Context, partition: str, job: str, origins: Collection[str]
) -> InvalidInputError:
    names = [name or "files that no job of the table wrote" for name in sorted(origins)]
    return InvalidInputError(
        f"The rows of {first_few(names)} in {partition} were written again as one, by "
        f"{job}, so they stay or go together. Nothing was changed.",
        job=job,
        remedy="Keep or leave out all of them; or, where it was the last change, take it back "
        f"first: zero-rename keep-rows {context.root.url} {partition} --undo {job} --apply",
    )


def _require(
    context: Context, snapshot: Snapshot, partition: str, files: Collection[DataFile]
) -> Step[None]:
    """Check that the files can be read with the table's present columns.

    :raises InvalidInputError: one of the files is missing, or its columns have been overwritten
        since.
    """
    listed = yield from list_data(context.root, partition)
    sizes = {item.key: item.size for item in listed}
    lost = [file for file in files if sizes.get(file.key) != file.size]
    if lost:
        raise InvalidInputError(
            f"Of {counted(len(files), 'file')} with the rows to keep in {partition} "
            f"{counted(len(lost), 'is', 'are')} gone: a replace has removed what is missing. "
            "Nothing was changed.",
            job=lost[0].job or None,
            key=lost[0].key,
            remedy="Keep what is visible, and run the job again whose rows are wanted.",
        )
    unseen = {file.job for file in files} - {file.job for file in snapshot.files} - {""}
    if not unseen:
        return
    table = yield from read_table(context)
    for job in sorted(unseen):
        decided = yield from read_decision(context, job)
        if decided is not None and decided.decision.schema_version < table.overwritten:
            raise InvalidInputError(
                f"The rows of {job} in {partition} have other columns than the table, which were "
                "overwritten since. Nothing was changed.",
                job=job,
                remedy="Keep what is visible, and load the partition again with the columns that "
                "the table has now.",
            )


def _plan(
    partition: str,
    kept: tuple[str, ...],
    dropped: Sequence[str],
    files: Sequence[DataFile],
    snapshot: Snapshot,
    origins: Collection[str],
) -> ResolutionPlan:
    resolution = Resolution(partition, kept, tuple(dropped), len(files), rows_of(files))
    return ResolutionPlan(resolution, tuple(files), snapshot, tuple(sorted(origins)))
