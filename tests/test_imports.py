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
#: What DAG files and the scheduler import.
OURS = (
    "zero_rename.operators.spark_submit",
    "zero_rename.operators.spark_function",
    "zero_rename.operators.maintenance",
    "zero_rename.operators.s3a_maintenance",
    "zero_rename.operators.recompute",
    "zero_rename.sensors.success_manifest",
    "zero_rename.provider.plugin",
    "zero_rename.provider.links",
)
_LOOK = """
import importlib, json, sys
for name in sys.argv[1:]:
    before = set(sys.modules)
    importlib.import_module(name)
    print(json.dumps(sorted({name.split(".")[0] for name in set(sys.modules) - before})))
"""


def loaded_by(*modules: str) -> dict[str, set[str]]:
    """The libraries that each import loads, after those before it, in a process of their own."""
    done = subprocess.run(
        [sys.executable, "-c", _LOOK, *modules], capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()[-len(modules) :]
    return {name: set(json.loads(line)) for name, line in zip(modules, lines, strict=True)}


def test_a_heavy_import_would_be_seen() -> None:
    table = "zero_rename.committer.table"
    assert loaded_by("zero_rename", table)[table] >= {"botocore", "pyarrow"}


def test_the_command_line_loads_no_library_that_few_commands_need() -> None:
    """Each command is a process of its own. pyarrow.dataset would load pandas."""
    (loaded,) = loaded_by("zero_rename.cli").values()
    assert loaded >= {"botocore", "pyarrow", "typer"}
    assert not loaded & {"boto3", "s3transfer", "pandas", "duckdb", "pyspark", "sqlglot"}


def test_the_package_imports_nothing_heavy() -> None:
    assert not loaded_by("zero_rename")["zero_rename"] & HEAVY


@pytest.mark.airflow
def test_dag_files_import_nothing_heavy_beyond_the_stock_operator() -> None:
    loaded = loaded_by(STOCK, *OURS)
    assert not set().union(*(loaded[name] for name in OURS)) & HEAVY


@pytest.mark.airflow
def test_a_load_by_a_service_imports_nothing_heavy_beyond_the_stock_operators() -> None:
    ours = [f"zero_rename.operators.{name}" for name in ("emr_serverless", "emr_steps", "glue")]
    loaded = loaded_by(STOCK_EMR, STOCK_GLUE, *ours)
    assert not set().union(*(loaded[name] for name in ours)) & HEAVY
