"""Residue of dead drivers outside the store.

It lies where the staging committers keep their pending sets
(``fs.s3a.committer.staging.tmp.path``), as folders of jobs; and on the disk where S3A buffers files
(``fs.s3a.buffer.dir``), as folders of tasks and blocks of uploads::

    <staging>/<user>/<job>/staging-uploads/…
    <buffer>/<job>-attempt_…/…
    <buffer>/s3ablock-0001-….tmp

Files that a process of this machine holds open, or has changed lately, are not residue. Only
folders of tasks are removed, and only if this maintenance has recovered their job: nothing shows
whether another machine still uses the rest.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ..committer.errors import InvalidInputError, escaped
from ..s3a.hadoop.staging_dir import StagingFolder
from ..s3a.recovery.liveness import QUIET
from ..s3a.recovery.recover import JobOutcome
from .purging import SettledJob

#: The most entries of a report.
MOST_RESIDUE = 100
_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_TASK = re.compile(rf"(?P<job>{_UUID})-attempt_\d+_\d+_[mr]_\d+_\d+")
_BLOCK = re.compile(r"s3ablock-\d+-\d+\.tmp")
#: Outcomes of a job after which its local files are no longer needed.
_OVER = (JobOutcome.ROLLED_BACK, JobOutcome.ROLLED_FORWARD, JobOutcome.FILES_LEFT)
_WOULD_BE_OVER = (JobOutcome.WOULD_ROLL_BACK, JobOutcome.WOULD_ROLL_FORWARD)


class ResidueAction(StrEnum):
    """The action on residue, done or planned."""

    REMOVED = "removed"
    WOULD_REMOVE = "would-remove"
    #: Reported only.
    LEFT = "left"
    FAILED = "failed"


@dataclass(frozen=True)
class Residue:
    """A file or folder that a dead driver left.

    :param job: the committer's UUID; ``""`` for a block, whose name does not contain it.
    :param bytes: the size of its files.
    :param age: seconds since the last change there, by the clock of the file system.
    """

    path: str
    job: str
    bytes: int
    age: float
    action: ResidueAction
    reason: str


@dataclass(frozen=True)
class ResidueReport:
    """The residue that was found, the oldest first.

    :param unreachable: folders that cannot be read from here, a sentence each.
    """

    found: tuple[Residue, ...] = ()
    unreachable: tuple[str, ...] = ()


#: The report if nothing was searched.
NO_RESIDUE = ResidueReport()


def find_residue(
    staging: str | None, buffer_dir: str | None, jobs: Collection[SettledJob], apply: bool = False
) -> ResidueReport:
    """Find the residue of dead drivers, once their jobs are recovered.

    :param staging: as :class:`~.s3a.hadoop.staging_dir.StagingFolder` takes it; ``None``: do not
        search it.
    :param buffer_dir: local folders, separated by commas, as in Hadoop's setting; ``None``:
        likewise.
    :param jobs: the outcomes of the jobs of all destinations that were maintained.
    :param apply: remove the folders of tasks whose jobs are recovered.
    """
    found: list[Residue] = []
    unreachable: list[str] = []
    if staging is not None:
        try:
            found += _in_staging(staging, {it.job.lower() for it in jobs})
        except InvalidInputError as error:
            unreachable.append(error.message)
    for folder in filter(None, (buffer_dir or "").split(",")):
        path = _local(folder.strip())
        if path is None:
            unreachable.append(f"{escaped(folder.strip())} is no folder of this machine.")
            continue
        found += _in_buffer(path, jobs, apply)
    return ResidueReport(tuple(sorted(found, key=lambda it: -it.age)), tuple(unreachable))


def _in_staging(staging: str, known: Collection[str]) -> Iterator[Residue]:
    """Yield the folders of jobs that are unknown at all destinations that were maintained."""
    for job in StagingFolder(staging).jobs():
        age = time.time() - job.mtime
        if age < QUIET or job.uuid.lower() in known:
            continue
        size = job.size()
        why = (
            f"nothing was written there for {age:.0f} s, and no destination that was maintained "
            "knows the job: maintain the job's own destination, or remove the folder once the "
            "job's driver is known to be dead"
        )
        yield Residue(job.tree, job.uuid, size, age, ResidueAction.LEFT, why)


def _in_buffer(folder: Path, jobs: Collection[SettledJob], apply: bool) -> Iterator[Residue]:
    over = {it.job.lower() for it in jobs if it.outcome in _OVER}
    would = {it.job.lower() for it in jobs if it.outcome in _WOULD_BE_OVER}
    # Jobs that are alive, or may be.
    others = {it.job.lower() for it in jobs} - over - would
    in_use = _open_files()
    real = folder.resolve()  # As the system names open files, whatever links lead there.
    for path in sorted(folder.iterdir()):
        task = _TASK.fullmatch(path.name)
        if task is None and _BLOCK.fullmatch(path.name) is None:
            continue
        size, changed = _seen(path)
        age = time.time() - changed
        open_below = f"{real / path.name}/"
        if age < QUIET or any(f"{name}/".startswith(open_below) for name in in_use):
            continue
        job = task["job"] if task is not None else ""
        if job and job.lower() in others:
            continue
        if job.lower() in over and apply:
            yield _removed(path, job, size, age)
        elif job.lower() in over | would:
            why = "of a task whose job is recovered, or would be"
            yield Residue(str(path), job, size, age, ResidueAction.WOULD_REMOVE, why)
        else:
            what = "of a task whose job is unknown here" if job else "a block of an upload"
            why = (
                f"{what}, which no process of this machine has open: remove it if no container "
                "of another machine shares the folder"
            )
            yield Residue(str(path), job, size, age, ResidueAction.LEFT, why)


def _removed(path: Path, job: str, size: int, age: float) -> Residue:
    try:
        shutil.rmtree(path)
    except OSError as error:
        why = f"it cannot be removed: {error}"
        return Residue(str(path), job, size, age, ResidueAction.FAILED, why)
    why = "of a task whose job is recovered"
    return Residue(str(path), job, size, age, ResidueAction.REMOVED, why)


def _local(folder: str) -> Path | None:
    """Return the path of a local folder; ``None``: it is not on this machine, or cannot be read."""
    parts = urlsplit(folder)
    if parts.scheme not in ("", "file"):
        return None
    path = Path(parts.path)
    return path if path.is_dir() and os.access(path, os.R_OK | os.X_OK) else None


def _seen(path: Path) -> tuple[int, float]:
    """Return the size of a file or folder in bytes, and the time of the last change in it."""
    size, changed = 0, 0.0
    try:
        for one in (path, *(path.rglob("*") if path.is_dir() else ())):
            stat = one.lstat()
            size += stat.st_size if one.is_file() else 0
            changed = max(changed, stat.st_mtime)
    except FileNotFoundError:
        return size, time.time()  # A process is at work there.
    return size, changed


def _open_files() -> frozenset[str]:
    """Return the files that processes have open, if this process may see them."""
    found: set[str] = set()
    for folder in Path("/proc").glob("[0-9]*/fd"):
        try:
            names = list(folder.iterdir())
        except OSError:
            continue  # The process has ended, or is another user's.
        for name in names:
            try:
                found.add(os.readlink(name))
            except OSError:
                continue
    return frozenset(found)


def as_report(report: ResidueReport) -> dict[str, Any]:
    """Return the residue as a dict for XCom, of limited size."""
    return {
        "residue": [asdict(it) | {"action": str(it.action)} for it in report.found[:MOST_RESIDUE]],
        "residue_left_off": max(0, len(report.found) - MOST_RESIDUE),
        "unreachable": list(report.unreachable),
    }


def residue_lines(report: ResidueReport) -> list[str]:
    """Return the residue as lines of a Markdown page; empty if there is none."""
    if not report.found and not report.unreachable:
        return []
    lines = ["## Left by dead drivers outside the store", ""]
    lines += [
        f"* {it.action}: `{escaped(it.path)}` ({it.bytes:,} bytes, {it.age:.0f} s): "
        f"{escaped(it.reason)}"
        for it in report.found[:MOST_RESIDUE]
    ]
    more = len(report.found) - MOST_RESIDUE
    lines += [f"* and {more:,} more"] if more > 0 else []
    lines += [f"* not checked: {escaped(why)}" for why in report.unreachable]
    return [*lines, ""]
