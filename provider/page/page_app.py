"""Application of the page, made when the first request for it comes.

Airflow loads plugins in every process, and one alone serves pages: none other imports FastAPI.
"""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from typing import Any

from .addresses import MOUNT, ROUTE


class PageApp:
    """The page as an ASGI application."""

    @cached_property
    def _app(self) -> Any:
        return import_module(".routes", __package__).page_routes()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._app(scope, receive, send)


def mounted_app() -> dict[str, Any]:
    """What a plugin says of it under ``fastapi_apps``."""
    return {"app": PageApp(), "url_prefix": MOUNT, "name": "Zero Rename"}


def navigation_entry(root_path: str) -> dict[str, Any]:
    """What a plugin says of it under ``external_views``.

    :param root_path: what Airflow itself is mounted below; ``""`` for nothing.
    """
    return {
        "name": "Zero Rename",
        "href": f"{root_path}{MOUNT}/",
        "destination": "nav",
        "category": "browse",
        "url_route": ROUTE,
        "icon": f"{root_path}{MOUNT}/files/icon.svg",
        "icon_dark_mode": f"{root_path}{MOUNT}/files/icon-dark.svg",
    }
