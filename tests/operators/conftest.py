"""Airflow's home has to be set before Airflow is imported."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.airflow import aws_connection, connection_variable, tables  # noqa: F401 - fixtures
from support.fake_spark import WRITES, FakeSpark


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSpark:
    """A stand-in for spark-submit that writes day 1, and a Spark connection to ``local``."""
    fake = FakeSpark(tmp_path)
    fake.runs(WRITES)
    for name in ("SPARK_HOME", "PYSPARK_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", f"{fake.bin}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv(*connection_variable("spark_default", conn_type="spark", host="local[2]"))
    return fake
