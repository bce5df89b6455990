"""The Airflow plugin: macros for templates, and a mapper of partition keys."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from ..orchestration.runs.task_run import once_key

try:
    from .assets.partition_mapper import PartitionPathMapper
except ImportError:  # before Airflow 3.2
    _MAPPERS = []
else:
    _MAPPERS = [PartitionPathMapper]


class ZeroRenamePlugin(AirflowPlugin):
    """Registered through the ``airflow.plugins`` entry point. Templates then have
    ``macros.zero_rename.once_key(dag_id, run_id, task_id)``."""

    name = "zero_rename"
    macros = [once_key]  # noqa: RUF012 - the base class declares it so
    partition_mappers = _MAPPERS
