"""Put compiled code into the archives that Spark puts first on its Python processes' path.

spark-submit runs Python from ``pyspark.zip`` in Spark's own folder, sources alone, so that every
worker compiles PySpark anew: 0.7 s of CPU each, and a small job starts six. Runs at set-up under
the interpreter of ``.venv``, for the PySpark that is installed there.

The compiled code is not checked against the sources (PEP 552): their times in a zip have no time
zone, and they do not change.
"""

from __future__ import annotations

import os
import py_compile
import shutil
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

#: Not imported by applications, and half of the code.
_LEFT_OUT = ("/tests/", "/testing/tests/", "/examples/")


def add_compiled(archive: Path) -> int:
    """Add a ``.pyc`` beside every module of a zip that lacks it. Returns how many."""
    with zipfile.ZipFile(archive) as source:
        names = source.namelist()
        modules = [n for n in names if n.endswith(".py") and not any(t in n for t in _LEFT_OUT)]
        if not modules or f"{modules[0]}c" in names:
            return 0
        with tempfile.TemporaryDirectory() as folder:
            source.extractall(folder, modules)
            made = Path(folder, archive.name)
            # A copy: installers link one file into many environments.
            shutil.copyfile(archive, made)
            with zipfile.ZipFile(made, "a") as target:
                for name in modules:
                    target.write(_compiled(Path(folder, name), name), f"{name}c")
            part = archive.with_name(f".{archive.name}.part")
            shutil.move(made, part)
            os.replace(part, archive)
    return len(modules)


def _compiled(module: Path, name: str) -> Path:
    made = module.with_suffix(".pyc")
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(module), str(made), name, doraise=True, invalidation_mode=unchecked)
    return made


def main() -> None:
    """Compile the archives of the installed PySpark."""
    package = find_spec("pyspark")
    if package is None or package.origin is None:
        return
    for archive in sorted((Path(package.origin).parent / "python" / "lib").glob("*.zip")):
        add_compiled(archive)


if __name__ == "__main__":
    main()
