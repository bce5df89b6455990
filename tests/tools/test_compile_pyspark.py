"""Compiled code in Spark's Python archive."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tools.compile_pyspark import add_compiled


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "lib.zip"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("thing/__init__.py", "from .inner import VALUE\n")
        made.writestr("thing/inner.py", "VALUE = 42\n")
        made.writestr("thing/tests/test_it.py", "VALUE = 1\n")
    return path


def test_modules_are_imported_from_compiled_code_in_any_time_zone(archive: Path) -> None:
    assert add_compiled(archive) == 2
    look = "import thing.inner as i; print(i.VALUE, i.__cached__ or i.__file__)"
    for zone in ("UTC", "America/New_York"):
        done = subprocess.run(
            [sys.executable, "-v", "-c", look],
            env={**os.environ, "PYTHONPATH": str(archive), "TZ": zone},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.startswith("42")
        assert f"{archive}/thing/inner.pyc" in done.stdout + done.stderr


def test_other_links_to_the_archive_keep_what_they_had(archive: Path) -> None:
    # Installers link one file into many environments.
    other = archive.with_name("cache.zip")
    other.hardlink_to(archive)
    before = other.read_bytes()
    add_compiled(archive)
    assert other.read_bytes() == before
