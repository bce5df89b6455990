"""The tutorials, followed from the first command to the last on a machine that has nothing: they
run as they stand, print what they say, and leave the rows that they promise."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from conftest import Bucket

from support.doc_examples import examples
from support.moto_server import SECRET_KEY, S3Server
from support.newcomer import Newcomer, airflow_variables
from tools.server_process import free_port
from zero_rename import JobSpec, Table

PAGES = Path(__file__).resolve().parents[2] / "docs"
TUTORIALS = PAGES / "tutorials"
ROWS = pa.table({"day": ["1"]})


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def newcomer(tmp_path: Path, s3_server: S3Server, port: int) -> Iterator[Newcomer]:
    """With all that a page's servers need; the ports are not those that its reader has."""
    ports = {"DAGSTER_WEBSERVER_PORT": str(port), **airflow_variables(tmp_path / "home", port)}
    servers = {
        "airflow standalone": f"http://127.0.0.1:{port}/api/v2/monitor/health",
        "dagster dev -f definitions.py": f"http://127.0.0.1:{port}/server_info",
    }
    made = Newcomer(tmp_path, s3_server.environment | ports, servers)
    yield made
    made.leave()


@pytest.mark.slow
def test_plain_python(newcomer: Newcomer, wheel: Path, s3_bucket: Bucket) -> None:
    newcomer.arrive(wheel)
    newcomer.follow(TUTORIALS / "python.md", s3_bucket.name)
    assert Table(f"s3://{s3_bucket.name}/flights").scan().count() == 3


@pytest.mark.slow
@pytest.mark.spark
def test_spark(newcomer: Newcomer, wheel: Path, s3_bucket: Bucket) -> None:
    newcomer.arrive(wheel)
    newcomer.follow(TUTORIALS / "spark.md", s3_bucket.name)
    found = Table(f"s3://{s3_bucket.name}/flights").to_arrow()["day"].to_pylist()
    assert sorted(found) == ["2013-01-01"] * 2 + ["2013-01-03"] * 3


class WithAnotherClient(Newcomer):
    """Has the files of another ``pyspark-client``, which Airflow's provider asks for, over those of
    ``pyspark``: whichever is installed last wins."""

    def type(self, command: str) -> str:
        if command.startswith("pip "):
            command += " && pip install -q --no-deps --reinstall-package pyspark-client "
            command += "pyspark-client==4.2.0"
        return super().type(command)

    @property
    def site(self) -> Path:
        (found,) = self.folder.glob("venv/lib/python*/site-packages")
        return found

    def versions(self) -> set[str]:
        """Those of the files of Python and of the jars."""
        said = (self.site / "pyspark" / "version.py").read_text("utf-8")
        names = [it.name for it in self.site.glob("pyspark/jars/spark-core_*.jar")]
        texts = [said.split("__version__")[-1], *names]
        return {found for text in texts for found in re.findall(r"\d+\.\d+\.\d+", text)}


@pytest.mark.slow
@pytest.mark.airflow
@pytest.mark.timeout(1800)
def test_airflow(newcomer: Newcomer, wheel: Path, s3_bucket: Bucket) -> None:
    """Spark's own modules run, from its zip, whichever ``pyspark`` the environment has."""
    # Beside other tests Airflow's scheduler holds SQLite for longer than the five seconds for which
    # a command waits.
    patience = {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONNECT_ARGS": "patient_sqlite.ARGUMENTS"}
    variables = {**newcomer.variables, **patience}
    newcomer = WithAnotherClient(newcomer.folder, variables, newcomer.servers)
    newcomer.arrive(wheel)
    (newcomer.site / "patient_sqlite.py").write_text('ARGUMENTS = {"timeout": 120}\n', "utf-8")

    def is_over() -> bool:
        database = f"file:{newcomer.home}/airflow/airflow.db?mode=ro"
        with contextlib.closing(sqlite3.connect(database, uri=True)) as airflow:
            states = airflow.execute("SELECT state FROM dag_run WHERE dag_id = 'flights_daily'")
            return any(state in ("success", "failed") for (state,) in states)

    looks = {"airflow dags list-runs flights_daily": is_over}
    newcomer.follow(TUTORIALS / "airflow.md", s3_bucket.name, looks)
    table = Table(f"s3://{s3_bucket.name}/tables/flights")
    assert table.to_arrow()["day"].to_pylist() == [1] * 926
    marker = table.marker("year=2013/month=2/day=1")
    assert marker is not None
    assert marker.manifest is not None
    assert re.fullmatch("flights_daily/backfill__.*/load", marker.manifest.idempotency_key or "")
    assert marker.manifest.owner.task_id == "load"
    logs = newcomer.home.glob("airflow/logs/dag_id=flights_daily/*/task_id=load/*.log")
    shown = "".join(log.read_text("utf-8") for log in logs)
    assert "Spark-Submit cmd: spark-submit" in shown
    assert SECRET_KEY not in shown
    # Of register(), which makes known again what Spark has found by itself; and what PySpark says
    # of a pandas that it does not know.
    assert "replaced a statically registered" not in shown
    assert "does not yet fully support pandas" not in shown
    assert len(newcomer.versions()) == 2
    check = [sys.executable, "-m", "uv", "pip", "check", "--python", str(newcomer.python)]
    subprocess.run(check, check=True)


@pytest.mark.slow
def test_dagster(newcomer: Newcomer, wheel: Path, s3_bucket: Bucket) -> None:
    newcomer.arrive(wheel, PAGES.parent / "tools" / "locks" / "dagster-web.lock")
    newcomer.follow(TUTORIALS / "dagster.md", s3_bucket.name)
    days = Table(f"s3://{s3_bucket.name}/lake/flights").to_arrow()["day"].to_pylist()
    assert (len(days), len(set(days))) == (27004, 31)


def test_recovery_by_hand(s3_bucket: Bucket, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"s3://{s3_bucket.name}/flights"
    table = Table(url)
    with table.job(ROWS.schema) as job:
        job.write(ROWS)
    dead = table.open_job(JobSpec(ROWS.schema))
    [code] = examples(PAGES / "guides" / "recover.md").values()
    exec(code.replace("s3://bucket/flights", url), {})
    assert dead.job in capsys.readouterr().out
