"""Residue of dead drivers outside the store: folders of jobs where the staging committers keep
their pending sets (``fs.s3a.committer.staging.tmp.path``), and on the disk that S3A buffers files
on (``fs.s3a.buffer.dir``) the folders of tasks and blocks of uploads::

    <staging>/<user>/<job>/staging-uploads/…
    <buffer>/<job>-attempt_…/…
    <buffer>/s3ablock-0001-….tmp

What a process of this machine holds open, or has changed lately, is not residue. Only the folders
of tasks whose job this maintenance has settled are removed: nobody can tell whether another machine
still uses the rest.
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

#: Entries of a report at the most.
MOST_RESIDUE = 100
_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_TASK = re.compile(rf"(?P<job>{_UUID})-attempt_\d+_\d+_[mr]_\d+_\d+")
_BLOCK = re.compile(r"s3ablock-\d+-\d+\.tmp")
#: Outcomes of a job of which nobody needs the local files any more.
_OVER = (JobOutcome.ROLLED_BACK, JobOutcome.ROLLED_FORWARD, JobOutcome.FILES_LEFT)
_WOULD_BE_OVER = (JobOutcome.WOULD_ROLL_BACK, JobOutcome.WOULD_ROLL_FORWARD)


class ResidueAction(StrEnum):
    """What became of residue, or would."""

    REMOVED = "removed"
    WOULD_REMOVE = "would-remove"
    #: Reported only.
    LEFT = "left"
    FAILED = "failed"


@dataclass(frozen=True)
class Residue:
    """Something that a dead driver left.

    :param job: the committer's UUID; ``""`` of a block, whose name tells of no job.
    :param bytes: how many its files hold.
    :param age: seconds since anything was changed there, by the clock of who keeps the files.
    """

    path: str
    job: str
    bytes: int
    age: float
    action: ResidueAction
    reason: str


@dataclass(frozen=True)
class ResidueReport:
    """What dead drivers left, the oldest first.

    :param unreachable: folders that cannot be looked at from here, a sentence each.
    """

    found: tuple[Residue, ...] = ()
    unreachable: tuple[str, ...] = ()


#: Nobody has looked.
NO_RESIDUE = ResidueReport()


def find_residue(
    staging: str | None, buffer_dir: str | None, jobs: Collection[SettledJob], apply: bool = False
) -> ResidueReport:
    """Look for what dead drivers left, once their jobs are settled.

    :param staging: as :class:`~.s3a.hadoop.staging_dir.StagingFolder` takes it; ``None``: nobody
        asks.
    :param buffer_dir: local folders, separated by commas, as Hadoop has them; ``None``: likewise.
    :param jobs: what became of the jobs of the destinations that were looked at.
    :param apply: remove the folders of tasks whose jobs are settled.
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
    """Yield the folders of jobs that no destination which was looked at knows."""
    for job in StagingFolder(staging).jobs():
        age = time.time() - job.mtime
        if age < QUIET or job.uuid.lower() in known:
            continue
        size = job.size()
        why = (
            f"nothing was written there for {age:.0f} s, and no destination that was looked at "
            "knows the job: look at its own, or remove the folder once its driver is known to be "
            "dead"
        )
        yield Residue(job.tree, job.uuid, size, age, ResidueAction.LEFT, why)


def _in_buffer(folder: Path, jobs: Collection[SettledJob], apply: bool) -> Iterator[Residue]:
    over = {it.job.lower() for it in jobs if it.outcome in _OVER}
    would = {it.job.lower() for it in jobs if it.outcome in _WOULD_BE_OVER}
    # Such as live, or nobody knows whether they do.
    others = {it.job.lower() for it in jobs} - over - would
    in_use = _open_files()
    for path in sorted(folder.iterdir()):
        task = _TASK.fullmatch(path.name)
        if task is None and _BLOCK.fullmatch(path.name) is None:
            continue
        size, changed = _seen(path)
        age = time.time() - changed
        if age < QUIET or any(f"{name}/".startswith(f"{path}/") for name in in_use):
            continue
        job = task["job"] if task is not None else ""
        if job and job.lower() in others:
            continue
        if job.lower() in over and apply:
            yield _removed(path, job, size, age)
        elif job.lower() in over | would:
            why = "of a task whose job is settled, or would be"
            yield Residue(str(path), job, size, age, ResidueAction.WOULD_REMOVE, why)
        else:
            what = "of a task whose job is not known here" if job else "a block of an upload"
            why = (
                f"{what}, which no process of this machine has open: remove it where no container "
                "of another one shares the folder"
            )
            yield Residue(str(path), job, size, age, ResidueAction.LEFT, why)


def _removed(path: Path, job: str, size: int, age: float) -> Residue:
    try:
        shutil.rmtree(path)
    except OSError as error:
        why = f"it cannot be removed: {error}"
        return Residue(str(path), job, size, age, ResidueAction.FAILED, why)
    why = "of a task whose job is settled"
    return Residue(str(path), job, size, age, ResidueAction.REMOVED, why)


def _local(folder: str) -> Path | None:
    """Return a folder of this machine; ``None``: it is none."""
    parts = urlsplit(folder)
    if parts.scheme not in ("", "file"):
        return None
    path = Path(parts.path)
    return path if path.is_dir() and os.access(path, os.R_OK | os.X_OK) else None


def _seen(path: Path) -> tuple[int, float]:
    """Return how many bytes lie there, and when something was changed last."""
    size, changed = 0, 0.0
    for one in (path, *(path.rglob("*") if path.is_dir() else ())):
        try:
            stat = one.lstat()
        except FileNotFoundError:
            return size, time.time()  # Somebody is at work there.
        size += stat.st_size if one.is_file() else 0
        changed = max(changed, stat.st_mtime)
    return size, changed


def _open_files() -> frozenset[str]:
    """Name the files that processes have open, as far as this one may see."""
    found: set[str] = set()
    for folder in Path("/proc").glob("[0-9]*/fd"):
        try:
            names = list(folder.iterdir())
        except OSError:
            continue  # It has ended, or is another user's.
        for name in names:
            try:
                found.add(os.readlink(name))
            except OSError:
                continue
    return frozenset(found)


def as_report(report: ResidueReport) -> dict[str, Any]:
    """Return the residue as XCom takes it."""
    return {
        "residue": [asdict(it) | {"action": str(it.action)} for it in report.found[:MOST_RESIDUE]],
        "residue_left_off": max(0, len(report.found) - MOST_RESIDUE),
        "unreachable": list(report.unreachable),
    }


def residue_lines(report: ResidueReport) -> list[str]:
    """Write the residue as a part of a Markdown page; nothing where there is none."""
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
    lines += [f"* not looked at: {escaped(why)}" for why in report.unreachable]
    return [*lines, ""]
