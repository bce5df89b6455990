"""The commit protocol on S3. Knows boto3 and pyarrow; knows neither Spark nor Airflow.

Everything in :mod:`.exports` is imported from here, on first use: that loads boto3 and pyarrow,
which processes that want an error or a layout only, Spark's short-lived workers among them, need
not wait for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .exports import *  # noqa: F403


def __getattr__(name: str) -> Any:
    # All that is exported begins with a capital; the rest are sub-modules, which then are looked
    # for without loading the others.
    if not name[0].isupper() and name != "__all__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    exports = import_module(".exports", __name__)
    if name == "__all__":
        return [exported for exported in vars(exports) if exported[0].isupper()]
    return getattr(exports, name)
