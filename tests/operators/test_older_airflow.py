"""The provider on the oldest Airflow that it runs on, from the wheel, in an environment of its
own: the tests of ``in_older_airflow.py`` and ``recomputing_in_older_airflow.py`` run there."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from support.moto_server import S3Server
from support.older_python import older_python
from support.waiting import STUCK
from tools.environments import OLDER_AIRFLOW, migrated_database
from tools.server_process import free_port

pytestmark = [pytest.mark.airflow, pytest.mark.slow]
HERE = Path(__file__).resolve().parent
#: Every test of such a module runs there, and none is skipped.
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


def run_there(
    module: str, python: Path, server: S3Server, wheel: Path, folder: Path, **more: str
) -> int:
    """Run the tests of a module there. Returns how many have passed: all."""
    home, package = folder / "home", folder / "package"
    home.mkdir()
    shutil.copy(migrated_database(), home / "airflow.db")
    zipfile.ZipFile(wheel).extractall(package)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib -W ignore\n")
    command = [python, "-m", "pytest", "-q", "-c", folder / "pytest.ini", "--rootdir", HERE]
    command += ["--noconftest", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*map(str, command), "--basetemp", str(folder / "t"), str(HERE / module)],
        cwd=folder,
        env=variables(server, home, package) | more,
        capture_output=True,
        text=True,
        timeout=STUCK,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    found = _SAID.search(done.stdout)
    assert found is not None, done.stdout
    return int(found[1])


def test_loads_and_sensors(python: Path, s3_server: S3Server, wheel: Path, tmp_path: Path) -> None:
    s3_server.client().create_bucket(Bucket="older-airflow")
    assert run_there("in_older_airflow.py", python, s3_server, wheel, tmp_path) >= 6


def test_recomputing(
    python: Path, s3_server: S3Server, s3_bucket: Any, wheel: Path, tmp_path: Path
) -> None:
    """With a web server, a scheduler and a triggerer."""
    port, root = free_port(), f"s3://{s3_bucket.name}/lake"
    lake = {"conn_type": "zero_rename", "extra": {"table_root": root}}
    login = {"login": "anna", "password": "secret"}
    server = {"conn_type": "http", "host": "127.0.0.1", "port": port, **login}
    basic = "airflow.providers.fab.auth_manager.api.auth.backend.basic_auth"
    settings = {
        "API__AUTH_BACKENDS": basic,
        "CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "CORE__DAGS_FOLDER": str(tmp_path / "home" / "dags"),
        "CORE__EXECUTOR": "LocalExecutor",
        # Else each process makes one, as there is no settings file yet.
        "CORE__FERNET_KEY": base64.urlsafe_b64encode(bytes(32)).decode(),
        "CORE__PARALLELISM": "3",
        "LOGGING__TRIGGER_LOG_SERVER_PORT": str(free_port()),
        "LOGGING__WORKER_LOG_SERVER_PORT": str(free_port()),
        "WEBSERVER__SECRET_KEY": "of no importance",
        "WEBSERVER__WEB_SERVER_PORT": str(port),
    }
    passed = run_there(
        "recomputing_in_older_airflow.py",
        python,
        s3_server,
        wheel,
        tmp_path,
        **{f"AIRFLOW__{name}": value for name, value in settings.items()},
        # Else SQLite is for one task at a time.
        _AIRFLOW__SKIP_DATABASE_EXECUTOR_COMPATIBILITY_CHECK="1",
        AIRFLOW_CONN_AIRFLOW_API=json.dumps(server),
        AIRFLOW_CONN_ZERO_RENAME_DEFAULT=json.dumps(lake),
        TEST_LAKE=root,
    )
    assert passed >= 5
