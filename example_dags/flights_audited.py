"""A DAG that writes, audits and publishes: readers see a day only after its rows were checked.

``load`` writes the day into a Delta table and holds its rows back. ``audit`` reads the rows of that
job alone. If they cannot be right, it fails and nothing is published. ``publish`` makes the rows
visible to all readers, by one entry of the table's log.

After a failed audit, correct the file and clear ``load``: the rows that it writes then replace
those that wait. ``zero-rename publish TABLE`` lists the jobs that wait. With a job and ``--abort``
it discards that job. An ``AbortLoadOperator`` after ``audit``, with the trigger rule
``one_failed``, would do so at once.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import DAG, AirflowFailException, Param, chain, task
from airflow.timetables.interval import CronDataIntervalTimetable

from zero_rename.operators.publishing import PublishLoadOperator
from zero_rename.operators.spark_submit import ZeroRenameSparkSubmitOperator
from zero_rename.provider.hooks import ZeroRenameHook

TABLE = "flights_audited"
PARAMS: Any = {
    "csv": Param("/data/flights.csv", type="string", description="The rows of all days"),
    "least": Param(1, type="integer", description="Flights that a day has at the least"),
}

with DAG(
    dag_id="flights_audited",
    schedule=CronDataIntervalTimetable("@daily", "UTC"),
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    end_date=datetime(2013, 12, 31, tzinfo=UTC),
    catchup=False,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=5)},
    params=PARAMS,
    tags=["example", "zero_rename"],
    doc_md=__doc__,
):
    load = ZeroRenameSparkSubmitOperator(
        task_id="load",
        application=str(Path(__file__).parent / "jobs" / "flights_job.py"),
        application_args=["--csv", "{{ params.csv }}", "--day", "{{ data_interval_start | ds }}"],
        table=TABLE,
        partition_format="year=%Y/month=%-m/day=%-d",
        mode="overwrite",
        layout="delta",
        publish=False,
    )

    @task
    def audit(job: str, params: Any = None) -> int:
        """Count the flights of the held-back job; fail on too few or on a missing carrier."""
        rows = ZeroRenameHook().get_delta_table(TABLE).scan(job=job, columns=["carrier"]).to_arrow()
        if rows.num_rows < params["least"] or rows["carrier"].null_count:
            raise AirflowFailException(
                f"{rows.num_rows} flights, {rows['carrier'].null_count} of them without a carrier. "
                f"Job {job} is not published."
            )
        return rows.num_rows

    audited = audit("{{ ti.xcom_pull('load')['job'] }}")
    publish = PublishLoadOperator(
        task_id="publish", table=TABLE, job="{{ ti.xcom_pull('load')['job'] }}"
    )
    chain(load, audited, publish)
