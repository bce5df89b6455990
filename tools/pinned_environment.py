"""Environments of their own for tests, in the user's cache folder, with what a lock file pins.

One for each Python and each set of versions; what is not finished leaves none.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.bootstrap import SetupError, cache_dir, run


@dataclass(frozen=True)
class PinnedEnvironment:
    """An environment, made or not yet.

    :param title: the first word of its folder, ``spark``.
    :param package: the pinned package whose version is in the folder's name.
    :param lock: a requirements file in which every package has its version.
    """

    title: str
    package: str
    lock: Path

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
        return self.pinned.removeprefix(f"{self.package}==")

    @property
    def pinned(self) -> str:
        """The package as the lock file has it, ``pyspark==3.5.9``."""
        found = re.search(rf"^{self.package}==\S+", self.lock.read_text("utf-8"), re.MULTILINE)
        assert found is not None
        return found.group()

    def make(self, finish: Callable[[Path], None], wheels: Path | None = None) -> None:
        """Install what the lock file pins.

        :param finish: called with the folder of the new environment, before it gets its place.
        :param wheels: a folder with wheels of what has none elsewhere.
        :raises SetupError: a package cannot be had, or not be installed.
        """
        folder = self.python.parents[1]
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{self.title}-") as made:
            uv = [sys.executable, "-m", "uv"]
            new = Path(made, "env")
            run([*uv, "venv", "--quiet", "--relocatable", "--python", sys.executable, str(new)])
            install = [*uv, "pip", "install", "--quiet", "--python", str(new / "bin" / "python")]
            found = ["--find-links", str(wheels)] if wheels is not None else []
            run([*install, *found, "--no-deps", "-r", str(self.lock)])
            finish(new)
            shutil.move(new, folder)


def command(
    environment: PinnedEnvironment,
    make: Callable[[], None],
    description: str | None,
    arguments: Sequence[str] | None,
) -> int:
    """Make the environment where it is not there; ``--python`` prints which it is."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--python", action="store_true", help="print its Python, and no more")
    if parser.parse_args(arguments).python:
        print(environment.python)
        return 0
    try:
        if not environment.python.exists():
            make()
    except (SetupError, subprocess.SubprocessError, OSError) as error:
        print(f"{environment.title}: {error}", file=sys.stderr)
        return 1
    return 0
