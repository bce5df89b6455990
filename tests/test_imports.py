"""What importing costs: Airflow parses DAG files again and again, in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

#: Libraries that take long to load, and that no DAG file needs before a task runs.
HEAVY = {"boto3", "botocore", "pyarrow", "numpy", "pyspark", "py4j", "typer", "duckdb", "pandas"}
STOCK = "airflow.providers.apache.spark.operators.spark_submit"
STOCK_EMR = "airflow.providers.amazon.aws.operators.emr"
STOCK_GLUE = "airflow.providers.amazon.aws.operators.glue"
_LOOK = """
import importlib, json, sys
before = None
for name in sys.argv[1:]:
    if before is None and name.startswith("zero_rename"):
        before = set(sys.modules)
    importlib.import_module(name)
print(json.dumps(sorted({name.split(".")[0] for name in set(sys.modules) - before})))
"""


def loaded_by(*modules: str) -> set[str]:
    """The libraries that our modules load, after those of others."""
    done = subprocess.run(
        [sys.executable, "-c", _LOOK, *modules], capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_a_heavy_import_would_be_seen() -> None:
    assert loaded_by("zero_rename", "zero_rename.committer.table") >= {"boto3", "pyarrow"}


def test_the_package_imports_nothing_heavy() -> None:
    assert not loaded_by("zero_rename") & HEAVY


@pytest.mark.airflow
def test_a_load_by_a_service_imports_nothing_heavy_beyond_the_stock_operators() -> None:
    ours = [f"zero_rename.operators.{name}" for name in ("emr_serverless", "emr_steps", "glue")]
    assert not loaded_by(STOCK_EMR, STOCK_GLUE, *ours) & HEAVY


@pytest.mark.airflow
@pytest.mark.parametrize(
    "module",
    [
        "zero_rename.operators.spark_function",
        "zero_rename.operators.maintenance",
        "zero_rename.operators.s3a_maintenance",
        "zero_rename.sensors.success_manifest",
        "zero_rename.provider.plugin",
        "zero_rename.provider.links",
    ],
)
def test_a_dag_file_imports_nothing_heavy_beyond_the_stock_operator(module: str) -> None:
    assert not loaded_by(STOCK, module) & HEAVY
