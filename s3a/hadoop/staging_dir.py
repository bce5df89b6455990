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
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...committer.errors import InvalidInputError

if TYPE_CHECKING:
    # Not when a DAG file is parsed.
    from pyarrow import fs

_JOB = re.compile(r"(?P<tree>.*/(?P<uuid>[^/]+))/staging-uploads(?P<rest>/.*)?")
_SET = re.compile(r"/_temporary/(?P<attempt>\d+)/(?P<task>task_[^/]+|_temporary/attempt_[^/]+)")


@dataclass(frozen=True, order=True)
class StagedFile:
    """One file of pending commits.

    :param path: within its file system.
    :param attempt: the application's, ``0`` in Spark.
    :param is_committed: of a task that was, rather than of an attempt that was committing.
    :param mtime: seconds since the epoch, by the clock of whoever keeps the file system.
    """

    path: str
    attempt: str
    is_committed: bool
    mtime: float


@dataclass(frozen=True)
class StagedJob:
    """One job's folder.

    :param tree: the path of all that is the job's: what its clean-up deletes.
    :param files: of committed tasks and of attempts that were committing.
    :param mtime: when anything was changed there last.
    """

    folder: StagingFolder = field(repr=False, compare=False)
    uuid: str
    tree: str
    files: tuple[StagedFile, ...]
    mtime: float

    def is_unchanged(self) -> bool:
        """Whether it holds what it held; of one that cannot be listed, that is not known, and
        nothing may be done."""
        try:
            return [one.files for one in self.folder.below(self.tree)] == [self.files]
        except OSError:
            return False

    def remove(self) -> str:
        """Delete it, if it is there; the answer is the problem there was, ``""`` for none."""
        try:
            self.folder.remove(self.tree)
        except OSError as error:
            return f"its folder {self.tree!r} cannot be deleted: {error}"
        return ""


class StagingFolder:
    """A folder in which staging committers keep their pending sets.

    :param folder: ``fs.s3a.committer.staging.tmp.path``, or the folder of one user or one job
        below it, or a copy: a path on this machine or a URL, ``file:``, or ``hdfs:`` where
        pyarrow finds Hadoop's client.
    :raises InvalidInputError: there is no such folder, or it cannot be looked at from here.
    """

    def __init__(self, folder: str) -> None:
        from pyarrow import fs

        self._folder = folder
        try:
            self._files, self._path = fs.FileSystem.from_uri(folder)
            kind = self._files.get_file_info(self._path).type
        except (ValueError, OSError) as error:
            raise self._unseen(str(error).splitlines()[0]) from error
        if kind is not fs.FileType.Directory:
            raise self._unseen("there is no such folder")

    def jobs(self) -> tuple[StagedJob, ...]:
        """The jobs that have a folder there.

        :raises InvalidInputError: it cannot be listed, as where other users' folders are in it.
        """
        try:
            return self.below(self._path)
        except OSError as error:
            raise self._unseen(str(error).splitlines()[0]) from error

    def read(self, path: str) -> bytes:
        """:raises OSError: it cannot be read."""
        with self._files.open_input_stream(path) as stream:
            return stream.read()

    def remove(self, tree: str) -> None:
        """:raises OSError: a folder that is there cannot be deleted."""
        if self._files.get_file_info(tree).type.name == "NotFound":
            return
        with suppress(FileNotFoundError):  # Another recovery was quicker.
            self._files.delete_dir(tree)

    def below(self, path: str) -> tuple[StagedJob, ...]:
        """:raises OSError: it cannot be listed."""
        from pyarrow import fs

        found: dict[tuple[str, str], list[fs.FileInfo]] = defaultdict(list)
        selector = fs.FileSelector(path, recursive=True, allow_not_found=True)
        for item in self._files.get_file_info(selector):
            match = _JOB.fullmatch(item.path)
            if match is not None:
                found[match["uuid"], match["tree"]].append(item)
        return tuple(self._job(*name, items) for name, items in sorted(found.items()))

    def _job(self, uuid: str, tree: str, items: list[fs.FileInfo]) -> StagedJob:
        files = []
        for item in items:
            match = _SET.fullmatch(item.path.removeprefix(f"{tree}/staging-uploads"))
            if match is not None and item.is_file:
                is_committed = match["task"].startswith("task_")
                files.append(StagedFile(item.path, match["attempt"], is_committed, _mtime(item)))
        return StagedJob(self, uuid, tree, tuple(sorted(files)), max(map(_mtime, items)))

    def _unseen(self, why: str) -> InvalidInputError:
        return InvalidInputError(
            f"The staging folder {self._folder!r} cannot be looked at from here: {why}.",
            remedy="Name a folder of this machine, that of the user alone where others are not to "
            "be read, or an hdfs:// URL (which needs Hadoop's client, libhdfs); or copy it: "
            "hdfs dfs -get -p.",
        )


def _mtime(item: fs.FileInfo) -> float:
    return (item.mtime_ns or 0) / 1e9
