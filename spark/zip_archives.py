"""Zip archives on the import path of a Python worker that Spark reuses.

Spark 3.5 to 4.1 call ``importlib.invalidate_caches()`` at each task's start (until SPARK-54744). Up
to Python 3.12, each importer of an archive then reads the archive's whole directory (CPython's
gh-103200). A worker has a dozen importers of ``pyspark.zip`` and two of a jar with 5,000 entries:
31,000 entries, 0.1 s of CPU for each task.
"""

from __future__ import annotations

import os
import sys
import time
import zipimport
from dataclasses import dataclass
from typing import Any

#: Seconds after a file's last change in which another change may not be visible in its times: they
#: have the resolution of its file system's clock.
_TICK = 2.0
#: Device, inode, size, and the times of the last change of its bytes and of its record in
#: nanoseconds. No program can set the last one back.
_State = tuple[int, int, int, int, int]


@dataclass(frozen=True)
class _Reading:
    """An archive's directory, and the state of the file before it was read."""

    state: _State
    entries: Any


_readings: dict[str, _Reading] = {}
_read_anew: Any = zipimport.zipimporter.invalidate_caches


def spare_unchanged_archives() -> None:
    """Let importers read an archive's directory again only if the archive has changed.

    The result of ``importlib.invalidate_caches()`` is the same as without this, for all callers: an
    archive that was changed, replaced or removed is noticed. Does nothing from Python 3.13 on; on
    Windows, where Spark does not reuse workers; and if other code has replaced this method already.
    """
    if sys.platform == "win32" or sys.version_info >= (3, 13):
        return
    importer: Any = zipimport.zipimporter
    if importer.invalidate_caches is _read_anew:
        importer.invalidate_caches = _invalidate_caches


def _invalidate_caches(importer: Any) -> None:
    """Give an importer its archive's present directory. This replaces the method of its class."""
    archive, cache = importer.archive, zipimport._zip_directory_cache  # pyrefly: ignore[missing-attribute]
    state, known = _state(archive), _readings.get(archive)
    if known is not None and known.state == state:
        importer._files = cache[archive] = known.entries
        return
    _readings.pop(archive, None)
    _read_anew(importer)
    # The state is from before the reading: if the archive is replaced meanwhile, it differs.
    if state is not None and cache.get(archive) is importer._files:
        _readings[archive] = _Reading(state, importer._files)


def _state(archive: str) -> _State | None:
    """Return a file's state; ``None`` if a later change might not be visible in it.

    The file is opened first, so that a network file system asks its server.
    """
    try:
        opened = os.open(archive, os.O_RDONLY)
    except OSError:
        return None
    try:
        found = os.fstat(opened)
    finally:
        os.close(opened)
    if time.time() - max(found.st_mtime, found.st_ctime) < _TICK:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
