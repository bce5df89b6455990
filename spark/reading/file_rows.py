"""Files of one state as a data frame of this package's own reader, which runs in Spark's tasks.

It uses ``mapInArrow``, which needs no registration and works on Spark Connect and before Spark 4.
The driver chooses the state when it makes the frame. The Python data source instead chooses it when
the first query is planned.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from ...committer.commit.snapshot import Snapshot
from ...committer.errors import SnapshotGoneError
from ...committer.format.parquet.reader import read_batches
from ...committer.format.parquet.row_filter import RowFilter
from ...committer.format.records.data_file import DataFile
from ...committer.scan.table_scan import begun_ahead
from ...committer.store.driver import Driver
from ...committer.table import Table
from ..types import arrow_schema, for_spark, spark_schema
from ..worker import readable_errors
from .char_columns import padded
from .table_reads import TableReads

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

#: Cost of opening a file, in bytes that could be read in this time (like Spark's
#: ``spark.sql.files.openCostInBytes``).
_OPEN_COST = 4 * 1024 * 1024
#: Bytes up to which one task reads files together, approximately.
TARGET = 128 * 1024 * 1024
#: Number of files that a task reads at once, if none is larger than this size in bytes.
_AHEAD, _SMALL = 8, 4 * 1024 * 1024
#: Length of the longest range that stands for a table's size (some 500 MB). It costs 0.1 s.
_MOST_NUMBERS = 2**26
ANEW = "Load the table anew and run the query on that: a data frame keeps the state it was made of."


def pack(files: Sequence[DataFile], target: int) -> list[list[DataFile]]:
    """Group files in their order, into groups of up to about ``target`` bytes."""
    groups: list[list[DataFile]] = []
    filled = 0
    for file in files:
        cost = file.size + _OPEN_COST
        if not groups or filled + cost > target:
            groups.append([])
            filled = 0
        groups[-1].append(file)
        filled += cost
    return groups


@dataclass(frozen=True)
class FileRows:
    """Reader of the rows of one table's files, for Spark's tasks.

    :param schema: the table's columns.
    :param by: its partition columns.
    :param columns: the columns that Spark expects, in Arrow's types.
    :param row_filter: selects rows; ``None`` for all.
    """

    root: str
    schema: pa.Schema
    by: tuple[str, ...]
    columns: pa.Schema
    row_filter: RowFilter | None = None

    def read(self, files: Sequence[DataFile]) -> Iterator[pa.RecordBatch]:
        """Read the rows of files, one file after the other. Small files are fetched ahead.

        :raises SnapshotGoneError: a later job has removed one of the files.
        """
        small = all(file.size <= _SMALL for file in files)
        try:
            for batch in begun_ahead(map(self._batches, files), _AHEAD if small else 1):
                yield for_spark(batch, self.columns)
        except SnapshotGoneError as error:
            error.table = error.table or self.root
            error.remedy = ANEW
            # If tasks run on the driver's host, as in local mode, the application notes this.
            TableReads.here(self.root).ended()
            raise

    def _batches(self, file: DataFile) -> Iterator[pa.RecordBatch]:
        names = self.columns.names
        return read_batches(
            self._driver, self.schema, self.by, file, names, row_filter=self.row_filter
        )

    @cached_property
    def _driver(self) -> Driver:
        return Table(self.root).driver

    def __call__(self, groups: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the rows of groups of files. This is the function for ``mapInArrow``."""
        with readable_errors():
            for batch in groups:
                for packed in batch.column("files").to_pylist():
                    yield from self.read(pickle.loads(packed))


def file_rows(
    session: SparkSession, schema: StructType, snapshot: Snapshot, row_filter: RowFilter | None
) -> DataFrame:
    """Make a frame of the rows of a state, with all columns of ``schema``.

    Each group of files is read by one task.

    :param row_filter: selects rows; ``None`` for all.
    """
    if not schema.fields:  # Spark counts no rows of a batch without columns.
        names = (*snapshot.partition_by, *snapshot.schema.names)
        schema = spark_schema(snapshot.schema, names[:1])
    groups = pack(snapshot.files, TARGET)
    columns = arrow_schema(schema)
    rows = FileRows(snapshot.root.url, snapshot.schema, snapshot.partition_by, columns, row_filter)
    packed = [(number, pickle.dumps(group)) for number, group in enumerate(groups)]
    named = session.createDataFrame(packed, "number int, files binary")
    named = named.repartitionByRange(max(1, len(groups)), "number")
    frame = named.union(_weight(session, snapshot)).mapInArrow(rows, schema)
    return padded(frame, schema)


def _weight(session: SparkSession, snapshot: Snapshot) -> DataFrame:
    """Make a frame without rows that Spark takes for about as large as the files.

    Spark assumes that the output of ``mapInArrow`` is as large as its input, row for row: here, the
    files' names. So every table would look small enough for a broadcast join, which sends it to all
    executors through the driver's memory (``autoBroadcastJoinThreshold``). Spark estimates the size
    of a range by its length, 8 bytes a number, and by the columns that are made of it.
    """
    size = sum(file.size for file in snapshot.files)
    numbers = min(size // (4 * (1 + len(snapshot.schema))), _MOST_NUMBERS)
    none = session.range(0, numbers, 1, 1).where("spark_partition_id() < 0")  # is never folded
    return none.selectExpr("int(id) number", "cast(null as binary) files")
