"""Airflow's home has to be set before Airflow is imported."""

import pytest

from support.airflow import aws_connection, connect, tables, tell_no_caller  # noqa: F401 - fixtures
from support.optional_providers import optional_providers  # noqa: F401 - a fixture


@pytest.fixture(autouse=True)
def quick_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    tell_no_caller(monkeypatch)
