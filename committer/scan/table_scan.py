"""Lazy read of one state of a table: its partitions, rows and columns, and the result's form."""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pyarrow as pa

from ..commit.snapshot import Snapshot
from ..errors import InvalidInputError
from ..format.layout import TableRoot
from ..format.parquet.footers import count_rows
from ..format.parquet.reader import check_columns, read_batches
from ..format.parquet.row_filter import Filter, RowFilter
from ..format.records.data_file import DataFile
from ..format.schema.directory import canonical_name
from ..store.driver import Driver
from .current_table import given_partitions, stored_in
from .partition_condition import PartitionCondition, wanted_files

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars

T = TypeVar("T")
_END = object()

_READERS = 4


@dataclass(frozen=True)
class BegunRead:
    """Table that a scan has begun to read.

    :param shape: returns all columns, and the names of the partition columns.
    :param snapshot: takes a state of some partitions, by name or condition, or of all.
    """

    shape: Callable[[], tuple[pa.Schema, tuple[str, ...]]]
    snapshot: Callable[[Collection[str] | None], Snapshot]


@dataclass(frozen=True)
class TableAccess:
    """Functions of a table that a scan needs.

    :param begin: begins the read of one scan.
    """

    root: TableRoot
    driver: Driver
    begin: Callable[[], BegunRead]


@dataclass(frozen=True)
class ScanPlan:
    """Selection of a scan; ``None`` means all.

    :param partitions: as :meth:`.table.Table.snapshot` takes them.
    :param conditions: all of them must be true of a row.
    :param columns: names, in the order wanted.
    :param limit: at most so many rows.
    """

    partitions: Collection[str] | None = None
    conditions: tuple[Filter, ...] = ()
    columns: tuple[str, ...] | None = None
    limit: int | None = None


def scan_plan(
    root: TableRoot,
    partitions: Collection[str] | None,
    condition: Filter | None,
    columns: Sequence[str] | None,
    limit: int | None,
) -> ScanPlan:
    """Build the selection of a scan from its arguments.

    :raises InvalidInputError: a string instead of a list, or an invalid limit.
    """
    if isinstance(columns, str):
        raise InvalidInputError(
            f"columns is the text {columns!r}, not a list of columns.",
            table=root.url,
            remedy=f"Give a list: columns=[{columns!r}].",
        )
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
        raise InvalidInputError(
            f"limit={limit!r} is not a number of rows.",
            table=root.url,
            remedy="Give a whole number from 0 on, or leave it out for all rows.",
        )
    named = None if partitions is None else given_partitions(root, partitions)
    wanted = None if columns is None else tuple(columns)
    return ScanPlan(named, () if condition is None else (condition,), wanted, limit)


