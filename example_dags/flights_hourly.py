"""Two DAGs of Airflow 3.3: load the last whole hour, and report on each hour that was loaded.

A run of ``flights_hourly`` is a run *of a partition*: it has a ``partition_key`` and a
``partition_date``, but neither ``ds`` nor a data interval. Its load makes an event of the asset
``flights_by_hour``. The event's key is the partition that was written,
``year=2013/month=2/day=1/hour=6``. Each such event starts a run of ``flights_hour_report`` with
that key, also if another DAG made the event.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Asset, CronPartitionTimetable, Param, PartitionedAssetTimetable, task

from zero_rename.operators.spark_submit import ZeroRenameSparkSubmitOperator
from zero_rename.provider.hooks import ZeroRenameHook

FLIGHTS = Asset("flights_by_hour")
CSV: Any = {"csv": Param("/data/flights.csv", type="string", description="Where flights.csv is")}

with DAG(
    dag_id="flights_hourly",
    # run_offset: the run for six o'clock begins at seven, when that hour is over.
    schedule=CronPartitionTimetable("0 * * * *", timezone="UTC", run_offset=-1),
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    catchup=False,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=5)},
    params=CSV,
    tags=["example", "zero_rename"],
    doc_md=__doc__,
):
    hour = "{{ partition_date.strftime('%Y-%m-%dT%H') }}"
    ZeroRenameSparkSubmitOperator(
        task_id="load",
        application=str(Path(__file__).parent / "jobs" / "flights_job.py"),
        application_args=["--csv", "{{ params.csv }}", "--hour", hour],
        table="flights_by_hour",
        partition_format="year=%Y/month=%-m/day=%-d/hour=%-H",
        mode="overwrite",
        outlets=[FLIGHTS],
        asset_partitions=True,
    )

with DAG(
    dag_id="flights_hour_report",
    schedule=PartitionedAssetTimetable(assets=FLIGHTS),
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    catchup=False,
    default_args={"retries": 1, "retry_delay": timedelta(minutes=5)},
    tags=["example", "zero_rename"],
    doc_md="Count the flights of an hour, and those that left late.",
):

    @task
    def count(partition: str) -> dict[str, int]:
        table = ZeroRenameHook().get_table_as_it_is("flights_by_hour")
        rows = table.scan([partition], columns=["dep_delay"]).to_arrow()
        late = [delay for delay in rows.column("dep_delay").to_pylist() if (delay or 0) > 15]
        return {"flights": rows.num_rows, "late": len(late)}

    count("{{ partition_key }}")
