"""Dagster's side: assets of partitioned S3 tables, committed without renames.

A package of its own name beside ``zero_rename``, as Dagster's integrations are named: a folder
``dagster`` would shadow the library for whatever runs from the checkout's root.
"""

from .io_manager import ZeroRenameIOManager
from .resource import ZeroRenameResource

__all__ = ["ZeroRenameIOManager", "ZeroRenameResource"]
