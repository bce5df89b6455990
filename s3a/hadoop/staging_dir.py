"""Leftovers of a staging committer on a file system of this machine.

The directory and partitioned committers keep a job's pending sets on the cluster's default file
system, in ``<fs.s3a.committer.staging.tmp.path>/<user>/<uuid>/staging-uploads`` (``Paths``,
``StagingCommitter``), and remove them when the job ends. Where that is this machine's own disk, as
with ``local[…]``, it can be looked at.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from ...committer.errors import InvalidInputError


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
