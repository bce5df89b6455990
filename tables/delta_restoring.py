"""Restores and undoings of a Delta table. Each is one entry and writes no data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..committer.errors import InvalidInputError, ZeroRenameError, counted
from ..committer.format.layout import TableRoot, new_job_id
from ..committer.store.requests import Step
from ..layouts.delta.columns import arrow_schema
from ..layouts.delta.delta_layout import DeltaLayout
from ..log.change import RESTORE, LogChange, removed_files
from ..log.job_steps import abandon_job, close_refused, commit_or_abandon, open_log_job
from ..log.opening import LogDepth, OpenedLog, open_log, read_entries
from ..log.restoring import LogRestore, plan_restore
from ..log.scope import Scope
from ..log.searching import RunDone, find_run
from ..log.undoing import plan_undo
from .delta_files import name_told
from .delta_upkeep import store_now

#: The owner of a restore's job, as its entry records it.
Owned = Mapping[str, Any]


@dataclass(frozen=True)
class RestoredVersion:
    """A restore of a Delta table, planned or done by ``job``.

    :param version: the version whose content comes back; -1: there was no table.
    :param present: the table's version before the restore.
    :param partitions: the partitions whose files change.
    :param returned: how many files come back; ``removed``: how many are removed.
    :param lost: paths of files that cannot be brought back.
    :param job: the job that did it, now or before; ``None``: it is only planned.
    """

    version: int
    present: int
    partitions: tuple[str, ...] = ()
    returned: int = 0
    removed: int = 0
    lost: tuple[str, ...] = ()
    job: str | None = None


@dataclass(frozen=True)
class PlannedRestore:
    """A planned restore: its entry and its report.

    :param opened: the state that the plan was made on.
    :param change: the change of the entry.
    :param is_needed: it changes files or columns.
    """

    opened: OpenedLog
    change: LogChange
    is_needed: bool
    restored: RestoredVersion


#: Plans the entry of a job; receives the job's id and the store's time in Unix milliseconds.
Planner = Callable[[str, int], Step[PlannedRestore]]


def undo_planner(
    root: TableRoot, layout: DeltaLayout, undone: str, version: int, owner: Owned
) -> Planner:
    """Return a planner for the undoing of a job.

    :param undone: the job to undo.
    :param version: the version of its entry.
    """

    def plan(job: str, now: int) -> Step[PlannedRestore]:
        found = yield from plan_undo(layout, job, undone, version, now, owner)
        return _planned(root, found.restore, version - 1, found.undone)

    return plan


def restore_planner(
    root: TableRoot, layout: DeltaLayout, version: int, within: Scope, owner: Owned
) -> Planner:
    """Return a planner for the restore of a version, in some partitions or all."""

    def plan(job: str, now: int) -> Step[PlannedRestore]:
        found = yield from plan_restore(layout, job, version, now, owner, within)
        return _planned(root, found, version, None)

    return plan


def _planned(root: TableRoot, found: LogRestore, version: int, done: str | None) -> PlannedRestore:
    state, change = found.opened.state, found.change
    assert state.metadata is not None
    removed = removed_files(change, state)
    schema, by = arrow_schema(state.metadata), state.metadata.partition_columns
    places = {state.partition(it) or () for it in (*removed, *change.returned)}
    restored = RestoredVersion(
        version,
        state.version,
        tuple(sorted(name_told(it, schema, by) for it in places)),
        len(change.returned),
        len(removed),
        found.lost,
        done,
    )
    return PlannedRestore(found.opened, change, found.is_needed, restored)


def preview(layout: DeltaLayout, plan: Planner) -> Step[RestoredVersion]:
    """Return the report of a planned restore. Changes nothing.

    :raises TableMismatchError: the table cannot be written here, so the restore would be refused.
    """
    now = yield from store_now(layout)
    planned = yield from plan(new_job_id(), now)
    if planned.is_needed:
        layout.check_writable(planned.opened.state, planned.change.removes_rows)
    return planned.restored


def find_restored(layout: DeltaLayout, run: str, version: int) -> Step[RestoredVersion | None]:
    """Find the job by which a run has restored a version before; ``None``: it has not."""
    state = (yield from open_log(layout, LogDepth.WHOLE)).state
    done = yield from find_run(layout, state, run, "")
    if done is None:
        return None
    entry = done.entry
    if entry is None:
        (entry,) = yield from read_entries(layout.folder, [done.version])
    return RestoredVersion(version, state.version, job=None if entry is None else entry.job)


def carry_out(
    root: TableRoot,
    layout: DeltaLayout,
    plan: Planner,
    owner: Owned,
    allow_lost: bool,
    run: str | None = None,
) -> Step[RestoredVersion]:
    """Commit the entry of a plan, unless nothing is to be changed.

    If nothing is to be changed and the restore is of a run, the entry only names the run: a retry
    must not remove the rows of jobs that have committed since.

    :param allow_lost: leave out files that cannot be brought back; ``False``: refuse.
    :param run: the run's key, if it has one: only one of its jobs commits.
    :raises InvalidInputError: files cannot be brought back. Nothing was changed.
    :raises CommitConflictError: another job committed meanwhile. Nothing was changed.
    """
    now = yield from store_now(layout)
    opened = yield from open_log_job(layout, iter(new_job_id, ""), owner, LogDepth.BLIND)
    try:
        planned = yield from plan(opened.job, now)
        if planned.restored.lost and not allow_lost:
            raise _lost(root, planned.restored)
    except ZeroRenameError:
        # Only the open record was written.
        yield from close_refused(layout, opened.job)
        raise
    if planned.is_needed:
        change = replace(planned.change, run=run)
    elif run is not None:
        change = LogChange(opened.job, planned.change.base, operation=RESTORE, owner=owner, run=run)
    else:
        yield from abandon_job(layout, opened.job)
        return planned.restored
    done = yield from commit_or_abandon(layout, planned.opened, change, now)
    if isinstance(done, RunDone) and run is not None:
        found = yield from find_restored(layout, run, planned.restored.version)
        return found or planned.restored
    return replace(planned.restored, job=opened.job) if planned.is_needed else planned.restored


def _lost(root: TableRoot, restored: RestoredVersion) -> InvalidInputError:
    return InvalidInputError(
        f"{counted(len(restored.lost), 'file')} of version {restored.version} cannot be brought "
        f"back, such as {restored.lost[0]}: purge or a VACUUM has removed what was replaced before "
        "the table's retention, or may be about to. Nothing was changed.",
        table=root.url,
        remedy="Restore a later version; or restore with allow_lost=True, which leaves these files "
        "out.",
    )
