"""Folders of this machine in which a job of Hadoop's committers keeps files before their commit.

The papers' security section: rows that wait on a local disk have the rights of their folder, not
those of the bucket. Others who may read it see rows before and without their table; others who may
write it change what is committed.
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
#: Rights of a directory by which its group, or anybody, comes to what lies in it.
_ENTERED_BY_OTHERS = 0o011


def warn_of_open_folders(committer: Committer, settings: Mapping[str, Setting]) -> None:
    """Log a warning of each folder that others on this machine may enter, before a job whose driver
    runs here is submitted.

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
    """Whether others may come to files in a folder, there already or still to be made: none of the
    directories that lead to it is closed to them."""
    there = [it for it in (folder, *folder.parents) if os.path.isdir(it)]
    return all(it.stat().st_mode & _ENTERED_BY_OTHERS for it in there)


def _folders(committer: Committer, settings: Mapping[str, Setting]) -> Iterator[tuple[str, Path]]:
    """Folders by their settings: those that somebody named, and Hadoop's own if it is there."""
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
    """Hadoop's own folder for blocks, by this process's user; ``None`` for a user without name."""
    try:
        return Path("/tmp", f"hadoop-{getpass.getuser()}", "s3a")
    except (KeyError, OSError):
        return None


def _local(value: str, is_default_local: bool) -> Path | None:
    """The folder of this machine that a setting names; ``None`` for another file system, and where
    variables or a relative path leave it open."""
    path = re.sub(r"^file:(//[^/]*)?", "", value)
    named = value.startswith("file:") or is_default_local
    return Path(path) if named and path.startswith("/") and "$" not in path else None
