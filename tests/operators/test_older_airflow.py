"""The provider on the oldest Airflow that it runs on, from the wheel, in an environment of its
own: the tests of ``in_older_airflow.py`` run there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from support.moto_server import S3Server
from support.older_python import older_python
from support.waiting import STUCK
from tools.environments import OLDER_AIRFLOW, migrated_database

pytestmark = [pytest.mark.airflow, pytest.mark.slow]
HERE = Path(__file__).resolve().parent
#: Every test of that module runs there, and none is skipped.
_SAID = re.compile(r"^(\d+) passed(?:, \d+ warnings?)? in ", re.MULTILINE)


@pytest.fixture(scope="module")
def python() -> Path:
    return older_python(OLDER_AIRFLOW)


def variables(server: S3Server, home: Path, *path: Path) -> dict[str, str]:
    ours = ("AIRFLOW", "AWS_", "SPARK_", "PYSPARK_", "PYTHON", "PYTEST")
    known = server.environment
    connections = {
        "aws_default": {
            "conn_type": "aws",
            "login": known["AWS_ACCESS_KEY_ID"],
            "password": known["AWS_SECRET_ACCESS_KEY"],
            "extra": {"endpoint_url": server.endpoint, "region_name": known["AWS_REGION"]},
        },
        "spark_default": {"conn_type": "spark", "host": "local[1]"},
        "zero_rename_default": {
            "conn_type": "zero_rename",
            "extra": {"table_root": "s3://older-airflow/wh"},
        },
    }
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(ours)},
        **{f"AIRFLOW_CONN_{name.upper()}": json.dumps(it) for name, it in connections.items()},
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "PYTHONPATH": os.pathsep.join(map(str, path)),
    }


def test_loads_and_sensors(python: Path, s3_server: S3Server, wheel: Path, tmp_path: Path) -> None:
    s3_server.client().create_bucket(Bucket="older-airflow")
    home, package = tmp_path / "home", tmp_path / "package"
    home.mkdir()
    shutil.copy(migrated_database(), home / "airflow.db")
    zipfile.ZipFile(wheel).extractall(package)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib -W ignore\n")
    command = [python, "-m", "pytest", "-q", "-c", tmp_path / "pytest.ini", "--rootdir", HERE]
    command += ["--noconftest", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*map(str, command), "--basetemp", str(tmp_path / "t"), str(HERE / "in_older_airflow.py")],
        cwd=tmp_path,
        env=variables(s3_server, home, package),
        capture_output=True,
        text=True,
        timeout=STUCK,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    found = _SAID.search(done.stdout)
    assert found is not None, done.stdout
    assert int(found[1]) >= 6
