"""Tables of other committers, without a record: their columns are found in their files.

S3A's committers leave a folder of Parquet files in Hive directories. Such a table is read as any
reader that lists would read it: its files are those that a listing shows, and its columns are those
of the files. Its partition columns are those of the directories' names, with the types that Spark
gives them (``PartitioningUtils.inferPartitionColumnValue``): int, long, decimal, double, timestamp,
date, else string. Values of several types become the numeric type that holds all, else strings.

Not every file need have every column, so the footers of all files are read. A column that no table
can hold is refused; the error names the file and the column. Partition columns may also be in the
files, as Polars writes them, if each row has the directory's value.

The table is never written to here: a first job of this package makes a record and adopts the files.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ...errors import DamagedError, TableMismatchError
from ...store.listing import list_objects
from ...store.requests import All, Found, Get, ListedObject, Step
from ..layout import TableRoot
from ..records.data_file import DataFile
from ..records.head import head_at
from ..schema.directory import Directory, arrange, canonical_name, is_parquet
from ..schema.hive_paths import NULL, escape, parse_partition, unescape
from ..schema.lost_records import refuse_orphans, table_lost
from ..schema.other_formats import refuse_other_format
from .foreign_columns import FileColumns, ForeignFile, ReadColumns, joined, refuse_unfit

_INT, _LONG = 2**31, 2**63
_NUMBER = re.compile(r"[+-]?[0-9]+")
_REAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|NaN|-?Infinity")
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}")
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?")
#: Numeric types, each of which holds those before it.
_WIDENING = (pa.int32(), pa.int64(), pa.decimal128(38, 0), pa.float64())
_INSTANT = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class ListedTable:
    """A table without a record, as its files show it.

    :param schema: all columns, the partition columns last.
    :param directory: the files by partition; strays are not read.
    """

    schema: pa.Schema
    partition_by: tuple[str, ...]
    directory: Directory

    @property
    def files(self) -> tuple[DataFile, ...]:
        """All data files, by partition and key."""
        return tuple(
            DataFile(item.key, partition, item.size, rows=-1, checksum="", job="")
            for partition, items in self.directory.partitions.items()
            for item in items
        )

    def of(self, partitions: Collection[str] | None) -> tuple[DataFile, ...]:
        """Return the files of these partitions; ``None``: of all.

        :param partitions: partitions' names in the form of their writer, or of this package.
        """
        if partitions is None:
            return self.files

        def is_meant(partition: str) -> bool:
            return partition in partitions or self._canonical(partition) in partitions

        meant = {name for name in self.directory.partitions if is_meant(name)}
        return tuple(file for file in self.files if file.partition in meant)

    def _canonical(self, partition: str) -> str:
        return canonical_name(partition, self.schema, self.partition_by) or partition


def read_listed(
    root: TableRoot, read_columns: ReadColumns, as_spelled: bool = False
) -> Step[ListedTable | None]:
    """Read the table at a root without a record; ``None``: no data files.

    :param read_columns: reads the columns of files.
    :param as_spelled: make a partition column a string if its directories' names are not in the
        form of its type (``month=01``), so that the table can be written to.
    :raises TableMismatchError: the files are not one table, since they have different partition
        columns, or columns of one name whose types have no common type; or the folder belongs to
        another table format.
    :raises DamagedError: a file is not Parquet; or as :func:`list_directory`.
    """
    directory = yield from list_directory(root)
    if directory.contradiction is not None:
        raise _no_table(root, directory.contradiction)
    if directory.partition_by is None:
        if directory.strays:
            stray = directory.strays[0]
            why = "lies in no partition" if is_parquet(stray) else "is no Parquet by its name"
            raise _no_table(root, f"{stray.key} {why}")
        return None
    partition_by = directory.partition_by
    # The newest files have the columns that are meant now, so their columns come first.
    files = sorted(
        (
            ForeignFile.of(name, item)
            for name, items in directory.partitions.items()
            for item in items
        ),
        key=lambda file: (-file.last_modified, file.key),
    )
    found = list(zip(files, (yield from read_columns(files, partition_by)), strict=True))
    for _, columns in found:
        if isinstance(columns, DamagedError):
            raise columns
    schema, unfit = joined(pa.schema([]), found)
    refuse_unfit(
        root,
        unfit,
        "Nothing was read, adopted or written.",
        "Move these files away, or write their rows anew with the types of the others.",
    )
    inside = [columns.places for _, columns in found if isinstance(columns, FileColumns)]
    kinds = _types(directory.partitions, partition_by, as_spelled)
    fields = [
        pa.field(name, _as_in_files(name, kind, inside, directory.partitions, partition_by))
        for name, kind in zip(partition_by, kinds, strict=True)
    ]
    return ListedTable(pa.schema([*schema, *fields]), partition_by, directory)


def list_directory(root: TableRoot) -> Step[Directory]:
    """List the data files below a root, by partition.

    :raises TableMismatchError: the folder belongs to another table format.
    :raises DamagedError: a partition's head has moved, or a job of this package wrote a file. Then
        this is a table of this package whose records are lost, and it may have files that are
        hidden or replaced. Also raised if a first job has made the table in the meantime.
    """
    listing = yield from list_objects(root.heads_prefix)
    keys = (key for key in listing.keys if key != root.index_key)
    found = yield from All(tuple(Get(key) for key in keys))
    if any(head_at(root, item).head.version for item in found if isinstance(item, Found)):
        raise table_lost(root)

    def every(item: ListedObject) -> bool:
        refuse_other_format(root, [item.key])  # At once, not after the listing of a million files.
        return True

    listing = yield from list_objects(f"{root.prefix}/", wanted=every)
    directory = arrange(root, listing.objects)
    refuse_orphans(root, directory)
    return directory


def _no_table(root: TableRoot, why: str) -> TableMismatchError:
    return TableMismatchError(
        f"There is no record of a table here, and the files are not one table: {why}.",
        table=root.url,
        remedy="Name the root of one table; files of others, or of none, do not belong below it.",
    )


# -- types of partition columns -----------------------------------------------------------------


def _types(
    partitions: Iterable[str], partition_by: Sequence[str], as_spelled: bool
) -> list[pa.DataType]:
    """Return the type of each partition column, from all its values."""
    values: dict[str, set[str]] = {column: set() for column in partition_by}
    for partition in partitions:
        for column, raw in parse_partition(partition):
            values[column].add(raw)
    return [_type(column, values[column], as_spelled) for column in partition_by]


def _as_in_files(
    column: str,
    kind: pa.DataType,
    inside: Sequence[pa.Schema],
    partitions: Iterable[str],
    partition_by: Sequence[str],
) -> pa.DataType:
    """Return the type of a partition column: its type in the files, or ``kind``.

    The type in the files counts if all files hold the column, in one type, and all directories'
    names are in that type's form.

    :param inside: for each file, the partition columns that it holds.
    """
    found = {places.field(column).type if column in places.names else None for places in inside}
    own = found.pop() if len(found) == 1 else None
    if own is None or own == kind:
        return kind
    at = list(partition_by).index(column)
    schema = pa.schema([pa.field(column, own)])
    for partition in partitions:
        name, raw = parse_partition(partition)[at]
        spelled = f"{escape(name)}={raw}"
        if canonical_name(spelled, schema, (column,)) != spelled:
            return kind
    return own


def _type(column: str, raw: Collection[str], as_spelled: bool) -> pa.DataType:
    kind = common_type(unescape(value) for value in raw if value != NULL)
    schema = pa.schema([pa.field(column, kind)])
    names = [f"{escape(column)}={value}" for value in raw]
    canonical = [canonical_name(name, schema, (column,)) for name in names]
    # A value looks like the type and is invalid (30 February), or has another form.
    if None in canonical or (as_spelled and canonical != names):
        return pa.string()
    return kind


def common_type(values: Iterable[str]) -> pa.DataType:
    """Return the type of a partition column with these values; nulls are not among them."""
    types = {type_of(value) for value in values}
    if not types:
        return pa.string()
    if len(types) == 1:
        return next(iter(types))
    if types <= set(_WIDENING):
        return max(types, key=_WIDENING.index)
    if types == {pa.date32(), _INSTANT}:
        return _INSTANT
    return pa.string()


def type_of(value: str) -> pa.DataType:
    """Return the type that Spark infers from one value of a partition column."""
    if _NUMBER.fullmatch(value):
        number = int(value)
        if -_INT <= number < _INT:
            return pa.int32()
        if -_LONG <= number < _LONG:
            return pa.int64()
        return pa.decimal128(38, 0) if abs(number) < 10**38 else pa.float64()
    for pattern, kind in ((_REAL, pa.float64()), (_MOMENT, _INSTANT), (_DATE, pa.date32())):
        if pattern.fullmatch(value):
            return kind
    return pa.string()
