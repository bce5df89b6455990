"""Reader of the data source: one state of the table, fixed at planning, as Arrow batches.

The state is a list of files (:meth:`zero_rename.committer.Table.snapshot`). If a replace removes
one of them while the scan runs, the scan fails with ``SnapshotGoneError``; it never returns fewer
rows. Spark does not say to Python data sources which columns a query needs, so all are read unless
the option ``columns`` names some. Only the options ``partitions`` and ``where`` prune partitions,
not pushed filters: if Spark 4.3 pushes filters to Python data sources, a query that pushes none may
run with the reader of the query before it on the same data frame, pruned by *its* filters
(SPARK-58551). So a reader cannot know whose filters it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ...committer.errors import InvalidInputError, TableMismatchError
from ...committer.format.parquet.row_filter import RowFilter
from ...committer.format.records.data_file import DataFile
from ...committer.format.schema.compatibility import find_column
from ...committer.table import Table
from ...tables.table_at_root import TableAtRoot
from ..options import ReaderOptions, read_reader_options
from ..startup.preflight import check_data_source_versions
from ..types import arrow_schema, spark_schema
from ..worker import readable_errors
from .file_rows import FileRows, pack
from .predicate import read_predicate
from .table_reads import TableReads, plan_on

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_LOAD = (
    'Read with spark.read.format("zero_rename").load("s3://bucket/table"). Tables of Spark\'s '
    "catalog (saveAsTable, writeTo, CREATE TABLE) cannot be read by their names: Spark hands a "
    "Python data source nothing that the catalog knows. Of one that was written with a path, the "
    "rows are there. A name for SQL is made by CREATE TEMPORARY VIEW name USING zero_rename "
    "OPTIONS (path 's3://bucket/table')."
)


@dataclass(frozen=True)
class KnownTable:
    """A table with the options of a reader, before any file is listed.

    :param schema: the table's, all columns.
    :param spark_schema: the columns to read, in Spark's types.
    """

    options: ReaderOptions
    root: str
    schema: pa.Schema
    partition_by: tuple[str, ...]
    spark_schema: StructType


def known_table(given: Mapping[str, str]) -> KnownTable:
    """Read the options and the table's record.

    :raises InvalidInputError: an invalid option.
    :raises TableNotFoundError: there is no table.
    """
    check_data_source_versions()
    if {"owner", "provider"} <= given.keys():
        raise InvalidInputError(
            "CREATE TABLE … USING zero_rename was refused: Spark could not read the table.",
            remedy=_LOAD,
        )
    options = read_reader_options(given)
    if options.path is None:
        raise InvalidInputError("The read reached zero_rename without a table root.", remedy=_LOAD)
    table = Table(options.path)
    TableReads.here(table.root.url).loaded()
    schema = table.schema
    named = options.columns or schema.names
    columns = spark_schema(schema, [find_column(name, schema.names) or name for name in named])
    return KnownTable(options, table.root.url, schema, table.partition_by, columns)


class FileGroup(InputPartition):
    """Files that one Spark task reads, one after the other."""

    def __init__(self, files: Sequence[DataFile]) -> None:
        super().__init__(tuple(files))


class TableReader(DataSourceReader):
    """Reader of one state of a table.

    :param schema: the columns that Spark expects: the table's, or those that the user gave to
        ``spark.read.schema(…)``.
    """

    def __init__(self, known: KnownTable, schema: StructType) -> None:
        self._known = known
        self._rows = FileRows(
            known.root,
            known.schema,
            known.partition_by,
            arrow_schema(_checked(known, schema)),
            _row_filter(known.options.where, known.schema),
        )

    def partitions(self) -> list[InputPartition]:
        """Fix the state, and group its files into Spark's partitions.

        For an empty list Spark calls :meth:`read` once, with a partition of its own.
        """
        known, asked = self._known, self._known.options
        with readable_errors():
            state = plan_on(
                TableAtRoot(Table(known.root), known.schema, known.partition_by),
                TableReads.here(known.root),
                asked.partitions,
                asked.where,
            )
            return [FileGroup(group) for group in pack(state.files, asked.target_partition_bytes)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the files of one group. Runs in a task."""
        with readable_errors():
            if isinstance(partition, FileGroup):
                yield from self._rows.read(partition.value)


def _row_filter(where: str | None, schema: pa.Schema) -> RowFilter | None:
    """Make the filter for the option ``where``.

    This reader itself applies the filter, so a text is refused unless it is certain which rows
    Spark would select by it.

    :raises InvalidInputError: it is not certain.
    """
    if where is None:
        return None
    found = read_predicate(where, schema)
    if found.expression is None or found.unsure is not None:
        raise InvalidInputError(
            f"The option where={where[:200]!r} cannot be held to select what Spark would: "
            f"{found.unsure}; nothing was read.",
            remedy="Read by zero_rename.spark.load(spark, table, where=…), where Spark itself "
            "decides; or compare columns with literals of their own kind (day >= '2013-01-01', "
            "times with their zone), and leave the rest to .where() behind load().",
        )
    return RowFilter([found.expression], schema)


def _checked(known: KnownTable, schema: StructType) -> StructType:
    """Return the columns that Spark expects, if they are the table's own.

    :raises TableMismatchError: they are not.
    """
    own = {field.name: field.dataType for field in known.spark_schema.fields}
    for field in schema.fields:
        if field.name not in own or field.dataType.jsonValue() != own[field.name].jsonValue():
            there = f"there {own[field.name].simpleString()}" if field.name in own else "missing"
            raise TableMismatchError(
                f"The column {field.name!r} is {field.dataType.simpleString()} in the schema "
                f"given to spark.read, and {there} in the table.",
                table=known.root,
                remedy="Leave .schema(…) out, and select and cast the columns after load().",
            )
    return schema
