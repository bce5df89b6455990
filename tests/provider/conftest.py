"""Airflow's home has to be set before Airflow is imported."""

from support.airflow import aws_connection, connect, tables  # noqa: F401 - fixtures
from support.optional_providers import optional_providers  # noqa: F401 - a fixture
