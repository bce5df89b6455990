"""Commit protocol on S3. Knows boto3 and pyarrow; knows neither Spark nor Airflow.

Everything in :mod:`.exports` is imported from here, on first use. That import loads boto3 and
pyarrow. Processes that need only an error or a layout, such as Spark's short-lived workers, need
not wait for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .exports import *  # noqa: F403


def __getattr__(name: str) -> Any:
    # All exported names begin with a capital. Other names are sub-modules, which Python then finds
    # without loading the exports.
    if not name[0].isupper() and name != "__all__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    exports = import_module(".exports", __name__)
    if name == "__all__":
        return [exported for exported in vars(exports) if exported[0].isupper()]
    return getattr(exports, name)
