"""Environment with the oldest Spark that ``save()`` runs on, in the user's cache folder.

``python tools/older_spark.py`` makes it, once for each Python and each set of versions: some
700 MB. The tests start its Python (``tests/spark/saving/test_older_spark.py``). ``--python``
prints which that is.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

# As a script it finds its neighbours by the checkout's folder.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.bootstrap import SetupError, cache_dir, run, wheel_of_source

LOCK = Path(__file__).with_suffix(".lock")


def older_python() -> Path:
    """The environment's Python, or where it would be."""
    digest = hashlib.sha256(sys.version.encode() + LOCK.read_bytes()).hexdigest()[:8]
    return cache_dir() / f"spark-{spark_version()}-{digest}" / "bin" / "python"


def spark_version() -> str:
    """The version of its PySpark, ``3.5.9``."""
    return _pinned("pyspark").removeprefix("pyspark==")


def make(python: Path) -> None:
    """Make the environment; a failed attempt leaves none.

    :raises SetupError: a package cannot be had, or not be installed.
    """
    wheels = wheel_of_source(Path(sys.executable), _pinned("pyspark"))
    folder = python.parents[1]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".spark-") as made:
        uv = [sys.executable, "-m", "uv"]
        new = Path(made) / "env" / "bin" / "python"
        run([*uv, "venv", "--quiet", "--relocatable", "--python", sys.executable, f"{made}/env"])
        install = [*uv, "pip", "install", "--quiet", "--python", str(new), "--find-links"]
        run([*install, str(wheels), "--no-deps", "-r", str(LOCK)])
        run([str(new), str(LOCK.with_name("compile_pyspark.py"))])
        shutil.move(Path(made) / "env", folder)


def _pinned(name: str) -> str:
    found = re.search(rf"^{name}==\S+", LOCK.read_text("utf-8"), re.MULTILINE)
    assert found is not None
    return found.group()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", action="store_true", help="print its Python, and no more")
    if parser.parse_args(arguments).python:
        print(older_python())
        return 0
    try:
        if not older_python().exists():
            make(older_python())
    except (SetupError, subprocess.SubprocessError, OSError) as error:
        print(f"older Spark: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
