"""What the README shows can be pasted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import support.airflow  # noqa: F401 - Airflow's home comes before the first import of Airflow
from support.doc_examples import DOCS, blocks
from zero_rename import Table

README = (DOCS.parent / "README.md").read_text("utf-8")
DAG_FILE, APPLICATION = blocks(README)


@pytest.mark.airflow
def test_the_dag_is_pasted_as_it_stands(tmp_path: Path) -> None:
    from airflow.dag_processing.dagbag import DagBag

    (tmp_path / "flights.py").write_text(DAG_FILE)
    bag = DagBag(str(tmp_path / "flights.py"))
    assert bag.import_errors == {}
    [dag] = bag.dags.values()
    assert dag.task_dict["committed"].upstream_task_ids == {"load"}


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
