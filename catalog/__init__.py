"""Tables in the catalogs of other engines: DDL, AWS Glue, and a Hive metastore through Spark."""

from .catalog_report import CatalogReport, CatalogUnsyncedError
from .ddl import ddl
from .described_table import DescribedTable, ReadBy, describe
from .engine_types import Engine
from .registration import sync_after_commit, sync_catalog, sync_settled

__all__ = [
    "CatalogReport",
    "CatalogUnsyncedError",
    "DescribedTable",
    "Engine",
    "ReadBy",
    "ddl",
    "describe",
    "sync_after_commit",
    "sync_catalog",
    "sync_settled",
]
