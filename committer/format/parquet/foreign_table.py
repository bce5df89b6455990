"""Tables that other committers wrote: no record says what they are, so their files do.

What S3A's committers leave is a folder of Parquet files in Hive directories. Such a table is read
as any reader that lists would: its files are those a listing shows, its columns those of the
files, and its partition columns those of the directories' names, typed as Spark types them
(``PartitioningUtils.inferPartitionColumnValue``): int, long, decimal, double, timestamp, date, else
string; values of several types become the numeric type that holds all, else strings.

A column may come and go from file to file, so the footers of all files are read. What no table can
hold is refused by file and column. Partition columns may be in the files, too, as Polars writes
them, where each row has the directory's value.

It is never written to here: a first job of this package makes a record and takes the files over.
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
    """What the files of a folder come to.

    :param schema: all columns, the partition columns last.
    :param directory: where the files lie; those that are strays are not read.
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
        """The files of these partitions, or all.

        :param partitions: names as their writer spelled them, or as this package would.
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
    """What lies at a root without a record; ``None`` where there are no data files.

    :param read_columns: reads the columns of files.
    :param as_spelled: make a partition column a string whose directories are not spelled as
        values of its type would be (``month=01``), so that a table of them can be written to.
    :raises TableMismatchError: files that are not one table: some partitioned otherwise than
        others, or columns of one name and types that no type holds together; or the folder belongs
        to another table format.
    :raises DamagedError: a file that is not Parquet; or as :func:`list_directory`.
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
    # The newest have the columns as they are meant now: theirs come first.
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
    """Data files below a root, by where they lie.

    :raises TableMismatchError: the folder belongs to another table format.
    :raises DamagedError: a partition's head names files, or a file is of a job of this package: a
        table whose records are lost is no table of another committer, and may have files that are
        hidden or replaced. Also where its first job has made it meanwhile.
    """
    listing = yield from list_objects(root.heads_prefix)
    keys = (key for key in listing.keys if key != root.index_key)
    found = yield from All(tuple(Get(key) for key in keys))
    if any(head_at(root, item).head.version for item in found if isinstance(item, Found)):
        raise table_lost(root)

    def every(item: ListedObject) -> bool:
        refuse_other_format(root, [item.key])  # At once, and not after a million files.
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
    """The type of each partition column, from all its values."""
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
    """The type of a partition column: that in the files, where all of them hold it, in one type by
    which all directories are spelled; else ``kind``.

    :param inside: the partition columns that each file holds.
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
    # It looks like the type, and is none (30 February), or is spelled otherwise.
    if None in canonical or (as_spelled and canonical != names):
        return pa.string()
    return kind


def common_type(values: Iterable[str]) -> pa.DataType:
    """The type of a partition column with these values, nulls left out."""
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
    """The type that Spark sees in one value of a partition column."""
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
