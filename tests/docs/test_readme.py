"""What the README shows can be pasted."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

import support.airflow  # noqa: F401 - Airflow's home comes before the first import of Airflow
from support.airflow import Connect, Tables, run_task, task_context
from support.doc_examples import DOCS, blocks
from zero_rename import Table

README = (DOCS.parent / "README.md").read_text("utf-8")
DAG_FILE, MAINTENANCE, APPLICATION = blocks(README)


@pytest.mark.airflow
def test_the_dag_is_pasted_as_it_stands(tmp_path: Path) -> None:
    from airflow.dag_processing.dagbag import DagBag

    (tmp_path / "flights.py").write_text(DAG_FILE)
    bag = DagBag(str(tmp_path / "flights.py"))
    assert bag.import_errors == {}
    [dag] = bag.dags.values()
    assert dag.task_dict["committed"].upstream_task_ids == {"load"}


@pytest.mark.airflow
@pytest.mark.usefixtures("s3_server")
def test_the_maintenance_is_pasted_as_it_stands(
    tmp_path: Path, tables: Tables, connect: Connect
) -> None:
    """moto dates every upload to 2010."""
    from airflow.dag_processing.dagbag import DagBag

    connect("zero_rename_default", extra={"table_root": tables.url("")})
    tables.load(1)
    upload = {"Bucket": tables.bucket.name, "Key": "wh/flights/day=1/part-0.parquet"}
    tables.bucket.client.create_multipart_upload(**upload)
    (tmp_path / "maintenance.py").write_text(MAINTENANCE)
    [dag] = DagBag(str(tmp_path / "maintenance.py")).dags.values()
    task = dag.task_dict["maintain"]
    context = task_context(task)
    context["ti"].xcom_push = MagicMock()
    [done] = run_task(task, context)["tables"]
    assert done["uploads"] == {"aborted": 1}
    assert done["conflicts"] == {}
    assert tables.bucket.uploads() == []
    assert tables.table().scan().count() == 2


@pytest.mark.spark
def test_the_application_is_pasted_as_it_stands(spark: Any, s3_bucket: Any) -> None:
    frame = spark.sql(
        "select '2013-01-01' day, 70 dep_delay union all select '2013-01-01', 50 "
        "union all select '2012-12-31', 90"
    )
    names: dict[str, Any] = {"spark": spark, "frame": frame}
    url = f"s3://{s3_bucket.name}/flights"
    exec(APPLICATION.replace("s3://bucket/flights", url), names)
    assert Table(url).scan().count() == 3
    assert [row.asDict() for row in names["late"].collect()] == [
        {"day": "2013-01-01", "dep_delay": 70}
    ]
