"""Entries of a log that are gone: somebody deleted them, or a copy of the bucket left them out.

A checksum file is written after its entry, and records of committed jobs after theirs. So they show
an entry that is not there any more. Readers see the state before it, and a purge would delete the
files that it had added.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..committer.commit.state.old_records import KEPT_FOR
from ..committer.commit.state.tolerance import or_error
from ..committer.errors import DamagedError, ZeroRenameError, counted
from ..committer.format.layout import TableRoot, is_job_id, job_began
from ..committer.store.requests import All, ListObjects, Step
from ..committer.upkeep.problem import Problem
from ..layouts.delta.delta_layout import DeltaLayout
from ..log.entries import ListedLog
from ..log.job_files import JobFiles
from ..log.opening import list_log, read_entries

_RESTORE = "Restore the object from a version, a backup or the bucket that this one was copied from"


def entries_gone(listed: ListedLog) -> list[int]:
    """Return the versions after the end of a log that have a checksum file."""
    end = max(listed.end, listed.newest_checkpoint() or -1)
    return sorted(version for version in listed.checksums if version > end)


def about_gone(version: int) -> str:
    """Describe an entry after the end of a log that is gone."""
    return (
        f"version {version} is gone, and its checksum file is there: readers do not see what it "
        f"added, and see what it removed. {_RESTORE}"
    )


def gone_problems(root: TableRoot, layout: DeltaLayout) -> Step[list[Problem]]:
    """Find the entries after the end of a log that are gone, or all of them.

    One request more if there is none.
    """
    listed = yield from list_log(layout.folder)
    if (lost := (yield from find_lost_log(layout, listed))) is not None:
        remedy = f"{lost.restore}, before anybody writes: the next job makes a new table here."
        return [Problem("log gone", lost.key, lost.detail, remedy)]
    return [
        Problem(
            "entry gone",
            layout.folder.entry(version),
            f"Version {version} is gone, and its checksum file is there: readers do not see what "
            "it added, and see what it removed.",
            f"{_RESTORE}, before anybody writes: the next commit takes its number. If it is gone "
            f"for good: after the next commit, zero-rename repair {root.url} --apply commits it "
            "again.",
        )
        for version in entries_gone(listed)
    ]


@dataclass(frozen=True)
class LostLog:
    """A log without any entry or checkpoint, of a table that was there.

    :param key: of an object that shows it.
    :param restore: what to do, without a full stop.
    """

    key: str
    detail: str
    restore: str


def find_lost_log(layout: DeltaLayout, listed: ListedLog) -> Step[LostLog | None]:
    """Return what shows that a log has lost all of its entries; ``None``: nothing does.

    Two requests, at once, if the log has no entry.

    :param listed: the whole log.
    """
    if listed.entries or listed.checkpoints or listed.foreign:
        return None
    restore = (
        f"Restore what lay below {layout.folder.prefix} from versions, a backup or the bucket that "
        "this one was copied from"
    )
    gone = entries_gone(listed)
    records = JobFiles(layout.control)
    found = yield from All((ListObjects(records.reports), ListObjects(records.kept)))
    shown = [item.key for page in found for item in page.objects]
    if not gone and not shown:
        return None
    if gone:
        key = layout.folder.checksum(gone[0])
        what = f"the checksum files of {counted(len(gone), 'version')} are there"
    else:
        key, what = shown[0], "a record of a committed job is there"
    detail = f"The table's log has no entry, and {what}: readers see no table."
    return LostLog(key, detail, restore)


def refuse_gone(layout: DeltaLayout) -> Step[ListedLog]:
    """Refuse to delete files if the log's last entries are gone, or all of them: their files look
    like those that no state names. One request; three if there is no log.

    :returns: the log, as it was listed.
    :raises DamagedError: they are gone.
    """
    listed = yield from list_log(layout.folder)
    if gone := entries_gone(listed):
        raise DamagedError(
            f"Version {gone[-1]} of the table is gone from its log, and its checksum file is "
            "there. No file was deleted, since that version's files look like those of no version.",
            key=layout.folder.entry(gone[-1]),
            remedy=f"{_RESTORE}; or see zero-rename doctor.",
        )
    if (lost := (yield from find_lost_log(layout, listed))) is not None:
        raise DamagedError(
            "The table's log is gone, and a record of a committed job is there. No file was "
            "deleted, since without the log all files look like those of no version.",
            key=lost.key,
            remedy=f"{lost.restore}; or delete this record if the table was dropped.",
        )
    return listed


def former_until(layout: DeltaLayout, listed: ListedLog, now: float) -> Step[float]:
    """Return when the job that made the table began, if the table is younger than a week; otherwise
    0. In Unix seconds. One request for a young table.

    Files of jobs that began before may be of a former table whose log is gone: a job that found no
    log has begun a new table in its place. So a purge leaves them for a week.

    :param now: Unix seconds, by the store's clock.
    """
    first = listed.entries.get(0)
    if first is None or first.last_modified <= now - KEPT_FOR:
        return 0.0
    found = yield from or_error(read_entries(layout.folder, [0]))
    job = None if isinstance(found, ZeroRenameError) or found[0] is None else found[0].job
    return job_began(job) if job is not None and is_job_id(job) else first.last_modified
