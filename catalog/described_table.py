"""Description of a table for a catalog: its columns, partitions and locations."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from ..committer.errors import InvalidInputError, first_few
from ..committer.format.layout import UNPARTITIONED, TableRoot
from ..committer.format.schema.hive_paths import NULL, parse_partition, unescape
from ..committer.table import Table
from ..tables import DeltaTable
from .engine_types import Engine, engine_type


class ReadBy(StrEnum):
    """The source from which an engine learns a table's files: a listing of its directories, or the
    log of a Delta table."""

    FOLDERS = "folders"
    LOG = "log"


@dataclass(frozen=True)
class DescribedTable:
    """A table's columns, partitions and location, as a catalog gets them.

    :param columns: names and types of the columns in the files.
    :param partition_by: names and types of the columns in the directories' names; empty for a Delta
        table.
    :param partitions: the directories of the partitions that hold files; empty for an unpartitioned
        table, and for a Delta table, whose partitions are in its log.
    :param left_out: names of columns of the table that the catalog does not get.
    """

    root: TableRoot
    read_by: ReadBy
    columns: tuple[pa.Field, ...]
    partition_by: tuple[pa.Field, ...]
    partitions: tuple[str, ...]
    left_out: frozenset[str] = frozenset()

    @property
    def location(self) -> str:
        """The table's URL, with a slash at its end."""
        return f"{self.root.url}/"

    def partition_location(self, partition: str) -> str:
        return f"{self.location}{partition}/"

    def types(self, engine: Engine) -> list[tuple[str, str]]:
        """Return the names of the files' columns, with an engine's names of their types."""
        return [(f.name, engine_type(f.type, engine, f.name)) for f in self.columns]

    def partition_types(self, engine: Engine) -> list[tuple[str, str]]:
        return [(f.name, engine_type(f.type, engine, f.name)) for f in self.partition_by]


def describe(table: Table | DeltaTable, exclude: Iterable[str] = ()) -> DescribedTable:
    """Describe a table in its present state, for a catalog.

    :param exclude: columns that the catalog does not get.
    :raises TableNotFoundError: there is no table.
    :raises InvalidInputError: the table has no such column; or it is one by which directories are
        partitioned.
    """
    left_out = names_of(exclude)
    if isinstance(table, DeltaTable):
        # The engines find its files and partitions in its log.
        schema = table.schema
        _check_left_out(table.root, left_out, schema.names)
        columns = tuple(field for field in schema if field.name not in left_out)
        return DescribedTable(table.root, ReadBy.LOG, columns, (), ())
    snapshot = table.state()
    by = snapshot.partition_by
    _check_left_out(table.root, left_out, [it for it in snapshot.schema.names if it not in by])
    names = set(snapshot.by_partition()) - {UNPARTITIONED}
    return DescribedTable(
        table.root,
        ReadBy.FOLDERS,
        tuple(f for f in snapshot.schema if f.name not in by and f.name not in left_out),
        tuple(snapshot.schema.field(name) for name in by),
        tuple(sorted(names)),
        left_out,
    )


def names_of(exclude: Iterable[str]) -> frozenset[str]:
    """Return the names of columns to leave out; a text is one name."""
    return frozenset((exclude,) if isinstance(exclude, str) else exclude)


def _check_left_out(root: TableRoot, left_out: Collection[str], columns: Collection[str]) -> None:
    """Refuse to leave out a column that is not among some: engines would see what was meant.

    :raises InvalidInputError: it is not among them.
    """
    if unknown := sorted(set(left_out).difference(columns)):
        raise InvalidInputError(
            f"exclude names {first_few(unknown)}, and the table has no such column that could be "
            "left out. Nothing was registered.",
            table=root.url,
            remedy=f"Name some of {first_few(list(columns))}, as they are spelt there. Columns "
            "that directories are partitioned by cannot be left out.",
        )


def partition_texts(partition: str) -> list[str]:
    """Return a partition's values as catalogs keep them: the directories' texts, unescaped. Null
    stays ``__HIVE_DEFAULT_PARTITION__``."""
    return [raw if raw == NULL else unescape(raw) for _, raw in parse_partition(partition)]
