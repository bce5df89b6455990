"""Airflow's home has to be set before Airflow is imported."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.airflow import Connect, aws_connection, connect, tables  # noqa: F401 - fixtures
from support.airflow_runs import dag_of  # noqa: F401 - a fixture
from support.aws_services import aws  # noqa: F401 - a fixture
from support.fake_spark import FakeSpark, installed
from support.http_services import service  # noqa: F401 - a fixture
from support.memory_s3 import is_wanted
from support.optional_providers import optional_providers  # noqa: F401 - a fixture


@pytest.fixture
def spark(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    connect: Connect,  # noqa: F811 - the fixture
) -> FakeSpark:
    """A stand-in for spark-submit that writes day 1, and a Spark connection to ``local``."""
    connect("spark_default", "spark", host="local[2]")
    return installed(tmp_path, monkeypatch, here=is_wanted(request))
