"""A day's load by Hadoop's magic, and a task that waits for it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from airflow.sdk import DAG, CronDataIntervalTimetable, chain

from zero_rename.operators.spark_submit import ZeroRenameSparkSubmitOperator
from zero_rename.sensors.success_manifest import SuccessManifestSensor

with DAG(
    dag_id="flights_magic",
    schedule=CronDataIntervalTimetable("@daily", timezone="UTC"),
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    end_date=datetime(2013, 12, 31, tzinfo=UTC),
    catchup=False,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=5)},
):
    load = ZeroRenameSparkSubmitOperator(
        task_id="load",
        application=str(Path.home() / "day_job_saved.py"),
        application_args=["{{ data_interval_start | ds }}"],
        table="flights",
        partition_format="day=%Y-%m-%d",
        mode="overwrite",
        committer="magic",
    )
    committed = SuccessManifestSensor(
        task_id="committed", table="flights", upstream_task_id="load", timeout=3600
    )
    chain(load, committed)
