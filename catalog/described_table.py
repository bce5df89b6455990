"""Description of a table for a catalog: its columns, partitions and places."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from ..committer.format.layout import UNPARTITIONED, TableRoot
from ..committer.format.schema.hive_paths import NULL, parse_partition, unescape
from ..committer.table import Table
from ..tables import DeltaTable
from .engine_types import Engine, engine_type


class ReadBy(StrEnum):
    """How an engine finds a table's files: by listing its folders, or by the log of a Delta
    table."""

    FOLDERS = "folders"
    LOG = "log"


@dataclass(frozen=True)
class DescribedTable:
    """What a catalog is told of a table.

    :param columns: names and types, those of the files; ``partition_by``: those of the directories,
        which a Delta table has not.
    :param partitions: the partitions that hold files, as directories; none of an unpartitioned
        table, or of a Delta table, whose log tells them.
    """

    root: TableRoot
    read_by: ReadBy
    columns: tuple[pa.Field, ...]
    partition_by: tuple[pa.Field, ...]
    partitions: tuple[str, ...]

    @property
    def location(self) -> str:
        """Where the table lies, ending with a slash."""
        return f"{self.root.url}/"

    def partition_location(self, partition: str) -> str:
        return f"{self.location}{partition}/"

    def types(self, engine: Engine) -> list[tuple[str, str]]:
        """Names and types of the files' columns, as an engine calls them."""
        return [(f.name, engine_type(f.type, engine, f.name)) for f in self.columns]

    def partition_types(self, engine: Engine) -> list[tuple[str, str]]:
        return [(f.name, engine_type(f.type, engine, f.name)) for f in self.partition_by]


def describe(table: Table | DeltaTable, exclude: Collection[str] = ()) -> DescribedTable:
    """Describe a table as it is now: its files are found by listing its folders, or by the log of a
    Delta table.

    :param exclude: columns that the catalog is not told of.
    :raises TableNotFoundError: no table here.
    """
    if isinstance(table, DeltaTable):
        # Its log tells the engines files and partitions.
        columns = tuple(field for field in table.schema if field.name not in exclude)
        return DescribedTable(table.root, ReadBy.LOG, columns, (), ())
    snapshot = table.state()
    by = snapshot.partition_by
    names = set(snapshot.by_partition()) - {UNPARTITIONED}
    return DescribedTable(
        table.root,
        ReadBy.FOLDERS,
        tuple(f for f in snapshot.schema if f.name not in by and f.name not in exclude),
        tuple(snapshot.schema.field(name) for name in by),
        tuple(sorted(names)),
    )


def partition_texts(partition: str) -> list[str]:
    """A partition's values as catalogs keep them: the directories' texts, unescaped; null stays
    ``__HIVE_DEFAULT_PARTITION__``."""
    return [raw if raw == NULL else unescape(raw) for _, raw in parse_partition(partition)]
