"""Two DAGs for a table that Hadoop's magic committer writes: load a day, wait for it; and clean up.

They need the connections of ``flights_daily``, and a Spark with hadoop-aws and spark-hadoop-cloud.
What differs from there is the committer's word. A day is ready when its load is verified; a month
is ready when enough of its days are, whichever run or notebook wrote them. The second DAG settles
the jobs that dead drivers left, then aborts the uploads that nobody will complete; jobs that live
are spared.
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
    schedule=CronDataIntervalTimetable("@daily", "UTC"),  # pyright: ignore[reportAbstractUsage]
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
    # By the report of this run's load, which no later _SUCCESS replaces.
    committed = SuccessManifestSensor(
        task_id="committed", table="{{ params.table }}", upstream_task_id="load", timeout=3600
    )
    # By what the partition holds, whoever wrote it: a reader in another DAG waits so.
    day_is_whole = SuccessManifestSensor(
        task_id="day_is_whole",
        table="{{ params.table }}",
        partition_format="year=%Y/month=%-m/day=%-d",
        committer="magic",
        check_files=True,
        min_files=1,
        timeout=3600,
    )
    # A directory above partitions: at least the days of this month so far that were loaded.
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
    # A job whose pending files all load is rolled forward, any other one back; and back in any
    # case where a newer run has replaced its partitions.
    recover = RecoverS3AJobsOperator(task_id="recover", tables=["{{ params.table }}"], apply=True)
    purge = PurgeStaleUploadsOperator(task_id="purge", tables=["{{ params.table }}"], apply=True)
    chain(recover, purge)
