"""The PySpark data source ``zero_rename``, and functions that start Spark for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .changing.merging import merge
    from .changing.row_edits import delete, update
    from .reading.load import create_view, load
    from .registration import register
    from .save_frame import save
    from .startup.launch import jvm_options, worker_python
    from .startup.preflight import check_environment
    from .stream_sink import stream

__all__ = [
    "check_environment",
    "create_view",
    "delete",
    "jvm_options",
    "load",
    "merge",
    "register",
    "save",
    "stream",
    "update",
    "worker_python",
]

_MODULES = {
    "check_environment": "startup.preflight",
    "create_view": "reading.load",
    "delete": "changing.row_edits",
    "jvm_options": "startup.launch",
    "load": "reading.load",
    "merge": "changing.merging",
    "register": "registration",
    "save": "save_frame",
    "stream": "stream_sink",
    "update": "changing.row_edits",
    "worker_python": "startup.launch",
}


def __getattr__(name: str) -> Any:
    """Import a public function on first use: Spark's workers import this package without them."""
    from importlib import import_module

    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULES[name]}", __name__), name)
