"""DAGs beside the examples: two that load the same days by whichever policy a run says, one that
settles what conflicts, and one that looks for it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import DAG, Param, chain
from airflow.timetables.interval import CronDataIntervalTimetable

from zero_rename.operators.conflicts import FindConflictsOperator, ResolveConflictsOperator
from zero_rename.operators.maintenance import MaintainTablesOperator, PurgeStaleUploadsOperator
from zero_rename.operators.spark_submit import ZeroRenameSparkSubmitOperator

TABLE: Any = {
    "table": Param("", type="string"),
    "store": Param("zero_rename_default", type="string", description="The connection's id"),
}
LOAD: Any = TABLE | {
    "csv": Param("", type="string"),
    "policy": Param("fail", type="string"),
    "on_superseded": Param("fail", type="string"),
    "committer": Param("zero_rename", type="string"),
    "layout": Param("directory", type="string"),
    "jars": Param("", type="string", description="Hadoop's, where its committers write"),
    "day": Param("", type="string", description="Else the day of the run's data interval"),
}
DAY = "{{ params.day or (data_interval_start | ds) }}"
PARTITION = (
    "{{ (macros.datetime.fromisoformat(params.day) if params.day else data_interval_start)"
    ".strftime('year=%Y/month=%-m/day=%-d') }}"
)


def load() -> ZeroRenameSparkSubmitOperator:
    return ZeroRenameSparkSubmitOperator(
        task_id="load",
        application=str(Path(__file__).parent / "jobs" / "flights_job.py"),
        application_args=["--csv", "{{ params.csv }}", "--day", DAY],
        table="{{ params.table }}",
        partition=PARTITION,
        mode="overwrite",
        on_conflict="{{ params.policy }}",
        on_superseded="{{ params.on_superseded }}",
        committer="{{ params.committer }}",
        layout="{{ params.layout }}",
        env_vars={"SPARK_DIST_CLASSPATH": "{{ params.jars }}"},
        zero_rename_conn_id="{{ params.store }}",
    )


for dag_id, schedule in (
    ("life_daily", CronDataIntervalTimetable("@daily", "UTC")),
    ("life_corrected", None),
):
    with DAG(
        dag_id=dag_id,
        schedule=schedule,
        start_date=datetime(2013, 1, 1, tzinfo=UTC),
        end_date=datetime(2013, 3, 1, tzinfo=UTC) if schedule else None,
        catchup=False,
        default_args={"retries": 2, "retry_delay": timedelta(seconds=1)},
        params=LOAD,
    ):
        load()

with DAG(
    dag_id="life_settle",
    schedule=None,
    params=TABLE | {"policy": Param("newest_run", type="string")},
):
    find = FindConflictsOperator(task_id="find", tables="{{ params.table }}")
    settle = ResolveConflictsOperator(
        task_id="settle",
        table="{{ params.table }}",
        policy="{{ params.policy }}",
        by="rerun",
        airflow_conn_id="airflow_api",
        poll_interval=1,
        deferrable=True,
        apply=True,
    )
    check = FindConflictsOperator(
        task_id="check", tables="{{ params.table }}", fail_on="unresolved"
    )
    chain(find, settle, check)

with DAG(dag_id="life_find", schedule=None, params=TABLE):
    FindConflictsOperator(
        task_id="find", tables="{{ params.table }}", zero_rename_conn_id="{{ params.store }}"
    )

with DAG(dag_id="life_purge", schedule=None, params=TABLE):
    ALL: Any = {
        "tables": "{{ params.table }}",
        "foreign": True,
        "older_than": 0,
        "apply": True,
        "zero_rename_conn_id": "{{ params.store }}",
    }
    purge = PurgeStaleUploadsOperator(task_id="purge", **ALL)
    maintain = MaintainTablesOperator(task_id="maintain", **ALL)
    chain(purge, maintain)
