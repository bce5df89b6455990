"""Two DAGs for a table of Hadoop's magic committer: load a day and wait for it; clean up.

They need the connections of ``flights_daily``, and a Spark with hadoop-aws and spark-hadoop-cloud.
The only difference to ``flights_daily`` is the argument ``committer``. A day is ready when its
load is verified; a month is ready when enough of its days are, no matter which run or notebook
wrote them. The second DAG finishes or undoes the jobs that dead drivers left, then aborts orphaned
uploads. It does not touch jobs that still run.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import DAG, Param, chain
from airflow.timetables.interval import CronDataIntervalTimetable

from zero_rename.operators.maintenance import PurgeStaleUploadsOperator
from zero_rename.operators.s3a_maintenance import RecoverS3AJobsOperator
from zero_rename.operators.spark_submit import ZeroRenameSparkSubmitOperator
from zero_rename.sensors.success_manifest import SuccessManifestSensor

FLIGHTS = os.environ.get("FLIGHTS_CSV", "/data/flights.csv")
TABLE: Any = {
    "table": Param("flights_s3a", type="string", description="Below the connection's table root")
}
CSV: Any = {"csv": Param(FLIGHTS, type="string", description="Where flights.csv is")}

with DAG(
    dag_id="flights_s3a",
    schedule=CronDataIntervalTimetable("@daily", "UTC"),
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    end_date=datetime(2013, 12, 31, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=5)},
    params=TABLE | CSV,
    tags=["example", "zero_rename"],
    doc_md=__doc__,
):
    load = ZeroRenameSparkSubmitOperator(
        task_id="load",
        application=str(Path(__file__).parent / "jobs" / "flights_job.py"),
        application_args=["--csv", "{{ params.csv }}", "--day", "{{ data_interval_start | ds }}"],
        table="{{ params.table }}",
        partition_format="year=%Y/month=%-m/day=%-d",
        mode="overwrite",
        committer="magic",
    )
    # Reads the report of this run's load, which no later _SUCCESS replaces.
    committed = SuccessManifestSensor(
        task_id="committed", table="{{ params.table }}", upstream_task_id="load", timeout=3600
    )
    # Asks what the partition holds, no matter who wrote it: for a reader in another DAG.
    day_is_whole = SuccessManifestSensor(
        task_id="day_is_whole",
        table="{{ params.table }}",
        partition_format="year=%Y/month=%-m/day=%-d",
        committer="magic",
        check_files=True,
        min_files=1,
        timeout=3600,
    )
    # Counts the loaded partitions below a directory: the days of this month so far.
    month_has_days = SuccessManifestSensor(
        task_id="month_has_days",
        table="{{ params.table }}",
        partition="{{ data_interval_start.strftime('year=%Y/month=%-m') }}",
        min_partitions=1,
        committer="magic",
        timeout=3600,
    )
    chain(load, committed, day_is_whole, month_has_days)

with DAG(
    dag_id="flights_s3a_maintenance",
    schedule="@weekly",
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    catchup=False,
    default_args={"retries": 1, "retry_delay": timedelta(minutes=5)},
    params=TABLE,
    tags=["example", "zero_rename"],
    doc_md="Settle what dead drivers left, and abort the uploads that nobody will complete.",
):
    # A job is rolled forward if all of its pending files can be read and no newer run has
    # replaced its partitions. Any other job is rolled back.
    recover = RecoverS3AJobsOperator(task_id="recover", tables=["{{ params.table }}"], apply=True)
    purge = PurgeStaleUploadsOperator(task_id="purge", tables=["{{ params.table }}"], apply=True)
    chain(recover, purge)
