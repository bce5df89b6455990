"""Fixtures of the pages that run tasks of Airflow."""

from support.airflow import aws_connection, connect, tables  # noqa: F401 - fixtures
