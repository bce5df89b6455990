"""The example DAGs import, serialise, and resolve to a partition a day."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from support.airflow import Tables, partitions_of, run_task, task_context
from support.waiting import STUCK

pytestmark = pytest.mark.memory_s3

EXAMPLES = Path(__file__).parents[2] / "example_dags"
APPLICATION = EXAMPLES / "jobs" / "flights_job.py"


@pytest.fixture(scope="module")
def dags() -> dict[str, Any]:
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(dag_folder=str(EXAMPLES))
    assert bag.import_errors == {}
    return dict(bag.dags)


def test_which_there_are(dags: dict[str, Any]) -> None:
    assert set(dags) == {
        "flights_audited",
        "flights_backfill",
        "flights_by_day",
        "flights_corrected",
        "flights_daily",
        "flights_day_report",
        "flights_emr_serverless",
        "flights_first_wins",
        "flights_hour_report",
        "flights_hourly",
        "flights_last_week",
        "flights_last_wins",
        "flights_maintenance",
        "flights_monthly",
        "flights_of_day",
        "flights_ranking",
        "flights_recompute",
        "flights_s3a",
        "flights_s3a_maintenance",
        "flights_settle",
        "flights_watch",
        "flights_weekly",
        "zero_rename_maintenance",
    }
    for dag in dags.values():
        assert dag.catchup is False
        assert dag.default_args["retries"] > 0
        assert dag.tags >= {"example"}


def test_airflow_parses_no_application() -> None:
    """Its imports of Spark took 0.94 s each cycle. Copied elsewhere it is not taken for a DAG."""
    from airflow.utils.file import list_py_file_paths, might_contain_dag

    parsed = {Path(path).name for path in list_py_file_paths(EXAMPLES)}
    assert parsed == {path.name for path in EXAMPLES.glob("*.py")} - {"__init__.py"}
    assert not might_contain_dag(str(APPLICATION), safe_mode=True)


def test_they_survive_serialisation(dags: dict[str, Any]) -> None:
    """With the operators' links, which a reader looks up by the provider's list."""
    from airflow.serialization.serialized_objects import DagSerialization

    for dag in dags.values():
        DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))


def test_a_run_covers_the_day_that_is_over(dags: dict[str, Any]) -> None:
    from airflow.serialization.encoders import coerce_to_core_timetable

    timetable = coerce_to_core_timetable(dags["flights_daily"].timetable)
    begun = datetime(2013, 2, 2, 0, 5, tzinfo=UTC)
    interval = timetable.infer_manual_data_interval(run_after=begun)
    assert interval.start == datetime(2013, 2, 1, tzinfo=UTC)


def test_weeks_of_flights_cover_every_day_of_the_year(dags: dict[str, Any]) -> None:
    """The first week was that of 7 January, so January lacked its first six days."""
    from airflow.serialization.encoders import coerce_to_core_timetable
    from airflow.timetables.base import TimeRestriction

    dag = dags["flights_weekly"]
    begins = TimeRestriction(earliest=dag.start_date, latest=None, catchup=True)
    first = coerce_to_core_timetable(dag.timetable).next_dagrun_info(
        last_automated_data_interval=None, restriction=begins
    )
    assert first is not None
    assert first.data_interval is not None
    assert first.data_interval.start <= dags["flights_monthly"].start_date


def test_the_load_of_a_day(dags: dict[str, Any]) -> None:
    load = dags["flights_daily"].get_task("load").prepare_for_execution()
    assert Path(load.application).name == "flights_job.py"
    assert Path(load.application).is_file()
    params = {"csv": "/data/f.csv", "table": "flights", "committer": "magic"}
    context = task_context(load, params=params)
    load.render_template_fields(context)
    assert load.application_args == ["--csv", "/data/f.csv", "--day", "2013-02-01"]
    assert (load.table, load.committer) == ("flights", "magic")
    assert partitions_of(load, context) == ("year=2013/month=2/day=1",)


def test_the_purge(dags: dict[str, Any], tables: Tables) -> None:
    purge = dags["flights_maintenance"].get_task("purge").prepare_for_execution()
    dead = tables.undecided(1)
    tables.table().recover(patience=0.0)
    report = run_task(purge, task_context(purge, params={"table": tables.url()}))
    assert [entry["table"] for entry in report["tables"]] == [tables.url()]
    assert tables.table().job_state(dead) == "aborted"


def test_the_word_for_the_committer_is_one_of_those_there_are(dags: dict[str, Any]) -> None:
    from zero_rename.s3a.hadoop.settings import COMMITTERS

    word = dags["flights_daily"].params.get_param("committer")
    assert (word.value, tuple(word.schema["enum"])) == ("zero_rename", COMMITTERS)


def test_the_jobs_command_line() -> None:
    from zero_rename.example_dags.jobs import flights_job as job

    asked = job.parse(["--csv", "f", "--day", "2013-02-01"])
    assert job.partition_path(asked.day) == "year=2013/month=2/day=1"
    # The table is left to the operator.
    assert (asked.csv, asked.table, asked.month) == ("f", None, None)
    asked = job.parse(["--csv", "f", "--table", "s3://b/t", "--month", "2013-02"])
    days = job.days_of(asked.month)
    month = "year=2013/month=2"
    assert (len(days), days[0], days[-1]) == (28, f"{month}/day=1", f"{month}/day=28")
    for period in ([], ["--day", "2013-02-01", "--month", "2013-01"], ["--day", "yesterday"]):
        with pytest.raises(SystemExit):
            job.parse(["--csv", "f", *period])


def test_the_dags_import_without_spark(tmp_path: Path) -> None:
    """A scheduler's host has Airflow and this provider, and often no PySpark."""
    program = (
        "import sys; sys.modules['pyspark'] = None; import runpy; "
        f"runpy.run_path({str(EXAMPLES / 'flights_daily.py')!r})"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=STUCK)
