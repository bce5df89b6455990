"""A DAG that replaces the last seven days each day; a late run never replaces newer rows.

Flights of a day are corrected for some days after it, so each run replaces seven partitions. A late
run (a backfill, a cleared day, a slow one) has older rows of most of them. Under
``on_conflict="newest_run"`` it leaves out the partitions that a newer run has loaded, and writes
the others. If none is left, its task is skipped before Spark starts. Downstream tasks run all the
same, by the trigger rule ``none_failed``.

To load older rows on purpose, run a backfill of their days whose configuration (``--dag-run-conf``)
sets ``policy`` to ``last_wins``.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import DAG, Param, chain, task
from airflow.timetables.interval import CronDataIntervalTimetable

from zero_rename.operators.spark_submit import ZeroRenameSparkSubmitOperator

PARAMS: Any = {
    "csv": Param("/data/flights.csv", type="string", description="Flights as they are known today"),
    "policy": Param("newest_run", enum=["newest_run", "last_wins"]),
}


def week_until(day: datetime) -> list[str]:
    """Return the partitions of the seven days that end with ``day``."""
    days = (day - timedelta(days=number) for number in range(6, -1, -1))
    return [f"year={it.year}/month={it.month}/day={it.day}" for it in days]


FIRST = "{{ (data_interval_start - macros.timedelta(days=6)) | ds }}"
LAST = "{{ data_interval_start | ds }}"

with DAG(
    dag_id="flights_last_week",
    schedule=CronDataIntervalTimetable("@daily", "UTC"),
    start_date=datetime(2013, 1, 7, tzinfo=UTC),
    catchup=False,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=5)},
    params=PARAMS,
    user_defined_macros={"week_until": week_until},
    tags=["example", "zero_rename"],
    doc_md=__doc__,
):
    load = ZeroRenameSparkSubmitOperator(
        task_id="load",
        application=str(Path(__file__).parent / "jobs" / "flights_job.py"),
        application_args=["--csv", "{{ params.csv }}", "--days", FIRST, LAST],
        table="flights_last_week",
        partition="{{ week_until(data_interval_start) }}",
        mode="overwrite",
        on_conflict="{{ params.policy }}",
        on_superseded="{{ 'skip' if params.policy == 'newest_run' else 'fail' }}",
    )

    @task(trigger_rule="none_failed")
    def report() -> None:
        """Stand for what comes after the load."""

    chain(load, report())
