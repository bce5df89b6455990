"""Airflow plugin: macros for templates, a mapper of partition keys, and a page about tables."""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from airflow.configuration import conf
from airflow.plugins_manager import AirflowPlugin

from ..orchestration.runs.task_run import idempotency_key_of
from .page.addresses import MOUNT, ROUTE

try:
    from .assets.partition_mapper import PartitionPathMapper
except ImportError:  # before Airflow 3.2
    _MAPPERS = []
else:
    _MAPPERS = [PartitionPathMapper]

#: The path below which Airflow itself is mounted.
_ROOT_PATH = urlsplit(conf.get("api", "base_url", fallback="")).path.rstrip("/")


class PageApp:
    """The page as an ASGI application, which is made when its first request comes.

    Airflow loads plugins in every process, but only one serves pages. So no other process imports
    FastAPI.
    """

    @cached_property
    def _app(self) -> Any:
        return import_module(".page.routes", __package__).page_routes()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._app(scope, receive, send)


class ZeroRenamePlugin(AirflowPlugin):
    """Plugin that Airflow finds by the entry point ``airflow.plugins``.

    Templates get ``macros.zero_rename.idempotency_key_of(dag_id, run_id, task_id)``. Airflow 3's
    API server serves the page; Airflow 2 ignores ``fastapi_apps`` and ``external_views``, which
    describe it.
    """

    name = "zero_rename"
    macros = [idempotency_key_of]  # noqa: RUF012 - the base class declares it so
    partition_mappers = _MAPPERS
    fastapi_apps = [  # noqa: RUF012
        {"app": PageApp(), "url_prefix": MOUNT, "name": "Zero Rename"}
    ]
    external_views = [  # noqa: RUF012
        {
            "name": "Zero Rename",
            "href": f"{_ROOT_PATH}{MOUNT}/",
            "destination": "nav",
            "category": "browse",
            "url_route": ROUTE,
            "icon": f"{_ROOT_PATH}{MOUNT}/files/icon.svg",
            "icon_dark_mode": f"{_ROOT_PATH}{MOUNT}/files/icon-dark.svg",
        }
    ]
