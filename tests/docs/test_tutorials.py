"""The tutorials, followed from the first command to the last on a machine that has nothing: they
run as they stand, print what they say, and leave the rows that they promise."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from conftest import Bucket

from support.doc_examples import examples
from support.moto_server import S3Server
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


@pytest.mark.slow
@pytest.mark.airflow
@pytest.mark.timeout(1800)
def test_airflow(newcomer: Newcomer, wheel: Path, s3_bucket: Bucket) -> None:
    newcomer.arrive(wheel)
    # Beside other tests Airflow's scheduler holds SQLite for longer than the five seconds for which
    # a command waits.
    (site,) = newcomer.folder.glob("venv/lib/python*/site-packages")
    (site / "patient_sqlite.py").write_text('ARGUMENTS = {"timeout": 120}\n', "utf-8")
    patience = {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONNECT_ARGS": "patient_sqlite.ARGUMENTS"}
    newcomer = replace(newcomer, variables={**newcomer.variables, **patience})

    def is_over() -> bool:
        database = f"file:{newcomer.home}/airflow/airflow.db?mode=ro"
        with contextlib.closing(sqlite3.connect(database, uri=True)) as airflow:
            states = airflow.execute("SELECT state FROM dag_run WHERE dag_id = 'flights_daily'")
            return any(state in ("success", "failed") for (state,) in states)

    looks = {"airflow dags list-runs flights_daily": is_over}
    newcomer.follow(TUTORIALS / "airflow.md", s3_bucket.name, looks)
    days = Table(f"s3://{s3_bucket.name}/tables/flights").to_arrow()["day"].to_pylist()
    assert days == [1] * 926


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
