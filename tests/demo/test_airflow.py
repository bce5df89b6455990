"""Runs of a real Airflow: for the first time, cleared, and after the worker died."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from demo.airflow import CLEARED, RETRIED, Airflow, airflow
from demo.workspace import DemoError

DAY = date(2013, 2, 1)
DAG = """
import json, os
from datetime import datetime, UTC
from airflow.sdk import DAG, CronDataIntervalTimetable, task

with DAG("tries", schedule=CronDataIntervalTimetable("@daily", timezone="UTC"),
         start_date=datetime(2013, 1, 1, tzinfo=UTC), catchup=False,
         params={"say": "nothing"}, default_args={"retries": 2}) as dag:
    @task
    def note(ti=None, data_interval_start=None, params=None):
        with open(os.environ["NOTES"], "a") as file:
            file.write(json.dumps([str(data_interval_start.date()), ti.try_number, ti.max_tries,
                                   ti.run_id, params["say"]]) + chr(10))
        if params["say"] == "die":
            os.kill(os.getpid(), 9)
        if params["say"] == "fail":
            from airflow.sdk.exceptions import AirflowFailException
            raise AirflowFailException("as asked")
    note()
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("airflow")
    (folder / "dags").mkdir()
    (folder / "dags" / "tries.py").write_text(DAG)
    return folder


@pytest.fixture(scope="module")
def environment(home: Path) -> dict[str, str]:
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("AIRFLOW", "AWS_"))}
    return kept | {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "NOTES": str(home / "notes"),
    }


@pytest.fixture(scope="module")
def worker(home: Path, environment: dict[str, str]) -> Iterator[Airflow]:
    with airflow("tries", environment, home / "log", migrate=True) as started:
        started.wait_until_ready()
        yield started


@pytest.fixture
def notes(home: Path) -> Path:
    path = home / "notes"
    path.unlink(missing_ok=True)
    return path


def read(notes: Path) -> list[list]:
    return [json.loads(line) for line in notes.read_text().splitlines()]


@pytest.mark.airflow
@pytest.mark.slow
def test_a_cleared_run_is_the_same_run_with_further_tries(worker: Airflow, notes: Path) -> None:
    run = worker.run(DAY, conf={"say": "first"})
    assert worker.run(DAY, CLEARED, {"say": "again"}) == run
    assert read(notes) == [
        ["2013-02-01", 1, 2, run, "first"],
        # Clearing allows as many retries again: that tells it from a retry.
        ["2013-02-01", 2, 3, run, "again"],
    ]


@pytest.mark.airflow
@pytest.mark.slow
def test_a_dead_workers_run_is_retried_by_another(
    worker: Airflow, environment: dict[str, str], home: Path, notes: Path
) -> None:
    other = date(2013, 2, 2)
    with airflow("tries", environment, home / "log-2") as dying:
        dying.wait_until_ready()
        dying.begin(other, conf={"say": "die"})
        with pytest.raises(DemoError, match="Airflow ended"):
            dying.wait()
    run = worker.run(other, RETRIED, {"say": "alive"})
    assert read(notes) == [["2013-02-02", 1, 2, run, "die"], ["2013-02-02", 2, 2, run, "alive"]]
