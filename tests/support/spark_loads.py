"""Loads by spark-submit, as tasks of Airflow."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from support.airflow import JOB_FILE, Tables, run_task, task_context
from support.fake_spark import FakeSpark
from zero_rename.operators.spark_submit import ZeroRenameSparkSubmitOperator


def operator(tables: Tables | None = None, **arguments: Any) -> ZeroRenameSparkSubmitOperator:
    given: dict[str, Any] = {
        "task_id": "load",
        "application": str(JOB_FILE),
        "table": tables.url() if tables else "s3://bucket/flights",
        "partition": "*",
    }
    return ZeroRenameSparkSubmitOperator(**given | arguments)


def run(task: ZeroRenameSparkSubmitOperator, **context: Any) -> dict[str, Any]:
    return run_task(task, task_context(task, **context))


def refused(spark: FakeSpark, message: str, task: Any, **context: Any) -> str:
    """A load that fails for good before Spark is started: what it says."""
    with pytest.raises(AirflowFailException, match=message) as caught:
        run(task, **context)
    assert spark.calls() == []
    return str(caught.value)
