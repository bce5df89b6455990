"""The one folder the demonstration writes to: ``.demo`` in the checkout."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent


class DemoError(Exception):
    """What stops the demonstration, told in one paragraph: what happened and what to do about it;
    shown without a traceback."""


@dataclass(frozen=True)
class Workspace:
    """Folders below ``.demo``.

    :param root: ``.demo`` itself; emptied at the start of every run.
    """

    root: Path

    @property
    def data(self) -> Path:
        """The CSV files."""
        return self.root / "data"

    @property
    def airflow(self) -> Path:
        """AIRFLOW_HOME."""
        return self.root / "airflow"

    @property
    def temporary(self) -> Path:
        """What TMPDIR, ``java.io.tmpdir`` and ``spark.local.dir`` name."""
        return self.root / "tmp"

    @property
    def logs(self) -> Path:
        """One file per process; where to look when a step failed."""
        return self.root / "logs"


@contextmanager
def workspace(root: Path = CHECKOUT / ".demo") -> Iterator[Workspace]:
    """An empty workspace, for this process alone.

    :raises DemoError: another demonstration runs in this checkout.
    """
    root.mkdir(exist_ok=True)
    with open(root / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DemoError(
                "Another `make demo` runs in this checkout. Wait for it, or use another clone."
            ) from error
        for path in root.iterdir():
            if path.name != "lock":
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        made = Workspace(root)
        for folder in (made.data, made.airflow, made.temporary, made.logs):
            folder.mkdir()
        yield made


def shown(path: Path) -> str:
    """A path as the user would type it."""
    return os.path.relpath(path, Path.cwd())
