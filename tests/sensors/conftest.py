"""Airflow's home has to be set before Airflow is imported."""

from support import airflow as _airflow  # noqa: F401
