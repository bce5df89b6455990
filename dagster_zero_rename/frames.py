"""Rows of a table's state in the form that an asset's function asks for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from zero_rename.committer import text_values
from zero_rename.committer.errors import InvalidInputError
from zero_rename.committer.scan.table_scan import TableScan
from zero_rename.committer.table import Table

#: Columns; ``None`` for all.
Columns = Sequence[str] | None


def read_as(
    kind: Any, table: Table, partitions: Collection[str] | None, columns: Columns = None
) -> Any:
    """Read one state of a table.

    :param kind: the class that is asked for: of pyarrow a ``Table`` or ``RecordBatchReader``, of
        pandas or pyspark a ``DataFrame``, of polars a ``DataFrame`` or ``LazyFrame``; ``Any`` is a
        pyarrow Table.
    :param partitions: ``None`` for all.
    :raises InvalidInputError: another class.
    :raises SnapshotGoneError: a replace removed a file meanwhile; read again.
    """
    name = _TABLE
    if kind is not Any and kind is not None:
        library = getattr(kind, "__module__", "").partition(".")[0]
        name = f"{library}.{getattr(kind, '__name__', kind)}"
    if name == _SPARK:
        return _spark_frame(table, partitions, columns)
    read = _READERS.get(name)
    if read is None:
        raise InvalidInputError(
            f"The asset's input is annotated {name}, as which no table is read; nothing was read.",
            table=table.root.url,
            remedy=f"Annotate it as one of {', '.join((*_READERS, _SPARK))}.",
        )
    return read(table.scan(partitions, columns=columns))


def _spark_frame(table: Table, partitions: Collection[str] | None, columns: Columns) -> Any:
    from pyspark.sql import SparkSession

    from zero_rename.spark import register

    session = SparkSession.getActiveSession()
    if session is None:
        raise InvalidInputError(
            "The asset's input is annotated as a Spark data frame, and this process has no Spark "
            "session; nothing was read.",
            table=table.root.url,
            remedy="Start one in a resource that the asset requires.",
        )
    register(session)
    reader = session.read.format("zero_rename")
    if columns is not None:
        reader = reader.option("columns", text_values.NAMES.encode(tuple(columns)))
    if partitions:
        reader = reader.option("partitions", text_values.PATHS.encode(tuple(partitions)))
    frame = reader.load(table.root.url)
    return frame if partitions is None or partitions else frame.limit(0)


_TABLE, _SPARK = "pyarrow.Table", "pyspark.DataFrame"
_READERS: dict[str, Callable[[TableScan], Any]] = {
    _TABLE: TableScan.to_arrow,
    "pyarrow.RecordBatchReader": TableScan.to_batches,
    "pandas.DataFrame": TableScan.to_pandas,
    "polars.DataFrame": TableScan.to_polars,
    "polars.LazyFrame": lambda scan: scan.to_polars().lazy(),
}
