"""Folders of this machine where a job of Hadoop's committers keeps files before their commit.

As the papers' security sections say: rows that wait on a local disk have the access rights of their
folder, not those of the bucket. A user who may read the folder sees the rows before the commit, and
without any right to the table. A user who may write it can change what is committed.
"""

from __future__ import annotations

import getpass
import logging
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from ...s3a.hadoop.effective_settings import DEFAULT, Setting
from ...s3a.hadoop.settings import STAGING_KEY, Committer

BUFFER_KEY = "fs.s3a.buffer.dir"
_log = logging.getLogger(__name__)
#: Mode bits by which the group or all users may enter a directory.
_ENTERED_BY_OTHERS = 0o011


def warn_of_open_folders(committer: Committer, settings: Mapping[str, Setting]) -> None:
    """Log a warning for each folder that other users of this machine may enter.

    It is called before a job is submitted whose driver runs on this machine.

    :param settings: those in force.
    """
    for key, folder in _folders(committer, settings):
        if is_open(folder):
            _log.warning(
                "%s is %s, which other users of this machine may enter: they may read rows before "
                "their commit, and change them where its rights allow it. Make a folder of mode "
                "0700, and set spark.hadoop.%s and spark.hadoop.%s to folders in it.",
                *(key, folder, STAGING_KEY, BUFFER_KEY),
            )


def is_open(folder: Path) -> bool:
    """Return whether other users may enter a folder, even one that does not exist yet.

    They may if none of the directories on its path is closed to them.
    """
    there = [it for it in (folder, *folder.parents) if os.path.isdir(it)]
    return all(it.stat().st_mode & _ENTERED_BY_OTHERS for it in there)


def _folders(committer: Committer, settings: Mapping[str, Setting]) -> Iterator[tuple[str, Path]]:
    """Yield settings and their folders: the configured ones, and Hadoop's default if it exists."""
    staging = settings.get(STAGING_KEY)
    if committer.is_staging and staging is not None and staging.origin != DEFAULT:
        default = settings.get("fs.defaultFS")
        is_local = default is None or default.value.startswith("file:")
        if (path := _local(staging.value, is_local)) is not None:
            yield STAGING_KEY, path
    buffer = settings.get(BUFFER_KEY)
    if buffer is None:
        path = _default_buffer()
        if path is not None and os.path.isdir(path):
            yield BUFFER_KEY, path
        return
    for value in buffer.value.split(","):
        if (path := _local(value.strip(), is_default_local=True)) is not None:
            yield BUFFER_KEY, path


def _default_buffer() -> Path | None:
    """Return Hadoop's default folder for blocks, for this process's user.

    :return: ``None`` if the user has no name.
    """
    try:
        return Path("/tmp", f"hadoop-{getpass.getuser()}", "s3a")
    except (KeyError, OSError):
        return None


def _local(value: str, is_default_local: bool) -> Path | None:
    """Return the folder of this machine that a setting names.

    :return: ``None`` for another file system, and for a path with variables or a relative path.
    """
    path = re.sub(r"^file:(//[^/]*)?", "", value)
    named = value.startswith("file:") or is_default_local
    return Path(path) if named and path.startswith("/") and "$" not in path else None
