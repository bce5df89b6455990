"""Purge of a log's data: files that no state and no job can need are forgotten, then deleted.

======================================  =================================================
a file below the data prefix            is deleted
======================================  =================================================
live                                    never
removed, within the retention           not yet: readers and restores may need it
removed before that                     after an entry has forgotten it
of a job with an open record            never: its entry may come
of an entry that was overwritten        not before its loss is accepted: a repair may name it
in a folder that may be another's       never
of no entry and no open job             after an entry has forgotten it
======================================  =================================================

It reads data, open records and log in this order. A file in the data listing belongs to a job that
was open by then. If the second listing has no open record of that job, the job is decided, and the
log shows its entry. Restores, which would bring such a file back, judge the entry that forgets it,
and that entry judges the restores before it. It names every file that is deleted, also those
without a tombstone: checkpoints drop tombstones by age, and a restore may have read a tombstone
that is missing now.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ..committer.errors import (
    FastRootGoneError,
    StoreRefusedError,
    StoreUnreachableError,
    UnfinishedUpkeepError,
    counted,
)
from ..committer.store.listing import list_objects
from ..committer.store.requests import DeleteMany, Step, Unknown
from .actions import FORGOTTEN, RemoveFile
from .change import FENCE, LogBase, LogChange
from .committing import commit_change
from .entries import SLACK
from .job_files import JobFiles
from .kept_entries import find_overwritten
from .log_layout import LogLayout
from .opening import LogDepth, open_log
from .replay import LogState

logger = logging.getLogger("zero_rename.log.purging")


@dataclass(frozen=True)
class PurgePlan:
    """The files that a purge deletes.

    :param state: the state that the plan was made on.
    :param forgets: by key, the tombstone that the entry of the purge has.
    """

    state: LogState
    forgets: Mapping[str, RemoveFile]


#: Returns whether a job wrote the object of a key below the data prefix; other objects are kept.
IsOfJob = Callable[[str], bool]


def plan_log_purge(
    layout: LogLayout, now: int, is_of_job: IsOfJob = lambda _: True
) -> Step[PurgePlan]:
    """Find the files that nothing needs. Changes nothing.

    :param now: Unix milliseconds, by the store's clock.
    :param is_of_job: returns whether a job wrote the object of a key.
    """
    folders: tuple[str, ...] = (layout.data,)
    records = JobFiles(layout.control)
    while True:
        data = yield from _data_in(folders)
        opened = yield from list_objects(records.opened)
        log = yield from open_log(layout, LogDepth.WHOLE)
        state = log.state
        if folders == (folders := layout.data_folders(state)):
            break  # Otherwise the state names more folders, to be listed before the log, too.
    own = yield from layout.own_folders(state)
    open_jobs = {records.job_of(key) for key in opened.keys}
    candidates = {
        key
        for key in data
        if key.startswith(own) and _job_of(folders, key) not in open_jobs and is_of_job(key)
    }
    if log.overwritten:
        # An entry was destroyed. The files that it added are in no state, and must be kept.
        return PurgePlan(state, {})
    candidates -= {layout.key_of(path, state) for path in state.live}
    kept_since = now - int(layout.retention(state) * 1000)
    tombstones = {layout.key_of(path, state): it for path, it in (state.removed or {}).items()}
    unnamed = candidates - tombstones.keys()
    if unnamed and state.exists:
        since = min(data[key] for key in unnamed)
        unnamed = yield from _without_overwritten(layout, state, folders, unnamed, since - SLACK)
    forgets = {key: RemoveFile(layout.path_of(key), FORGOTTEN) for key in unnamed}
    forgets |= {
        key: it
        for key, it in tombstones.items()
        if key in candidates and it.removed_at <= kept_since
    }
    return PurgePlan(state, dict(sorted(forgets.items())))


def _data_in(folders: Iterable[str]) -> Step[dict[str, float]]:
    """Return the times of the objects in data folders, by key and by the log's store's clock.

    A folder in another store, which another clock dates, is listed after that of the log's store. A
    folder whose store cannot be reached is left out, so nothing there is deleted.

    :param folders: that in the log's store first.
    """
    found: dict[str, float] = {}
    date = None
    for folder in folders:
        try:
            listing = yield from list_objects(folder)
        except FastRootGoneError as error:
            logger.warning("Files there were not purged: %s", error)
            continue
        date = date or listing.date
        found |= {it.key: it.last_modified + date - listing.date for it in listing.objects}
    return found


def _job_of(folders: Iterable[str], key: str) -> str:
    """Return the job that wrote a file, from the name of its folder."""
    folder = next(it for it in folders if key.startswith(it))
    return key.removeprefix(folder).split("/")[0]


def _without_overwritten(
    layout: LogLayout, state: LogState, folders: tuple[str, ...], keys: set[str], since: float
) -> Step[set[str]]:
    """Leave out the files of jobs whose entries were overwritten: a repair can commit them again,
    unless the job is fenced.

    :param since: the time of the oldest file; the entry of a file is younger than the file.
    """
    found = yield from find_overwritten(layout, since)
    lost = {it.job for it in found if FENCE + it.job not in state.transactions}
    return {key for key in keys if _job_of(folders, key) not in lost}


def purge_log(
    layout: LogLayout, purger: str, now: int, is_of_job: IsOfJob = lambda _: True
) -> Step[tuple[str, ...]]:
    """Forget and delete the files that nothing needs; return their keys.

    :param purger: the id of the entry that forgets the files.
    :param now: Unix milliseconds, by the store's clock.
    :param is_of_job: returns whether a job wrote the object of a key.
    :raises CommitConflictError: a restore brought a file back meanwhile. Nothing was deleted.
    :raises UnfinishedUpkeepError: not all files were deleted.
    """
    plan = yield from plan_log_purge(layout, now, is_of_job)
    # Without a table there is nothing to restore, and an entry would make a log.
    if plan.forgets and plan.state.exists:
        change = LogChange(
            purger,
            LogBase(plan.state.version, plan.state.table_id),
            forgets=tuple(plan.forgets.values()),
            changes_data=False,
            operation="FORGET",
        )
        opened = yield from open_log(layout, LogDepth.WHOLE)
        yield from commit_change(layout, opened, change, now)
    keys = tuple(plan.forgets)
    for start in range(0, len(keys), 1000):
        items = tuple((key, None) for key in keys[start : start + 1000])
        try:
            answer = yield from DeleteMany(items)
        except (StoreRefusedError, StoreUnreachableError) as error:
            # The entry that forgets the files stands, and some may be deleted already.
            answer = Unknown(error.message)
        if isinstance(answer, Unknown) or answer.errors:
            raise UnfinishedUpkeepError(
                f"Of {counted(len(keys), 'file')} that nothing needs, not all were deleted: "
                f"{answer}.",
                remedy="Run the purge again.",
            )
    return keys