class TableScan:
    """Lazy read of a table, made by :meth:`.table.Table.scan`.

    It sends nothing until rows, files or :attr:`snapshot` are asked for. From then on it stays with
    the state that it found, however often it is read.

    Partitions that the filter excludes are not read. A file is not opened if the table has on
    record that it holds no wanted row. Row groups are skipped by their statistics, and of large
    files only the columns asked for are read. A comparison with null is true of no row, and one
    with NaN only for ``!=``, as in Arrow.
    """

    def __init__(self, table: TableAccess, plan: ScanPlan, state: Snapshot | None = None) -> None:
        self._table = table
        self._plan = plan
        self._state = state

    def filter(self, condition: Filter) -> TableScan:
        """Return this scan with one more condition, which each row must fulfil.

        See :meth:`.table.Table.scan`.
        """
        conditions = (*self._plan.conditions, condition)
        return TableScan(self._table, replace(self._plan, conditions=conditions), self._state)

    def select(self, *columns: str) -> TableScan:
        """Return this scan with these columns, in this order."""
        return TableScan(self._table, replace(self._plan, columns=columns), self._state)

    # What is read

    @property
    def snapshot(self) -> Snapshot:
        """The state that is read, also by the scans that are made of this one from now on.

        :raises InvalidInputError: a filter does not fit the table's columns, or the table cannot
            have such a partition.
        :raises TableNotFoundError: no table here.
        """
        if self._state is None:
            self._state = self._found()
        return self._state

    def _found(self) -> Snapshot:
        """Read the state of the partitions that may hold wanted rows."""
        named, begun = self._plan.partitions, self._table.begin()
        if not self._plan.conditions:
            return begun.snapshot(named)
        schema, partition_by = shape = begun.shape()
        if named is not None:
            named = stored_in(self._table.root, lambda: shape, named)
        row_filter = RowFilter(self._plan.conditions, schema)
        return begun.snapshot(PartitionCondition(row_filter, schema, partition_by, named))

    @property
    def schema(self) -> pa.Schema:
        """The columns that are read.

        :raises InvalidInputError: a column that the table does not have.
        """
        schema = self.snapshot.schema
        if self._plan.columns is None:
            return schema
        check_columns(self._plan.columns, schema)
        return pa.schema([schema.field(name) for name in self._plan.columns])

    @cached_property
    def files(self) -> tuple[DataFile, ...]:
        """Files that may hold wanted rows, by what the table has on record."""
        state, named = self.snapshot, self._plan.partitions
        kept = None if named is None else self._kept(named)
        if self._row_filter is not None:
            return wanted_files(state, self._row_filter, kept)
        if kept is None:
            return state.files
        return tuple(file for file in state.files if file.partition in kept)

    def _kept(self, partitions: Collection[str]) -> frozenset[str]:
        """Return the names of the wanted partitions as the state has them.

        In a table that another committer wrote, they are the names of its folders.
        """
        state = self.snapshot
        schema, by = state.schema, state.partition_by
        named = stored_in(state.root, lambda: (schema, by), partitions)

        def is_meant(name: str) -> bool:
            return name in named or canonical_name(name, schema, by) in named

        return frozenset(filter(is_meant, state.by_partition()))

    @cached_property
    def _row_filter(self) -> RowFilter | None:
        if not self._plan.conditions:
            return None
        return RowFilter(self._plan.conditions, self.snapshot.schema)

    # Rows

    def to_batches(self) -> pa.RecordBatchReader:
        """Return the rows as a stream of Arrow batches: at most a few batches are in memory.

        :raises SnapshotGoneError: a replace removed a file meanwhile; scan again.
        """
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def to_arrow(self) -> pa.Table:
        """Read the rows into memory, as an Arrow table.

        :raises SnapshotGoneError: a replace removed a file meanwhile; scan again.
        """
        if self._plan.limit is not None:
            return self.to_batches().read_all()
        schema = self.schema
        with ThreadPoolExecutor(_READERS) as pool:
            found = pool.map(lambda file: list(self._read(file)), self.files)
            return pa.Table.from_batches([batch for batches in found for batch in batches], schema)

    def to_pandas(self, **options: Any) -> pandas.DataFrame:
        """Read the rows as a pandas frame.

        :param options: of :meth:`pyarrow.Table.to_pandas`, such as ``types_mapper``.
        """
        _library("pandas")
        return self.to_arrow().to_pandas(**options)

    def to_polars(self) -> polars.DataFrame:
        """Read the rows as a Polars frame; ``.lazy()`` on it goes on lazily."""
        return _library("polars").from_arrow(self.to_arrow())

    def to_duckdb(
        self, name: str, connection: duckdb.DuckDBPyConnection | None = None
    ) -> duckdb.DuckDBPyConnection:
        """Read the rows, and register them as a view of DuckDB over Arrow memory.

        :param name: the view's.
        :param connection: where it is made; ``None``: in a new database in memory.
        :return: the connection.
        """
        made: duckdb.DuckDBPyConnection = connection or _library("duckdb").connect()
        made.register(name, self.to_arrow())
        return made

    def count(self) -> int:
        """Count the rows.

        If there is no filter, or it is about partitions alone, the table's records and the files'
        footers give the number. Otherwise the filter's columns are read.
        """
        if self._row_filter is None or self._row_filter.is_about(self.snapshot.partition_by):
            found = self._recorded_rows()
            if found is not None:
                return found if self._plan.limit is None else min(found, self._plan.limit)
        return sum(batch.num_rows for batch in self.select()._batches())

    def _recorded_rows(self) -> int | None:
        uncounted = {file.key: file.size for file in self.files if file.is_foreign}
        counted = count_rows(self._table.driver, uncounted)
        if counted is None:
            return None
        known = sum(file.rows for file in self.files if not file.is_foreign)
        return known + sum(counted.values())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        left = self._plan.limit
        if left is not None and left <= 0:
            return
        for batch in begun_ahead((self._read(file) for file in self.files), _READERS):
            yield batch if left is None else batch[:left]
            if left is not None:
                left -= batch.num_rows
                if left <= 0:
                    return

    def _read(self, file: DataFile) -> Iterator[pa.RecordBatch]:
        state = self.snapshot
        return read_batches(
            self._table.driver,
            state.schema,
            state.partition_by,
            file,
            self._plan.columns,
            row_filter=self._row_filter,
        )


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise InvalidInputError(
            f"The rows are to become a frame of {name}, which is not installed here.",
            remedy=f"pip install {name}",
        ) from error


def begun_ahead(sources: Iterable[Iterator[T]], width: int) -> Iterator[T]:
    """Yield the items of all sources, in order, while the next sources are read ahead.

    One item of each of the next ``width`` sources is read ahead of its turn. No more is in memory,
    however long the sources are.
    """
    left = iter(sources)
    with ThreadPoolExecutor(width) as pool:

        def begin(source: Iterator[T]) -> tuple[Iterator[T], Future[T | object]]:
            return source, pool.submit(next, source, _END)

        begun = deque(begin(source) for source in islice(left, width))
        try:
            while begun:
                source, future = begun.popleft()
                item = future.result()
                if item is _END:
                    begun.extend(begin(source) for source in islice(left, 1))
                    continue
                begun.appendleft(begin(source))
                yield cast(T, item)
        finally:
            pool.shutdown(cancel_futures=True)
