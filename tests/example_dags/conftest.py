"""Airflow's home has to be set before Airflow is imported."""

from support.airflow import aws_connection, connect, tables  # noqa: F401 - fixtures
from support.aws_services import aws  # noqa: F401 - a fixture
from support.http_services import service  # noqa: F401 - a fixture
from support.optional_providers import optional_providers  # noqa: F401 - a fixture
