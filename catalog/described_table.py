"""Description of a table for a catalog: its columns, partitions and places."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from ..committer.errors import InvalidInputError
from ..committer.format.job_spec import Readers
from ..committer.format.layout import UNPARTITIONED, TableRoot
from ..committer.format.schema.hive_paths import NULL, parse_partition, unescape
from ..committer.table import Table
from ..tables import DeltaTable
from .engine_types import Engine, engine_type

#: Who cannot read Parquet by symlink manifests: Hive's SymlinkTextInputFormat reads text, Spark
#: takes the manifests for Parquet, DuckDB knows none. Trino and Athena have readers of their own.
_LISTERS = (Engine.HIVE, Engine.SPARK, Engine.DUCKDB)


class ReadBy(StrEnum):
    """How an engine finds a table's files: by symlink manifests, by listing its folders, or by the
    log of a Delta table."""

    SYMLINKS = "symlinks"
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
        if self.read_by is ReadBy.SYMLINKS:
            return f"s3://{self.root.bucket}/{self.root.symlinks_prefix}"
        return f"{self.root.url}/"

    def partition_location(self, partition: str) -> str:
        return f"{self.location}{partition}/"

    def types(self, engine: Engine) -> list[tuple[str, str]]:
        """Names and types of the files' columns, as an engine calls them."""
        return [(f.name, engine_type(f.type, engine, f.name)) for f in self.columns]

    def partition_types(self, engine: Engine) -> list[tuple[str, str]]:
        return [(f.name, engine_type(f.type, engine, f.name)) for f in self.partition_by]


def describe(
    table: Table | DeltaTable,
    read_by: ReadBy | str | None = None,
    exclude: Collection[str] = (),
    engine: Engine | None = None,
) -> DescribedTable:
    """Describe a table as it is now.

    :param read_by: ``None``: a Delta table by its log; another one by symlink manifests where it
        keeps them and the engine can read Parquet by them.
    :param engine: who is to read it; ``None``: Athena, or whoever reads as it does.
    :param exclude: columns that the catalog is not told of.
    :raises InvalidInputError: by symlink manifests, and the table keeps none; or a Delta table in
        another way than by its log, or any other by a log.
    :raises TableNotFoundError: no table here.
    """
    if isinstance(table, DeltaTable):
        return _describe_delta(table, read_by, exclude)
    if read_by == ReadBy.LOG:
        raise InvalidInputError(
            "read_by=log is for Delta tables, and this is a table of directories. Nothing was "
            "registered.",
            table=table.root.url,
            remedy="Leave read_by out.",
        )
    keeps = table.keeps_symlinks()
    can = keeps and engine not in _LISTERS
    wanted = ReadBy(read_by or (ReadBy.SYMLINKS if can else ReadBy.FOLDERS))
    if wanted is ReadBy.SYMLINKS and not keeps:
        raise InvalidInputError(
            "The table keeps no symlink manifests that an engine could read it by.",
            table=table.root.url,
            remedy=f"Write them: zero-rename catalog manifests {table.root.url}",
        )
    if wanted is ReadBy.FOLDERS and table.readers is Readers.HEADS:
        raise InvalidInputError(
            "The table has readers=heads: an engine that lists its folders finds no file of it.",
            table=table.root.url,
            remedy="Athena, Trino, Presto and Redshift read it by symlink manifests: zero-rename "
            f"catalog manifests {table.root.url}. For engines that list, copy it: zero-rename copy "
            f"{table.root.url} NEW --readers listing",
        )
    snapshot = table.state()
    by = snapshot.partition_by
    names = set(snapshot.by_partition()) - {UNPARTITIONED}
    return DescribedTable(
        table.root,
        wanted,
        tuple(f for f in snapshot.schema if f.name not in by and f.name not in exclude),
        tuple(snapshot.schema.field(name) for name in by),
        tuple(sorted(names)),
    )


def _describe_delta(
    table: DeltaTable, read_by: ReadBy | str | None, exclude: Collection[str]
) -> DescribedTable:
    """Describe a Delta table: its engines find files and partitions by the log, so that a catalog
    is told the place and the columns alone."""
    if read_by not in (None, ReadBy.LOG):
        raise InvalidInputError(
            f"read_by={read_by!s} is given for a Delta table, whose folders hold files that no "
            "longer count, and no lists are kept. Nothing was registered.",
            table=table.root.url,
            remedy="Leave read_by out: engines read it by its log.",
        )
    columns = tuple(field for field in table.schema if field.name not in exclude)
    return DescribedTable(table.root, ReadBy.LOG, columns, (), ())


def partition_texts(partition: str) -> list[str]:
    """A partition's values as catalogs keep them: the directories' texts, unescaped; null stays
    ``__HIVE_DEFAULT_PARTITION__``."""
    return [raw if raw == NULL else unescape(raw) for _, raw in parse_partition(partition)]
