"""Entries of a log that are gone: somebody deleted them, or a copy of the bucket left them out.

A checksum file is written after its entry, and records of committed jobs after theirs. So they show
an entry that is not there any more. Readers see the state before it, and a purge would delete the
files that it had added.
"""

from __future__ import annotations

from ..committer.errors import DamagedError
from ..committer.format.layout import TableRoot
from ..committer.store.requests import All, ListObjects, Step
from ..committer.upkeep.problem import Problem
from ..layouts.delta.delta_layout import DeltaLayout
from ..log.entries import ListedLog
from ..log.job_files import JobFiles
from ..log.opening import list_log

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
    """Find the entries after the end of a log that are gone."""
    listed = yield from list_log(layout.folder)
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


def refuse_gone(layout: DeltaLayout) -> Step[None]:
    """Refuse to delete files if the log's last entries are gone, or all of them: their files look
    like those that no state names. One request; three if there is no log.

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
    if listed.entries or listed.checkpoints or listed.foreign:
        return
    records = JobFiles(layout.control)
    found = yield from All((ListObjects(f"{layout.control}runs/"), ListObjects(records.kept)))
    if shown := [item.key for page in found for item in page.objects]:
        raise DamagedError(
            "The table's log is gone, and a record of a committed job is there. No file was "
            "deleted, since without the log all files look like those of no version.",
            key=shown[0],
            remedy=f"Restore what lay below {layout.folder.prefix} from versions, a backup or the "
            "bucket that this one was copied from; or delete this record if the table was dropped.",
        )
