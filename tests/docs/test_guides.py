"""Examples that stand in guides alone: each makes the operator or sensor that it shows, so that
every argument is known and none is refused while the DAG file is parsed."""

from __future__ import annotations

import re

import pytest

import support.airflow  # noqa: F401 - Airflow's home comes before the first import of Airflow
from support.doc_examples import DOCS, blocks

GUIDES = DOCS / "guides"
#: Guides by the module whose operator they show. Those of Kubernetes and Databricks need providers
#: that are not here.
SHOWN = {
    "emr-steps": "operators.emr_steps",
    "emr-containers": "operators.emr_containers",
    "glue": "operators.glue",
    "s3a": "operators.s3a_maintenance",
    "sensor": "sensors.success_manifest",
    "two-producers": "operators.spark_submit",
    "undo-a-conflict": "operators.conflicts",
}


def test_no_guide_is_left_out() -> None:
    guides = {path.stem: blocks(path.read_text("utf-8")) for path in GUIDES.glob("*.md")}
    # Run by test_pages.py, test_tutorials.py and tests/spark/test_row_guides.py.
    elsewhere = {"recover", "my-records-are-gone", "cheap-reads", "what-is-stale", "fast-tier"}
    elsewhere |= {"encryption", "delta"}
    without = {"databricks", "upserts", "deletes", "read-yesterday", *elsewhere}
    assert {guide for guide, code in guides.items() if code} == SHOWN.keys() | without


@pytest.mark.airflow
@pytest.mark.parametrize("guide", SHOWN)
def test_an_example_is_a_task(guide: str) -> None:
    from importlib import import_module

    from airflow.providers.common.compat.sdk import DAG

    names = dict(vars(import_module(f"zero_rename.{SHOWN[guide]}")))
    for code in blocks((GUIDES / f"{guide}.md").read_text("utf-8")):
        with DAG("guide", schedule=None) as dag:
            exec(code, names)
        [task] = dag.tasks
        assert task.task_type in code


def test_each_example_dag_is_in_the_table_of_examples() -> None:
    page = (DOCS / "airflow" / "examples.md").read_text("utf-8")
    examples = {path.name for path in (DOCS.parent / "example_dags").glob("*.py")}
    assert sorted(re.findall(r"^\| \[(\w+\.py)\]", page, re.M)) == sorted(
        examples - {"__init__.py"}
    )
