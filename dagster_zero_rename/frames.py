"""Rows of a table's state in the form that an asset's function asks for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import pyarrow as pa

from zero_rename.committer import text_values
from zero_rename.committer.errors import InvalidInputError
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
    if kind is Any or kind is None:
        return _arrow(table, partitions, columns)
    name = f"{getattr(kind, '__module__', '').partition('.')[0]}.{getattr(kind, '__name__', kind)}"
    read = _READERS.get(name)
    if read is None:
        raise InvalidInputError(
            f"The asset's input is annotated {name}, as which no table is read; nothing was read.",
            table=table.root.url,
            remedy=f"Annotate it as one of {', '.join(_READERS)}.",
        )
    return read(table, partitions, columns)


def _arrow(table: Table, partitions: Collection[str] | None, columns: Columns) -> pa.Table:
    return table.to_arrow(columns, partitions)


def _batches(
    table: Table, partitions: Collection[str] | None, columns: Columns
) -> pa.RecordBatchReader:
    snapshot = table.snapshot(partitions)
    names = snapshot.schema.names if columns is None else columns
    schema = pa.schema([snapshot.schema.field(name) for name in names])

    def batches() -> Iterator[pa.RecordBatch]:
        for file in snapshot.files:
            yield from table.read_file(snapshot, file, columns)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _pandas(table: Table, partitions: Collection[str] | None, columns: Columns) -> Any:
    return _arrow(table, partitions, columns).to_pandas()


def _polars(table: Table, partitions: Collection[str] | None, columns: Columns) -> Any:
    import polars

    return polars.from_arrow(_arrow(table, partitions, columns))


def _lazy(table: Table, partitions: Collection[str] | None, columns: Columns) -> Any:
    return _polars(table, partitions, columns).lazy()


def _spark(table: Table, partitions: Collection[str] | None, columns: Columns) -> Any:
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


_READERS: dict[str, Callable[[Table, Collection[str] | None, Columns], Any]] = {
    "pyarrow.Table": _arrow,
    "pyarrow.RecordBatchReader": _batches,
    "pandas.DataFrame": _pandas,
    "polars.DataFrame": _polars,
    "polars.LazyFrame": _lazy,
    "pyspark.DataFrame": _spark,
}
