"""``save()`` on the oldest Spark that it runs on, from the wheel, in an environment of its own."""

from __future__ import annotations

import os
import re
import subprocess
import zipfile
from pathlib import Path

import pytest

from support.moto_server import S3Server
from support.older_python import older_python
from support.spark import environment
from support.wheel import wheel
from tools.older_spark import OLDER_SPARK

__all__ = ["wheel"]

pytestmark = [pytest.mark.spark, pytest.mark.slow]
TESTS = Path(__file__).resolve().parents[2]
#: Set by `make test-older-spark`: every test of that module runs there.
WHOLE = "OLDER_SPARK_WHOLE"
#: What differs by Spark's version: its types, how it repeats tasks and ends jobs, a whole pipeline.
_KEPT = (
    *("test_append_overwrite_and_named_partitions", "test_types", "test_the_flights_pipeline"),
    *("test_a_retried_task_counts_once", "test_a_stage_that_is_run_again", "test_a_killed_worker"),
    *("test_an_error_of_ours_keeps_its_class", "test_a_job_group"),
)
#: None is skipped.
_SAID = re.compile(r"^(\d+) passed(?:, \d+ deselected)?(?:, \d+ warnings?)? in ", re.MULTILINE)
_INI = """
[pytest]
addopts = --import-mode=importlib --strict-markers -W ignore
markers =
    spark: starts a Java virtual machine
"""


@pytest.fixture(scope="module")
def python() -> Path:
    return older_python(OLDER_SPARK)


def variables(server: S3Server, python: Path, *path: Path) -> dict[str, str]:
    return environment(server) | {
        "PYSPARK_PYTHON": str(python),
        "PYTHONPATH": os.pathsep.join(map(str, path)),
        # pytest of another environment shall not meet what this one was told.
        "PYTEST_ADDOPTS": "",
    }


def test_save(python: Path, s3_server: S3Server, wheel: Path, tmp_path: Path) -> None:
    """One session, from the wheel: unpacked as pip does it, since Python keeps no compiled modules
    of a zip, and each worker would compile them anew."""
    package = tmp_path / "package"
    zipfile.ZipFile(wheel).extractall(package)
    ini = tmp_path / "pytest.ini"
    ini.write_text(_INI)
    here = TESTS / "spark" / "saving"
    command = [python, "-m", "pytest", "-q", "-c", ini, "--rootdir", TESTS, "--confcutdir", here]
    if not os.environ.get(WHOLE):
        command += ["-k", " or ".join(_KEPT)]
    command += ["-p", "support.older_spark", "-p", "no:cacheprovider", "--basetemp", tmp_path / "t"]
    done = subprocess.run(
        [*map(str, command), str(here / "test_save.py")],
        cwd=tmp_path,
        env=variables(s3_server, python, package, TESTS),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    found = _SAID.search(done.stdout)
    assert found is not None, done.stdout
    assert int(found[1]) >= (20 if os.environ.get(WHOLE) else len(_KEPT))
