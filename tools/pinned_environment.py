"""Environments of their own for tests, in the user's cache folder, with what a lock file pins.

One for each Python and each set of versions; what is not finished leaves none.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools.bootstrap import cache_dir, install_entries, lock_entries, run, take_entry


@dataclass(frozen=True)
class PinnedEnvironment:
    """An environment, made or not yet.

    :param title: the first word of its folder, ``spark``.
    :param package: the pinned package whose version is in the folder's name.
    :param lock: a requirements file in which every package has its version and hashes.
    :param finish: called with the folder of a new environment, before it gets its place.
    """

    title: str
    package: str
    lock: Path
    finish: Callable[[Path], None] | None = None

    @property
    def python(self) -> Path:
        """Its Python, or where that would be."""
        digest = hashlib.sha256(sys.version.encode() + self.lock.read_bytes()).hexdigest()[:8]
        return cache_dir() / f"{self.title}-{self.version}-{digest}" / "bin" / "python"

    @property
    def site(self) -> Path:
        """The folder with its packages."""
        folder = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.python.parents[1] / "lib" / folder / "site-packages"

    @property
    def version(self) -> str:
        """Of the package, ``3.5.9``."""
        pinned = take_entry(lock_entries(self.lock), self.package).split()[0]
        return pinned.removeprefix(f"{self.package}==")

    def ensure(self) -> None:
        """Install what the lock file pins, where that has not been done.

        :raises SetupError: a package cannot be had, or not be installed.
        """
        if self.python.exists():
            return
        folder = self.python.parents[1]
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{self.title}-") as made:
            uv = [sys.executable, "-m", "uv"]
            new = Path(made, "env")
            run([*uv, "venv", "--quiet", "--relocatable", "--python", sys.executable, str(new)])
            install = [*uv, "pip", "install", "--quiet", "--python", str(new / "bin" / "python")]
            install_entries(install, lock_entries(self.lock), Path(sys.executable))
            if self.finish is not None:
                self.finish(new)
            shutil.move(new, folder)
