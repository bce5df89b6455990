"""Tasks that load a day by a committer of Hadoop's, with an application that stands for Spark's."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from support.airflow import JOB_FILE, Tables, run_task, task_context
from support.memory_s3 import let_pass
from support.s3a_stand_in import APPLICATION
from zero_rename.operators.spark_submit import ZeroRenameSparkSubmitOperator

EARLIER, LATER = (datetime(2013, month, 1, tzinfo=UTC) for month in (1, 3))
#: Another run loads the day while the application is at work, and ends first.
MEETS = (
    """
import os
from zero_rename.committer import Owner, Table
from zero_rename.s3a.runs import ledger
from zero_rename.s3a.runs.try_record import COMMITTED, TryRecord, run_uuid

table = Table(os.environ["ZERO_RENAME_TABLE"])
other = TryRecord(
    run_uuid(), "other", Owner("hourly", "manual", "load"), "magic", "replace", ("day=1",)
)
other = table.run(ledger.open_try(table.root, other))
report = {"job": other.uuid, "committer": "magic", "decided_at": other.opened_at}
report["partitions"] = [{"partition": "day=1", "files": 0, "rows": 0, "bytes": 0}]
table.run(ledger.close_try(table.root, other, state=COMMITTED, report=report))
"""
    + APPLICATION
)


def operator(tables: Tables, **arguments: Any) -> ZeroRenameSparkSubmitOperator:
    given: dict[str, Any] = {
        "task_id": "load",
        "application": str(JOB_FILE),
        "table": tables.url(),
        "partition": "day=1",
        "mode": "overwrite",
        "committer": "magic",
    }
    return ZeroRenameSparkSubmitOperator(**given | arguments)


def run_in_its_own_second(task: Any, **context: Any) -> dict[str, Any]:
    """Run a task in another second than the one before it: the store's times, by which loads are
    ordered, have whole seconds."""
    let_pass(1)
    return run(task, **context)


def run(task: Any, **context: Any) -> dict[str, Any]:
    return run_task(task, task_context(task, **context))
