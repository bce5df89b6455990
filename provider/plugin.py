"""The Airflow plugin: macros for templates, a mapper of partition keys, and a page on tables."""

from __future__ import annotations

from urllib.parse import urlsplit

from airflow.configuration import conf
from airflow.plugins_manager import AirflowPlugin

from ..orchestration.runs.task_run import once_key
from .page.page_app import mounted_app, navigation_entry

try:
    from .assets.partition_mapper import PartitionPathMapper
except ImportError:  # before Airflow 3.2
    _MAPPERS = []
else:
    _MAPPERS = [PartitionPathMapper]

_ROOT_PATH = urlsplit(conf.get("api", "base_url", fallback="")).path.rstrip("/")


class ZeroRenamePlugin(AirflowPlugin):
    """Registered through the ``airflow.plugins`` entry point. Templates then have
    ``macros.zero_rename.once_key(dag_id, run_id, task_id)``.

    The page is served by Airflow 3's API server; Airflow 2 heeds none of the two that describe it.
    """

    name = "zero_rename"
    macros = [once_key]  # noqa: RUF012 - the base class declares it so
    partition_mappers = _MAPPERS
    fastapi_apps = [mounted_app()]  # noqa: RUF012
    external_views = [navigation_entry(_ROOT_PATH)]  # noqa: RUF012
