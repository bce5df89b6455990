"""A private folder for one submission, and what killed workers left of theirs."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PREFIX = "zero-rename-"
#: Locked as long as the folder's owner lives, however that ends; also across containers that
#: share the folder, where a process id says nothing.
_LOCK = "owner.lock"


@contextmanager
def private_folder() -> Iterator[Path]:
    """A folder of mode 0700 in the temporary folder, removed at the end.

    A properties file with keys lies in it, which a worker that is killed with -9 cannot remove:
    the next submission on this host does.
    """
    remove_orphans(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as name:
        folder = Path(name)
        with (folder / _LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield folder


def remove_orphans(parent: Path) -> list[Path]:
    """Remove the folders of dead owners.

    :returns: those that were removed. One that another user owns is left, as is one whose lock
        is not there yet: it has no secret either.
    """
    removed = []
    for folder in parent.glob(f"{_PREFIX}*"):
        try:
            with (folder / _LOCK).open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
        except OSError:
            continue  # Its owner lives, or another one removes it.
        removed.append(folder)
    return removed
