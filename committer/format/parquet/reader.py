"""Reader of a table's data files, as batches of the table's schema."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import DamagedError, InvalidInputError, TableMismatchError, ZeroRenameError
from ...store.driver import Driver
from ...store.range_reader import RangeFile, gone
from ...store.requests import Absent, Get
from ..layout import is_written_once
from ..records.data_file import DataFile
from ..schema.compatibility import cast_column, is_later, type_differences, with_lacking
from ..schema.hive_paths import partition_values
from ..schema.types import find_column, normalise
from .annotations import annotated_schema
from .calendars import FileCalendar, physical_types
from .foreign_columns import contradiction, int96_columns, misfit, not_parquet
from .row_counts import counted_rows
from .row_filter import RowFilter

_MIB = 1024 * 1024
#: Up to this size a file is read by one GET, for any columns.
_SMALL = 8 * _MIB
#: Up to this size a file is read by one GET if all columns are wanted.
_WHOLE = 128 * _MIB
#: Up to this size a file is read by one GET although a filter may leave row groups out.
_FILTERED = 2 * _MIB
_VERIFY = "Verify the table; something else has written to this key."
#: Remedy for a foreign file, which no job of this package has changed.
_FOREIGN = (
    "No job of this package wrote the file: the table took it over as another program left it, or "
    "it was replaced since. Let that program write it anew, or remove it and load its rows again."
)


def read_batches(
    driver: Driver,
    schema: pa.Schema,
    partition_by: Sequence[str],
    file: DataFile,
    columns: Sequence[str] | None = None,
    batch_rows: int = 131_072,
    row_filter: RowFilter | None = None,
    rewrites: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one data file, partition columns included.

    A small file is read by one GET, and its checksum is compared. A large file is read one row
    group at a time, and only the bytes of the needed columns. If no column of the file is needed,
    it is not read: the table has its number of rows on record. A foreign file that the table
    adopted is cast to the table's schema by name, in any case of letters; columns that it lacks are
    null, further columns are left out. With a filter, row groups are not read if their statistics
    or their partition show that no row is wanted.

    :param driver: carries out requests.
    :param schema: the table's schema.
    :param partition_by: its partition columns.
    :param file: the file, as the table's state names it.
    :param columns: the columns to read, in this order; ``None``: all of the table's.
    :param batch_rows: most rows of a batch.
    :param row_filter: chooses the rows; ``None``: all.
    :param rewrites: the file is removed after its rows are written again, so a file with columns
        that the table does not show is refused.
    :raises InvalidInputError: an unknown column.
    :raises SnapshotGoneError: the object was removed or replaced since.
    :raises DamagedError: it is not the file that was committed.
    :raises TableMismatchError: a foreign file whose columns do not fit the table's.
    """
    names = list(schema.names if columns is None else columns)
    check_columns(names, schema)
    needed = names
    if row_filter is not None:
        needed = [*names, *(name for name in row_filter.columns if name not in names)]
    wanted = pa.schema([schema.field(name) for name in needed], metadata=schema.metadata)
    constants = partition_constants(file.partition, file.key, schema, partition_by)
    if row_filter is not None and not row_filter.may_keep(constants):
        return
    stored = [name for name in needed if name not in constants]
    everything = len(set(stored)) == len(schema) - len(partition_by)
    fields = [schema.field(name) for name in stored]
    if stored or file.is_foreign:
        reader = _FileReader(driver, file, everything, row_filter is not None)
        if rewrites and file.is_foreign:
            reader.refuse_hidden(schema, partition_by)
        groups = reader.row_groups(row_filter, constants)
        batches = reader.batches(fields, batch_rows, groups)
    else:
        batches = _nulls(file.rows, fields, batch_rows)
    for rows, found in batches:
        arrays = [
            found[name] if name in found else pa.repeat(constants[name], rows) for name in needed
        ]
        batch = _batch(arrays, wanted, rows)
        if row_filter is not None:
            batch = row_filter.keep(batch).select(names)
        yield batch


