"""A DAG that loads a range of days as one job: one Spark application, one commit.

``airflow backfill create`` makes a run for each day. This DAG loads the whole range at once: Spark
starts once instead of once a day, and all days become visible together. Days that are already in
the table are replaced::

    airflow dags trigger flights_backfill \\
        --conf '{"first": "2013-02-01", "last": "2013-02-07"}'
"""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import DAG, Param, task

from zero_rename.operators.spark_submit import ZeroRenameSparkSubmitOperator

RANGE: Any = {
    "first": Param("2013-02-01", type="string", format="date", description="The first day"),
    "last": Param("2013-02-07", type="string", format="date", description="The last day"),
}
CSV: Any = {"csv": Param("/data/flights.csv", type="string", description="Where flights.csv is")}

with DAG(
    dag_id="flights_backfill",
    schedule=None,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=5)},
    params=RANGE | CSV,
    tags=["example", "zero_rename"],
    doc_md=__doc__,
):

    @task
    def partitions(first: str, last: str) -> list[str]:
        begin, end = date.fromisoformat(first), date.fromisoformat(last)
        days = [begin + timedelta(days=number) for number in range((end - begin).days + 1)]
        return [f"year={day.year}/month={day.month}/day={day.day}" for day in days]

    days = ["--days", "{{ params.first }}", "{{ params.last }}"]
    ZeroRenameSparkSubmitOperator(
        task_id="load",
        application=str(Path(__file__).parent / "jobs" / "flights_job.py"),
        application_args=["--csv", "{{ params.csv }}", *days],
        table="flights",
        # All days of the range: a day without flights is emptied.
        partition=partitions("{{ params.first }}", "{{ params.last }}"),
        mode="overwrite",
    )
