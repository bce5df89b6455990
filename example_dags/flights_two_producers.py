"""Two producers of one partition at the same time, with a DAG for each policy.

Each producer replaces the day with its own file. Both open a job, and one commits first. Then:

* ``flights_first_wins`` (``on_conflict="fail"``, the default): the other one fails without a
  retry and names the job that was faster. None of its rows are visible. Clear its task to load
  its rows over those of the first.
* ``flights_last_wins`` (``on_conflict="last_wins"``): the other one replaces the first.

A producer that begins after the other has committed replaces its rows under both policies, as
tomorrow's load would: only a commit that came after a job began conflicts with that job. Two
producers that *append* do not conflict.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import DAG, Param
from airflow.timetables.interval import CronDataIntervalTimetable

from zero_rename.operators.spark_submit import ZeroRenameSparkSubmitOperator

PRODUCERS = ("airline", "airport")
FILES: Any = {
    name: Param(f"/data/{name}.csv", type="string", description=f"Flights as the {name} has them")
    for name in PRODUCERS
}

for dag_id, policy in {"flights_first_wins": "fail", "flights_last_wins": "last_wins"}.items():
    with DAG(
        dag_id=dag_id,
        schedule=CronDataIntervalTimetable("@daily", "UTC"),
        start_date=datetime(2013, 1, 1, tzinfo=UTC),
        catchup=False,
        default_args={"retries": 2, "retry_delay": timedelta(minutes=5)},
        params=FILES,
        tags=["example", "zero_rename"],
        doc_md=__doc__,
    ):
        for producer in PRODUCERS:
            day = ["--day", "{{ data_interval_start | ds }}"]
            ZeroRenameSparkSubmitOperator(
                task_id=producer,
                application=str(Path(__file__).parent / "jobs" / "flights_job.py"),
                application_args=["--csv", f"{{{{ params.{producer} }}}}", *day],
                table=dag_id,
                partition_format="year=%Y/month=%-m/day=%-d",
                mode="overwrite",
                on_conflict=policy,
            )
