"""Rows of a table's state as the class that an asset's function asks for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import pyarrow as pa

from zero_rename.committer.errors import InvalidInputError
from zero_rename.committer.scan.table_scan import TableScan
from zero_rename.committer.table import Table
from zero_rename.tables import DeltaTable

#: Columns; ``None`` for all.
Columns = Sequence[str] | None


def read_as(
    kind: Any,
    table: Table | DeltaTable,
    partitions: Collection[str] | None,
    columns: Columns = None,
) -> Any:
    """Read one state of a table as an object of a given class.

    :param kind: the class: of pyarrow a ``Table`` or ``RecordBatchReader``, of pandas or pyspark a
        ``DataFrame``, of polars a ``DataFrame`` or ``LazyFrame``, of duckdb a ``DuckDBPyRelation``;
        ``Any`` is a pyarrow Table, ``Optional`` of a class that class.
    :param partitions: ``None`` for all.
    :raises InvalidInputError: the class is not one of these.
    :raises SnapshotGoneError: a replace removed a file during the read; read again.
    """
    name = _name_of(kind)
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


def nothing_as(kind: Any) -> Any:
    """Return an object of a given class without rows and without columns. ``None``: the class has
    no such object.

    :param kind: as for :func:`read_as`.
    """
    made = _NOTHING.get(_name_of(kind))
    return None if made is None else made(pa.table({}))


def is_spark(kind: Any) -> bool:
    """Return whether a class is Spark's data frame."""
    return _name_of(kind) == _SPARK


def _name_of(kind: Any) -> str:
    classes = [it for it in get_args(kind) if it is not NoneType]
    if get_origin(kind) in (Union, UnionType) and len(classes) == 1:
        return _name_of(classes[0])
    if kind is Any or kind is None:
        return _TABLE
    module = getattr(kind, "__module__", "")
    # DuckDB's classes are in the module _duckdb in some versions, and in duckdb in others.
    library = module.partition(".")[0].removeprefix("_")
    if library == "pyspark":
        library = ".".join(module.split(".")[:2])  # pyspark.pandas has other data frames.
    return f"{library}.{getattr(kind, '__name__', kind)}"


def _spark_frame(
    table: Table | DeltaTable, partitions: Collection[str] | None, columns: Columns
) -> Any:
    from zero_rename.spark import load
    from zero_rename.spark.session_settings import active_session

    session = active_session()
    if session is None:
        raise InvalidInputError(
            "The asset's input is annotated as a Spark data frame, and this process has no Spark "
            "session; nothing was read.",
            table=table.root.url,
            remedy="Start one in a resource that the asset requires.",
        )
    named = None if partitions is None else list(partitions)
    return load(session, table.root.url, columns=columns, partitions=named)


def _relation(scan: TableScan) -> Any:
    """Return a relation of DuckDB's default connection, like ``duckdb.sql``. It can be queried more
    than once."""
    import duckdb

    return duckdb.from_arrow(scan.to_arrow())


def _polars() -> Any:
    import polars

    return polars


_TABLE, _SPARK = "pyarrow.Table", "pyspark.sql.DataFrame"
_READERS: dict[str, Callable[[TableScan], Any]] = {
    _TABLE: TableScan.to_arrow,
    "pyarrow.RecordBatchReader": TableScan.to_batches,
    "pandas.DataFrame": TableScan.to_pandas,
    "polars.DataFrame": TableScan.to_polars,
    "polars.LazyFrame": lambda scan: scan.to_polars().lazy(),
    "duckdb.DuckDBPyRelation": _relation,
}
_NOTHING: dict[str, Callable[[pa.Table], Any]] = {
    _TABLE: lambda empty: empty,
    "pyarrow.RecordBatchReader": pa.Table.to_reader,
    "pandas.DataFrame": pa.Table.to_pandas,
    "polars.DataFrame": lambda _: _polars().DataFrame(),
    "polars.LazyFrame": lambda _: _polars().LazyFrame(),
}
