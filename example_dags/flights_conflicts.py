"""Two DAGs that load the same days, and a third that settles their conflicts.

``flights_of_day`` loads each day, ``flights_corrected`` a corrected day. Both use
``on_conflict="newest_run"``: a late or cleared run never replaces the rows of a newer run, and
reports that it did not. A conflict is left if no policy decided. In this example a run with
``policy`` ``last_wins`` makes one: an older load replaces a correction.

``flights_settle`` finds the conflicts since its last run and lets corrections stand: their rows
are brought back, which only a Delta table allows. It fails while a conflict is not settled. The
report in XCom names the runs in conflict, and the decisions with their authors.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import DAG, Param, chain
from airflow.timetables.interval import CronDataIntervalTimetable

from zero_rename.operators.conflicts import FindConflictsOperator, ResolveConflictsOperator
from zero_rename.operators.spark_submit import ZeroRenameSparkSubmitOperator

TABLE = "flights_of_two"
PARAMS: Any = {
    "csv": Param("/data/flights.csv", type="string", description="The rows of all days"),
    "policy": Param(
        "newest_run",
        enum=["newest_run", "last_wins"],
        description="last_wins: this run's rows, whatever newer ones have loaded",
    ),
}
DAY = Param("2013-01-01", type="string", format="date", description="The corrected day")
CORRECTION: Any = {**PARAMS, "day": DAY}
RETRIES = {"retries": 2, "retry_delay": timedelta(minutes=5)}


def load(day: str, **arguments: Any) -> ZeroRenameSparkSubmitOperator:
    """Replace a day of the table, unless a newer run has loaded it."""
    return ZeroRenameSparkSubmitOperator(
        task_id="load",
        application=str(Path(__file__).parent / "jobs" / "flights_job.py"),
        application_args=["--csv", "{{ params.csv }}", "--day", day],
        table=TABLE,
        mode="overwrite",
        layout="delta",
        on_conflict="{{ params.policy }}",
        **arguments,
    )


with DAG(
    dag_id="flights_of_day",
    schedule=CronDataIntervalTimetable("@daily", "UTC"),
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    catchup=False,
    default_args=RETRIES,
    params=PARAMS,
    tags=["example", "zero_rename"],
    doc_md=__doc__,
):
    load("{{ data_interval_start | ds }}", partition_format="year=%Y/month=%-m/day=%-d")

with DAG(
    dag_id="flights_corrected",
    schedule=None,
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    default_args=RETRIES,
    params=CORRECTION,
    tags=["example", "zero_rename"],
    doc_md=__doc__,
):
    load(
        "{{ params.day }}",
        partition="{{ macros.datetime.fromisoformat(params.day).strftime("
        "'year=%Y/month=%-m/day=%-d') }}",
    )

with DAG(
    dag_id="flights_settle",
    schedule="@daily",
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args=RETRIES,
    tags=["example", "zero_rename"],
    doc_md=__doc__,
):
    find = FindConflictsOperator(task_id="find", tables=TABLE)
    settle = ResolveConflictsOperator(
        task_id="settle",
        table=TABLE,
        policy={"prefer": ["flights_corrected", "flights_of_day"]},
        apply=True,
    )
    check = FindConflictsOperator(task_id="check", tables=TABLE, fail_on="unresolved")
    chain(find, settle, check)
