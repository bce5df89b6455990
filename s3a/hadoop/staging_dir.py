"""Pending sets of the staging committers, on the cluster's file system.

The directory and partitioned committers keep a job's pending sets on the cluster's default file
system, and remove them when the job ends (``Paths``, ``StagingCommitter``)::

    <fs.s3a.committer.staging.tmp.path>/<user>/<uuid>/staging-uploads
        _temporary/<NN>/task_…                        of committed tasks; job commit reads them
        _temporary/<NN>/_temporary/attempt_…          of task attempts that were committing

They are the files of an inner ``FileOutputCommitter`` (algorithm 1). Its own job commit never
runs. It makes the folder when the job is set up, so a job that has a folder has not ended.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...committer.errors import InvalidInputError, without_secrets
from ...committer.store.s3_urls import SCHEME

if TYPE_CHECKING:
    # Not when a DAG file is parsed.
    from pyarrow import fs

_FILE = re.compile(
    r"(?P<tree>.*/(?P<uuid>[^/]+))/staging-uploads"
    r"(/_temporary/(?P<attempt>\d+)/(?P<task>task_|_temporary/attempt_)[^/]+)?(/.*)?"
)


@dataclass(frozen=True, order=True)
class StagedFile:
    """One file of pending commits.

    :param path: within its file system.
    :param attempt: the application's, ``0`` in Spark.
    :param is_committed: it is of a committed task, not of an attempt that was committing.
    :param mtime: Unix seconds of its last change, by the clock of the file system.
    """

    path: str
    attempt: str
    is_committed: bool
    mtime: float


@dataclass(frozen=True)
class StagedJob:
    """One job's folder.

    :param tree: the path of all files of the job. The job's clean-up deletes it.
    :param files: files of committed tasks, and of attempts that were committing.
    :param mtime: Unix seconds of the last change of anything there.
    """

    folder: StagingFolder = field(repr=False, compare=False)
    uuid: str
    tree: str
    files: tuple[StagedFile, ...]
    mtime: float

    def size(self) -> int:
        """Add up the bytes of its files.

        :raises InvalidInputError: they cannot be listed.
        """
        return self.folder.size_of(self.tree)

    def is_unchanged(self) -> bool:
        """Return whether it still holds the same files.

        ``False`` also if it cannot be listed: then this is not known, and nothing may be done.
        """
        try:
            return [one.files for one in self.folder.below(self.tree)] == [self.files]
        except OSError:
            return False

    def remove(self) -> str:
        """Delete the folder if it exists. Return the problem as a sentence; ``""`` for none."""
        try:
            self.folder.remove(self.tree)
        except OSError as error:
            return f"its folder {self.tree!r} cannot be deleted: {error}"
        return ""


class StagingFolder:
    """A folder in which staging committers keep their pending sets.

    :param folder: ``fs.s3a.committer.staging.tmp.path``, or the folder of one user or one job
        below it, or a copy. It is a path on this machine, or a URL: ``file:``, or ``hdfs:`` if
        pyarrow finds Hadoop's client.
    :raises InvalidInputError: there is no such folder, or it cannot be read from here.
    """

    def __init__(self, folder: str) -> None:
        from pyarrow import fs

        self._folder = folder
        with self._seen():
            if re.match(SCHEME, folder):
                # pyarrow would ask AWS for it, with whatever keys it finds.
                raise OSError("it is in S3, where staging committers keep no pending sets")
            self._files, self._path = fs.FileSystem.from_uri(folder)
            if self._files.get_file_info(self._path).type is not fs.FileType.Directory:
                raise OSError("there is no such folder")

    def jobs(self) -> tuple[StagedJob, ...]:
        """List the jobs that have a folder there.

        :raises InvalidInputError: it cannot be listed, for example because of other users' folders
            in it.
        """
        with self._seen():
            return self.below(self._path)

    def read(self, path: str) -> bytes:
        """Read a file.

        :raises OSError: it cannot be read.
        """
        with self._files.open_input_stream(path) as stream:
            return stream.read()

    def remove(self, tree: str) -> None:
        """Delete a job's folder if it exists.

        :raises OSError: it exists and cannot be deleted.
        """
        if self._files.get_file_info(tree).type.name != "NotFound":
            with suppress(FileNotFoundError):  # Another recovery was quicker.
                self._files.delete_dir(tree)

    def size_of(self, tree: str) -> int:
        """Add up the bytes of the files below a path.

        :raises InvalidInputError: it cannot be listed.
        """
        from pyarrow import fs

        with self._seen():
            selector = fs.FileSelector(tree, recursive=True, allow_not_found=True)
            return sum(it.size or 0 for it in self._files.get_file_info(selector))

    def below(self, path: str) -> tuple[StagedJob, ...]:
        """List the jobs that have a folder below a path.

        :raises OSError: it cannot be listed.
        """
        from pyarrow import fs

        trees: dict[str, list[tuple[re.Match[str], fs.FileInfo]]] = defaultdict(list)
        selector = fs.FileSelector(path, recursive=True, allow_not_found=True)
        for item in self._files.get_file_info(selector):
            if match := _FILE.fullmatch(item.path):
                trees[match["tree"]].append((match, item))
        return tuple(self._job(tree, items) for tree, items in sorted(trees.items()))

    def _job(self, tree: str, items: list[tuple[re.Match[str], fs.FileInfo]]) -> StagedJob:
        files = [
            StagedFile(item.path, match["attempt"], match["task"] == "task_", item.mtime_ns / 1e9)
            for match, item in items
            if item.is_file and match["task"]
        ]
        latest = max(item.mtime_ns / 1e9 for _, item in items)
        return StagedJob(self, items[0][0]["uuid"], tree, tuple(sorted(files)), latest)

    @contextmanager
    def _seen(self) -> Iterator[None]:
        try:
            yield
        except (ValueError, OSError) as error:
            raise InvalidInputError(
                f"The staging folder {without_secrets(self._folder)!r} cannot be looked at from "
                "here: "
                f"{str(error).splitlines()[0]}.",
                remedy="Name a folder of this machine, that of the user alone where others are not "
                "to be read, or an hdfs:// URL (which needs Hadoop's client, libhdfs); or copy it: "
                "hdfs dfs -get -p.",
            ) from error
