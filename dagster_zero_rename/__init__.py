"""Integration with Dagster: assets of partitioned S3 tables, committed without renames.

It is a package of its own beside ``zero_rename``, named like Dagster's integrations: a folder
``dagster`` would shadow the library for every program that runs from the checkout's root.
"""

from .conflict_job import resolve_conflicts_job
from .io_manager import ZeroRenameIOManager
from .resource import ZeroRenameResource
from .spark.component import SparkTableComponent
from .spark.pipes import SparkPipesClient
from .table_asset import zero_rename_asset
from .upkeep_job import checkpoint_job, maintenance_job
from .watch.conflicts_check import conflicts_check
from .watch.freshness import freshness_check
from .watch.heads_sensor import heads_sensor
from .watch.manifest_check import manifest_check
from .watch.observable_table import observable_table
from .watch.recompute_sensor import recompute_sensor
from .watch.resolve_conflicts_sensor import resolve_conflicts_sensor

__all__ = [
    "SparkPipesClient",
    "SparkTableComponent",
    "ZeroRenameIOManager",
    "ZeroRenameResource",
    "checkpoint_job",
    "conflicts_check",
    "freshness_check",
    "heads_sensor",
    "maintenance_job",
    "manifest_check",
    "observable_table",
    "recompute_sensor",
    "resolve_conflicts_job",
    "resolve_conflicts_sensor",
    "zero_rename_asset",
]
