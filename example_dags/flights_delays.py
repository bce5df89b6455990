"""Tables computed from ``flights``, and their recomputation after a day was corrected.

The tables are delays by day, by week and by month, and a ranking of the carriers.

* ``flights_by_day`` makes a range of days by one run and one commit.
* ``flights_weekly`` and ``flights_monthly`` make a week or a month when it is over; ``airflow
  backfill create`` makes those of the past. A month that ends within a week lacks that week until
  it is over: then the month is stale.
* ``flights_ranking`` runs whenever a month has been made: it is scheduled on the month's asset.
* ``flights_recompute`` finds every night the partitions that are stale or lost, and those computed
  from such partitions. It clears the tasks that made them, one layer at a time. Nobody has to name
  the corrected days, and any program may have corrected them.
* ``flights_day_report`` needs one day in its present state. If that day is stale, it is made again
  first; the other days of the same run of ``flights_by_day`` are not.

A partition that ``flights_job.py`` loads is identified by its files' bytes. If ``flights`` is
compacted, let the job ``save(…, options={"content": "rows"})``; otherwise a compaction makes all
tables that are computed from it count as stale.

``flights_recompute`` and ``flights_day_report`` need the connection ``airflow_api``, of type
``http``, to Airflow's API server.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Asset, CronDataIntervalTimetable, Param, task

from zero_rename.operators.recompute import RecomputeOperator
from zero_rename.operators.spark_submit import ZeroRenameSparkSubmitOperator
from zero_rename.provider.hooks import ZeroRenameHook
from zero_rename.sensors.success_manifest import SuccessManifestSensor

#: The argument that names the folder of the tables.
LAKE = ["--lake", "{{ conn.zero_rename_default.extra_dejson.table_root }}"]
APPLICATION = str(Path(__file__).parent / "jobs" / "delays_job.py")
MONTHLY = Asset("flights_monthly")
RANGE: Any = {
    "first": Param("2013-01-01", type="string", format="date", description="The first day"),
    "last": Param("2013-01-31", type="string", format="date", description="The last day"),
}
DAY: Any = {"day": Param("2013-01-01", type="string", format="date")}
TARGETS: Any = {
    "targets": Param(
        ["flights_ranking", "flights_by_day"],
        type="array",
        description="Tables, or partitions of them: flights_weekly/week=2013-01-07",
    )
}
EACH: Any = {
    "start_date": datetime(2013, 1, 1, tzinfo=UTC),
    "catchup": False,
    "default_args": {"retries": 2, "retry_delay": timedelta(minutes=5)},
    "tags": ["example", "zero_rename"],
    "doc_md": __doc__,
}

with DAG("flights_by_day", schedule=None, params=RANGE, **EACH):

    @task
    def partitions(first: str, last: str) -> list[str]:
        begin, end = date.fromisoformat(first), date.fromisoformat(last)
        return [f"day={begin + timedelta(days=n)}" for n in range((end - begin).days + 1)]

    ZeroRenameSparkSubmitOperator(
        task_id="load",
        application=APPLICATION,
        application_args=[*LAKE, "by_day", "{{ params.first }}", "{{ params.last }}"],
        table="flights_by_day",
        partition=partitions("{{ params.first }}", "{{ params.last }}"),
        mode="overwrite",
    )

first_day = "{{ data_interval_start | ds }}"
last_day = "{{ (data_interval_end - macros.timedelta(days=1)) | ds }}"
# The Monday of the week in which the year begins: January has six days of it.
weeks = EACH | {"start_date": datetime(2012, 12, 31, tzinfo=UTC)}
with DAG("flights_weekly", schedule=CronDataIntervalTimetable("0 0 * * 1", "UTC"), **weeks):
    ZeroRenameSparkSubmitOperator(
        task_id="load",
        application=APPLICATION,
        application_args=[*LAKE, "weekly", first_day, last_day],
        table="flights_weekly",
        partition_format="week=%Y-%m-%d",
        mode="overwrite",
    )

with DAG("flights_monthly", schedule=CronDataIntervalTimetable("@monthly", "UTC"), **EACH):
    ZeroRenameSparkSubmitOperator(
        task_id="load",
        application=APPLICATION,
        application_args=[*LAKE, "monthly", first_day, last_day],
        table="flights_monthly",
        partition_format="month=%Y-%m",
        mode="overwrite",
        outlets=[MONTHLY],
    )

with DAG("flights_ranking", schedule=[MONTHLY], **EACH):
    ZeroRenameSparkSubmitOperator(
        task_id="load",
        application=APPLICATION,
        application_args=[*LAKE, "ranking"],
        table="flights_ranking",
        partition="*",
        mode="overwrite",
    )

with DAG(
    "flights_recompute",
    schedule="@daily",
    max_active_runs=1,
    params=TARGETS,
    render_template_as_native_obj=True,
    **EACH,
):
    RecomputeOperator(
        task_id="again", targets="{{ params.targets }}", poll_interval=30, deferrable=True
    )

with DAG("flights_day_report", schedule=None, params=DAY, **EACH):
    fresh = SuccessManifestSensor(
        task_id="fresh",
        table="flights_by_day",
        partition="day={{ params.day }}",
        min_rows=1,
        on_stale="recompute",
        poke_interval=30,
        deferrable=True,
    )

    @task
    def carriers(day: str) -> dict[str, int]:
        """Return the minutes of delay of each carrier."""
        table = ZeroRenameHook().get_table_as_it_is("flights_by_day")
        rows = table.scan([f"day={day}"], columns=["carrier", "delay"]).to_arrow().to_pylist()
        return {row["carrier"]: row["delay"] for row in rows}

    fresh >> carriers("{{ params.day }}")
