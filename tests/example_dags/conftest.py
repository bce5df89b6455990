"""Airflow's home has to be set before Airflow is imported."""

from support.airflow import aws_connection, tables  # noqa: F401 - fixtures
from support.aws_services import aws, service  # noqa: F401 - fixtures
