"""Pending sets of the staging committers, on the cluster's file system.

The directory and partitioned committers keep a job's pending sets on the cluster's default file
system, and remove them when the job ends (``Paths``, ``StagingCommitter``)::

    <fs.s3a.committer.staging.tmp.path>/<user>/<uuid>/staging-uploads
        _temporary/<NN>/task_…                        of committed tasks: what job commit reads
        _temporary/<NN>/_temporary/attempt_…          of task attempts that were committing

They are the files of an inner ``FileOutputCommitter`` (algorithm 1) whose own job commit never
runs, and which makes the folder when the job is set up: a job that has a folder has not ended.
"""

from __future__ import annotations

import re
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from ...committer.errors import InvalidInputError

if TYPE_CHECKING:
    # Not when a DAG file is parsed.
    from pyarrow import fs

_JOB = re.compile(r"(?P<tree>.*/(?P<uuid>[^/]+))/staging-uploads(?P<rest>/.*)?")
_SET = re.compile(r"/_temporary/(?P<attempt>\d+)/(?P<task>task_[^/]+)")
_RUNNING = re.compile(r"/_temporary/(?P<attempt>\d+)/_temporary/attempt_[^/]+")


@dataclass(frozen=True, order=True)
class StagedFile:
    """One file of pending commits.

    :param path: within its file system.
    :param attempt: the application's, ``0`` in Spark.
    :param task: the task's id; ``""`` of an attempt that was committing.
    :param mtime: seconds since the epoch, by the clock of whoever keeps the file system.
    """

    path: str
    attempt: str
    task: str
    mtime: float


@dataclass(frozen=True)
class StagedJob:
    """One job's folder.

    :param tree: the path of all that is the job's: what its clean-up deletes.
    :param files: of committed tasks and of attempts that were committing.
    :param mtime: when anything was changed there last.
    """

    uuid: str
    tree: str
    files: tuple[StagedFile, ...]
    mtime: float

    @property
    def committed(self) -> tuple[StagedFile, ...]:
        """The pending sets: what the job commit would read."""
        return tuple(one for one in self.files if one.task)

    @property
    def running(self) -> tuple[str, ...]:
        """Paths of what attempts were committing."""
        return tuple(one.path for one in self.files if not one.task)


class StagingFolder:
    """A folder in which staging committers keep their pending sets.

    :param folder: ``fs.s3a.committer.staging.tmp.path``, or the folder of one user or one job
        below it, or a copy: a path on this machine or a URL, ``file:``, or ``hdfs:`` where
        pyarrow finds Hadoop's client.
    :raises InvalidInputError: there is no such folder, or it cannot be looked at from here.
    """

    def __init__(self, folder: str) -> None:
        from pyarrow import fs

        self.folder = folder
        try:
            self._files, self._path = fs.FileSystem.from_uri(folder)
            kind = self._files.get_file_info(self._path).type
        except (ValueError, OSError) as error:
            raise _unseen(folder, str(error).splitlines()[0]) from error
        if kind is not fs.FileType.Directory:
            raise _unseen(folder, "there is no such folder")

    def jobs(self) -> tuple[StagedJob, ...]:
        """The jobs that have a folder there.

        :raises InvalidInputError: it cannot be listed, as where other users' folders are in it.
        """
        try:
            return self._below(self._path)
        except OSError as error:
            raise _unseen(self.folder, str(error).splitlines()[0]) from error

    def read(self, path: str) -> bytes:
        """:raises OSError: it cannot be read."""
        with self._files.open_input_stream(path) as stream:
            return stream.read()

    def is_unchanged(self, job: StagedJob) -> bool:
        """Whether a job's folder holds what it held when it was listed.

        :raises OSError: it cannot be listed.
        """
        return [one.files for one in self._below(job.tree)] == [job.files]

    def remove(self, job: StagedJob) -> None:
        """Delete a job's folder, if it is there.

        :raises OSError: it cannot be deleted.
        """
        if self._files.get_file_info(job.tree).type.name == "NotFound":
            return
        with suppress(FileNotFoundError):  # Another recovery was quicker.
            self._files.delete_dir(job.tree)

    def _below(self, path: str) -> tuple[StagedJob, ...]:
        from pyarrow import fs

        found: dict[tuple[str, str], list[fs.FileInfo]] = defaultdict(list)
        selector = fs.FileSelector(path, recursive=True, allow_not_found=True)
        for item in self._files.get_file_info(selector):
            match = _JOB.fullmatch(item.path)
            if match is not None:
                found[match["uuid"], match["tree"]].append(item)
        return tuple(_job(uuid, tree, items) for (uuid, tree), items in sorted(found.items()))


def _job(uuid: str, tree: str, items: list[fs.FileInfo]) -> StagedJob:
    files = []
    for item in items:
        rest = item.path.removeprefix(f"{tree}/staging-uploads")
        match = _SET.fullmatch(rest) or _RUNNING.fullmatch(rest)
        if match is not None and item.is_file:
            given = match.groupdict()
            task = given.get("task", "")
            files.append(StagedFile(item.path, given["attempt"], task, _mtime(item)))
    return StagedJob(uuid, tree, tuple(sorted(files)), max(map(_mtime, items)))


def _mtime(item: fs.FileInfo) -> float:
    return (item.mtime_ns or 0) / 1e9


def _unseen(folder: str, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"The staging folder {folder!r} cannot be looked at from here: {why}.",
        remedy="Name a folder of this machine, that of the user alone where others are not to be "
        "read, or an hdfs:// URL (which needs Hadoop's client, libhdfs); or copy it: "
        "hdfs dfs -get -p.",
    )


def staging_left(folder: str, job: str) -> tuple[Path, ...]:
    """Files that are left of a job's pending sets: none, once it has ended well.

    :param folder: ``fs.s3a.committer.staging.tmp.path``: a path, or a ``file:`` URL.
    :param job: the committer's UUID.
    :returns: sorted; empty also where there is no such folder.
    :raises InvalidInputError: the folder is on another file system, or relative, which Hadoop
        takes for a path below the user's home there.
    """
    url = urlsplit(folder)
    path = Path(unquote(url.path)) if url.scheme == "file" else Path(folder)
    if url.scheme not in ("", "file") or not path.is_absolute():
        raise InvalidInputError(
            f"The staging folder {folder!r} is on the cluster's file system, which cannot be seen "
            "from here.",
            remedy="Look for folders with the job's UUID there.",
        )
    if not job or "/" in job:
        raise InvalidInputError(f"{job!r} is no committer's UUID.")
    trees = [tree / job for tree in path.iterdir()] if path.is_dir() else []
    return tuple(sorted(f for tree in trees for f in tree.rglob("*") if f.is_file()))
