"""Load data into S3 tables from Airflow, Dagster and PySpark, committed without renames.

``Table`` and what belongs to it are found here; they are imported on first use, since Airflow
imports this package just to read the provider's metadata.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .committer import (
        Aborted,
        Committed,
        DataFile,
        FileOptions,
        JobSpec,
        Mode,
        Snapshot,
        SuccessMarker,
        Table,
        WriteJob,
        ZeroRenameError,
    )

__version__ = "0.1.0"

__all__ = [
    "Aborted",
    "Committed",
    "DataFile",
    "FileOptions",
    "JobSpec",
    "Mode",
    "Snapshot",
    "SuccessMarker",
    "Table",
    "WriteJob",
    "ZeroRenameError",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from . import committer

        return getattr(committer, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