class _FileReader:
    """Reader of one open Parquet file.

    :param everything: all of its columns are wanted.
    :param filtered: some of its row groups may be left out.
    """

    def __init__(self, driver: Driver, file: DataFile, everything: bool, filtered: bool) -> None:
        self._file = file
        self._ranges: RangeFile | None = None
        source: Any
        whole = _WHOLE if everything else _SMALL
        if file.size <= (min(whole, _FILTERED) if filtered else whole):
            source = pa.BufferReader(_read_whole(driver, file))
        else:
            with _naming(file):
                once = is_written_once(file.key)
                self._ranges = RangeFile(driver, file.key, file.size, once=once)
            source = pa.PythonFile(self._ranges, mode="r")
        with _naming(file):
            # Spark's and Impala's INT96 in nanoseconds would wrap around after 2262.
            self._parquet = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
            rows = counted_rows(self._parquet.metadata)
        # Jobs of this package write dates by Arrow's calendar, also if the rows came from a file
        # with another one.
        footer = self._parquet.metadata.metadata if file.is_foreign else None
        self._calendar = FileCalendar.of(footer)
        self._present = self._parquet.schema_arrow.names
        if not file.is_foreign and rows != file.rows:
            raise DamagedError(
                f"The file has {rows} rows, {file.rows} were committed.",
                key=file.key,
                remedy=_VERIFY,
            )

    def row_groups(
        self, row_filter: RowFilter | None, constants: Mapping[str, pa.Scalar]
    ) -> Sequence[int]:
        """Return the row groups that may have wanted rows."""
        if row_filter is None:
            return range(self._parquet.num_row_groups)
        asked = set(row_filter.columns) - set(constants)
        lacking = {name for name in asked if self._stored_as(name) is None}
        return row_filter.row_groups(self._parquet, constants, lacking)

    def _stored_as(self, name: str) -> str | None:
        """Return the name that a column of the table has in the file; ``None``: not there.

        Other programs may write names in another case, which Spark and Hive do not distinguish.
        """
        if name in self._present or not self._file.is_foreign:
            return name if name in self._present else None
        return find_column(name, self._present)

    def refuse_hidden(self, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        """Refuse a foreign file with values that the table does not show.

        They would be lost when the file's rows are written again.

        :raises TableMismatchError: the file has a column that the table does not have or cannot
            hold, or rows whose partition column differs from their directory.
        """
        shown = {self._stored_as(name) for name in schema.names}
        problems = [f"{name} is not in the table" for name in self._present if name not in shown]
        problems += self._annotated[1].values()
        for name in partition_by:
            stored = self._stored_as(name)
            if stored is None:
                continue
            field = self._parquet.schema_arrow.field(stored)
            place = normalise(pa.schema([field])).field(0)
            with _naming(self._file):
                values = self._parquet.iter_batches(columns=[stored])
                problem = contradiction(self._file.partition, partition_by, place, values)
            problems += [problem] if problem else []
        if problems:
            raise TableMismatchError(
                "A file that no job of this package wrote has columns that would be lost if its "
                f"rows were written again: {'; '.join(problems)}. Nothing was changed.",
                key=self._file.key,
                remedy="Let the table have these columns, too: zero-rename adopt TABLE --apply; "
                "then do this again. What does not fit is to be moved away.",
            )

    def batches(
        self, fields: Sequence[pa.Field], batch_rows: int, groups: Sequence[int]
    ) -> Iterator[tuple[int, dict[str, pa.Array]]]:
        """Yield the number of rows and the columns of each batch, in the table's types."""
        stored = {field.name: name for field in fields if (name := self._stored_as(field.name))}
        self._check(fields)
        if not stored:
            yield from _nulls(self._parquet.metadata.num_rows, fields, batch_rows)
            return
        names = list(dict.fromkeys(stored.values()))
        for group in groups:
            if self._ranges is not None:
                with _naming(self._file):
                    self._ranges.prefetch(self._chunks(group, names))
            with _naming(self._file):
                batches = self._parquet.iter_batches(
                    batch_size=batch_rows, row_groups=[group], columns=names
                )
            while True:
                with _naming(self._file):
                    batch = next(batches, None)
                if batch is None:
                    break
                yield batch.num_rows, self._columns(batch, fields, stored)

    def _columns(
        self, batch: pa.RecordBatch, fields: Sequence[pa.Field], stored: Mapping[str, str]
    ) -> dict[str, pa.Array]:
        columns = {}
        for field in fields:
            if field.name not in stored:
                columns[field.name] = pa.nulls(batch.num_rows, field.type)
                continue
            name = stored[field.name]
            column = self._rebased(name, batch.column(name))
            try:
                columns[field.name] = cast_column(column, field)
            except InvalidInputError as error:
                raise self._misfit([error.message]) from error
        return columns

    @cached_property
    def _annotated(self) -> tuple[pa.Schema, dict[str, str]]:
        return annotated_schema(self._parquet.metadata)

    @cached_property
    def _physical_types(self) -> dict[str, list[str]]:
        """Physical types of each column's leaves, found once for the file."""
        return physical_types(self._parquet.schema, self._parquet.schema_arrow)

    def _rebased(self, name: str, column: pa.Array) -> pa.Array:
        """Return a column with the dates and instants that its writer meant."""
        if self._calendar.is_gregorian:
            return column
        try:
            return self._calendar.rebase(column, iter(self._physical_types[name]))
        except InvalidInputError as error:
            raise TableMismatchError(
                f"The column {name} of a foreign file cannot be read: "
                f"{error.message.rstrip('.')}. Nothing was written.",
                key=self._file.key,
                remedy='Read the table by Spark, zero_rename.spark.load(…, by="spark"), and save '
                "it to another root; or leave the column out.",
            ) from error

    def _check(self, fields: Sequence[pa.Field]) -> None:
        """Refuse a file whose columns are not the wanted ones, or cannot be cast to them."""
        found = self._annotated[0] if self._file.is_foreign else self._parquet.schema_arrow
        problems: list[str] = []
        for field in fields:
            name = self._stored_as(field.name)
            count = 0 if name is None else len(found.get_all_field_indices(name))
            if count > 1:
                problems.append(f"{name} is there {count} times")
            elif name is not None:
                problems += self._problems(field, found.field(name))
            elif not self._may_lack(field):
                problems.append(f"{field.name} is missing")
        if problems:
            raise self._misfit(problems)

    def _may_lack(self, field: pa.Field) -> bool:
        """Return whether the file may lack a column of the table, which is null in its rows."""
        if self._file.is_foreign or is_later(field):
            return True
        return self._file.may_lack and field.nullable

    def _problems(self, field: pa.Field, stored: pa.Field) -> list[str]:
        try:
            kind = normalise(pa.schema([stored])).field(0).type
        except InvalidInputError as error:
            return [error.message]
        if self._file.may_lack:
            kind = with_lacking(kind, field.type)
        if self._file.is_foreign:
            return misfit(field, kind, stored.name in int96_columns(self._parquet.schema))
        return type_differences(field.type, kind, field.name)

    def _chunks(self, group: int, names: Iterable[str]) -> Iterator[tuple[int, int]]:
        """Yield the byte ranges of columns in a row group."""
        metadata = self._parquet.metadata.row_group(group)
        prefixes = tuple(f"{name}." for name in names)
        for index in range(metadata.num_columns):
            column = metadata.column(index)
            if f"{column.path_in_schema}.".startswith(prefixes):
                start = column.data_page_offset
                if column.has_dictionary_page and column.dictionary_page_offset is not None:
                    start = min(start, column.dictionary_page_offset)
                yield start, start + column.total_compressed_size

    def _misfit(self, problems: Sequence[str]) -> ZeroRenameError:
        text = "; ".join(problem.rstrip(".") for problem in problems)
        if self._file.is_foreign:
            return TableMismatchError(
                f"A foreign file does not fit the table it lies in: {text}.",
                key=self._file.key,
                remedy=_FOREIGN,
            )
        return DamagedError(
            f"The file does not have the table's columns: {text}.",
            key=self._file.key,
            remedy=_VERIFY,
        )


def _nulls(
    left: int, fields: Sequence[pa.Field], batch_rows: int
) -> Iterator[tuple[int, dict[str, pa.Array]]]:
    """Yield batches of nulls, for columns that the file does not have.

    :param left: the number of rows.
    """
    while left:
        rows = min(left, batch_rows)
        yield rows, {field.name: pa.nulls(rows, field.type) for field in fields}
        left -= rows


@contextmanager
def _naming(file: DataFile) -> Iterator[None]:
    """Convert Arrow's errors inside this context to errors about the file."""
    try:
        yield
    except DamagedError as error:
        error.remedy = _FOREIGN if file.is_foreign else error.remedy
        raise
    except ZeroRenameError:
        raise
    except (pa.ArrowException, OSError) as error:
        if file.is_foreign:
            raise not_parquet(file.key, error) from error
        raise DamagedError(
            f"The file cannot be read as Parquet: {str(error).rstrip('.')}.",
            key=file.key,
            remedy=_VERIFY,
        ) from error


def _read_whole(driver: Driver, file: DataFile) -> bytes:
    answer = driver.run(Get(file.key, most=file.size))
    if isinstance(answer, Absent):
        raise gone(file.key)
    if len(answer.body) != file.size:
        raise DamagedError(
            f"The object has {answer.size} bytes, it should have {file.size}.",
            key=file.key,
            remedy=_FOREIGN if file.is_foreign else _VERIFY,
        )
    if file.checksum and file.checksum != f"sha256:{hashlib.sha256(answer.body).hexdigest()}":
        raise DamagedError(
            "The object's bytes are not those that were committed: their SHA-256 differs.",
            key=file.key,
            remedy=_VERIFY,
        )
    return answer.body


def check_columns(names: Sequence[str], schema: pa.Schema) -> None:
    """Check that all names are columns of a table, each given once.

    :raises InvalidInputError: they are not.
    """
    unknown = [name for name in names if name not in schema.names]
    if unknown or len(set(names)) < len(names):
        what = f"has no column {', '.join(unknown)}" if unknown else "is asked for a column twice"
        raise InvalidInputError(
            f"The table {what}.", remedy=f"Its columns are {', '.join(schema.names)}."
        )


def partition_constants(
    partition: str, key: str, schema: pa.Schema, partition_by: Sequence[str]
) -> dict[str, pa.Scalar]:
    """Return the values of the partition columns in a partition, by column.

    :param key: the key of a file in it, for the error.
    :raises DamagedError: the table has no such partition.
    """
    try:
        values = partition_values(partition, schema, partition_by)
    except InvalidInputError as error:
        raise DamagedError(
            f"The file lies in no partition of its table: {error.message}",
            key=key,
            remedy="Move the file, or rename its directory to column=value.",
        ) from error
    return {name: pa.scalar(value, schema.field(name).type) for name, value in values.items()}


def _batch(arrays: list[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    if arrays:
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    # Arrow counts a batch's rows by its columns; without columns, by the struct it is made from.
    return pa.RecordBatch.from_struct_array(
        pa.StructArray.from_buffers(pa.struct([]), rows, [None])
    )
