"""Files of one state as a data frame of this package's own reader, which runs in Spark's tasks.

By ``mapInArrow``: that needs no registration, works on Spark Connect and before Spark 4, and the
state is the one that was planned on the driver, where the Python data source takes its own when the
first query is planned.
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

#: What opening a file costs, in bytes that could be read meanwhile (as Spark's
#: ``spark.sql.files.openCostInBytes``).
_OPEN_COST = 4 * 1024 * 1024
#: Files are read together by one task up to about so many bytes.
TARGET = 128 * 1024 * 1024
#: So many files are under way at once, if none is larger than that.
_AHEAD, _SMALL = 8, 4 * 1024 * 1024
#: The longest range that stands for a table's size, passed over in 0.1 s: some 500 MB.
_MOST_NUMBERS = 2**26
ANEW = "Load the table anew and run the query on that: a data frame keeps the state it was made of."


def pack(files: Sequence[DataFile], target: int) -> list[list[DataFile]]:
    """Group files, in their order, up to about ``target`` bytes a group."""
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
    """Rows of files of one table, as Spark wants them.

    :param schema: the table's; ``by``: its partition columns.
    :param columns: what Spark expects, in Arrow's types.
    :param row_filter: which rows; ``None`` for all.
    """

    root: str
    schema: pa.Schema
    by: tuple[str, ...]
    columns: pa.Schema
    row_filter: RowFilter | None = None

    def read(self, files: Sequence[DataFile]) -> Iterator[pa.RecordBatch]:
        """The rows of all of them, one after the other; small files are fetched ahead.

        :raises SnapshotGoneError: a later job has removed one.
        """
        small = all(file.size <= _SMALL for file in files)
        try:
            for batch in begun_ahead(map(self._batches, files), _AHEAD if small else 1):
                yield for_spark(batch, self.columns)
        except SnapshotGoneError as error:
            error.table = error.table or self.root
            error.remedy = ANEW
            # Where tasks run on the driver's host, as in local mode, it hears of this.
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
        """For ``mapInArrow``."""
        with readable_errors():
            for batch in groups:
                for packed in batch.column("files").to_pylist():
                    yield from self.read(pickle.loads(packed))


def file_rows(
    session: SparkSession, schema: StructType, snapshot: Snapshot, row_filter: RowFilter | None
) -> DataFrame:
    """The rows of a state, all columns of ``schema``; one task for each group of files.

    :param row_filter: which rows; ``None`` for all.
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
    """No row, and yet for Spark about as many bytes as the files have.

    Spark takes what ``mapInArrow`` gives for as large as what it is given, row for row: here, the
    files' names. So each table would be small enough to be sent to all executors by a join,
    through the driver's memory (``autoBroadcastJoinThreshold``). Of a range it goes by the length,
    8 bytes a number, and by the columns that are made of it.
    """
    size = sum(file.size for file in snapshot.files)
    numbers = min(size // (4 * (1 + len(snapshot.schema))), _MOST_NUMBERS)
    none = session.range(0, numbers, 1, 1).where("spark_partition_id() < 0")  # is never folded
    return none.selectExpr("int(id) number", "cast(null as binary) files")
