"""Daily maintenance of all tables of a connection: recover, purge, verify.

For every table below the connection's ``table_root``, interrupted jobs are finished or undone,
orphaned uploads are aborted, and the files that the heads name are compared with the objects in
the store. The summary is in the task's log, in its XCom, and as Markdown in the XCom ``markdown``.
The task fails if a finding needs action, and names the finding. The next run tries again what
failures of the store prevented.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.providers.common.compat.sdk import DAG, Param

from zero_rename.operators.maintenance import MaintainTablesOperator

CONNECTION: Any = {
    "connection": Param(
        "zero_rename_default", type="string", description="With a table root; all below it"
    )
}

with DAG(
    dag_id="zero_rename_maintenance",
    schedule="@daily",
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 1, "retry_delay": timedelta(minutes=5)},
    params=CONNECTION,
    tags=["example", "zero_rename"],
    doc_md=__doc__,
):
    MaintainTablesOperator(
        task_id="maintain", zero_rename_conn_id="{{ params.connection }}", apply=True
    )
