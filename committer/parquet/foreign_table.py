"""Tables that other committers wrote: no record says what they are, so their files do.

What S3A's committers leave is a folder of Parquet files in Hive directories. Such a table is read
as any reader that lists would: its files are those a listing shows, its columns those of the
files, and its partition columns those of the directories' names, typed as Spark types them
(``PartitioningUtils.inferPartitionColumnValue``): int, long, decimal, double, timestamp, date, else
string; values of several types become the numeric type that holds all, else strings.

It is never written to here: a first job of this package makes a record and takes the files over.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import DamagedError, InvalidInputError, TableMismatchError
from ..layout import TableRoot
from ..records.data_file import DataFile
from ..s3.driver import Driver
from ..s3.listing import list_objects
from ..s3.range_reader import RangeFile
from ..s3.requests import ListedObject, ListObjects, Step
from ..schema.hive_paths import NULL, escape, parse_partition, partition_values, unescape
from ..schema.types import normalise

#: Files whose columns are looked at: the newest have what was added last, the oldest what was
#: dropped since.
_LOOKED_AT = 3
_INT, _LONG = 2**31, 2**63
_NUMBER = re.compile(r"[+-]?[0-9]+")
_REAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|NaN|-?Infinity")
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}")
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?")
#: Numeric types, each of which holds those before it.
_WIDENING = (pa.int32(), pa.int64(), pa.decimal128(38, 0), pa.float64())
_INSTANT = pa.timestamp("us", "UTC")
#: The nanosecond timestamp of old, an instant: Spark writes it by default.
_INT96 = "INT96"


@dataclass(frozen=True)
class ListedTable:
    """What the files of a folder come to.

    :param schema: all columns, the partition columns last.
    :param files: all data files, by partition and key.
    """

    schema: pa.Schema
    partition_by: tuple[str, ...]
    files: tuple[DataFile, ...]

    def of(self, partitions: Collection[str] | None) -> tuple[DataFile, ...]:
        """The files of these partitions, or all."""
        if partitions is None:
            return self.files
        return tuple(file for file in self.files if file.partition in partitions)


def read_listed(driver: Driver, root: TableRoot) -> ListedTable | None:
    """What lies at a root without a record; ``None`` where there are no data files.

    :param driver: carries out requests.
    :raises TableMismatchError: files that are not one table: some partitioned otherwise than
        others, or columns of one name and several types.
    :raises DamagedError: a file that is not Parquet.
    """
    listed = driver.run(list_parquet(root))
    if not listed:
        return None
    partitions = sorted({partition for partition, _ in listed})
    partition_by = _columns(root, partitions)
    by_age = sorted((item for _, item in listed), key=lambda item: (item.last_modified, item.key))
    looked_at = {item.key: item for item in (*by_age[-_LOOKED_AT:][::-1], *by_age[:_LOOKED_AT])}
    fields: dict[str, pa.Field] = {}
    for item in looked_at.values():
        _add(fields, root, item, file_schema(driver, item), partition_by)
    for column, kind in zip(partition_by, _types(partitions, partition_by), strict=True):
        fields[column] = pa.field(column, kind)
    files = (
        DataFile(item.key, partition, item.size, rows=-1, checksum="", job="")
        for partition, item in sorted(listed, key=lambda pair: (pair[0], pair[1].key))
    )
    return ListedTable(pa.schema(list(fields.values())), partition_by, tuple(files))


def list_parquet(root: TableRoot) -> Step[list[tuple[str, ListedObject]]]:
    """Data files below a root, each with its directories; nothing where the folder holds records
    of this package: a table whose ``table.json`` is lost is no table of another committer."""
    if (yield ListObjects(root.heads_prefix)).objects:
        return []
    listing = yield from list_objects(f"{root.prefix}/")
    placed = ((root.partition_of_data_key(item.key), item) for item in listing.objects)
    return [(partition, item) for partition, item in placed if partition is not None and item.size]


def _columns(root: TableRoot, partitions: Sequence[str]) -> tuple[str, ...]:
    layouts: dict[tuple[str, ...], str] = {}
    for partition in partitions:
        try:
            columns = tuple(column for column, _ in parse_partition(partition))
        except InvalidInputError as error:
            raise _no_table(root, f"files lie in {partition!r}, which is no partition") from error
        layouts.setdefault(columns, partition)
    if len(layouts) > 1:
        some = " and ".join(repr(partition) for partition in list(layouts.values())[:2])
        raise _no_table(root, f"files lie in {some}, which are not partitions of one table")
    return next(iter(layouts))


def file_schema(driver: Driver, item: ListedObject) -> pa.Schema:
    """The columns of a Parquet file, in the types of a table.

    :raises DamagedError: it is not Parquet.
    """
    source = pa.PythonFile(RangeFile(driver, item.key, item.size), mode="r")
    try:
        file = pq.ParquetFile(source)
        columns = file.schema
        instants = {
            columns.column(index).path
            for index in range(len(columns))
            if columns.column(index).physical_type == _INT96
        }
        found = file.schema_arrow
    except (pa.ArrowException, OSError) as error:
        raise DamagedError(
            f"The file cannot be read as Parquet: {error}.",
            key=item.key,
            remedy="Only tables of Parquet files can be read here; remove the file if it is none.",
        ) from error
    fields = [
        field.with_type(pa.timestamp("us", "UTC")) if field.name in instants else field
        for field in found
    ]
    plain = normalise(pa.schema(fields))
    return pa.schema([pa.field(field.name, field.type) for field in plain])


def _add(
    fields: dict[str, pa.Field],
    root: TableRoot,
    item: ListedObject,
    found: pa.Schema,
    partition_by: Sequence[str],
) -> None:
    for field in found:
        known = fields.setdefault(field.name, field)
        if field.name in partition_by:
            raise _no_table(
                root, f"the column {field.name!r} is in {item.key} and in its directory's name"
            )
        if known.type != field.type and not pa.types.is_null(known.type):
            raise _no_table(
                root, f"the column {field.name!r} is {known.type}, and {field.type} in {item.key}"
            )
        if pa.types.is_null(known.type):
            fields[field.name] = field


def _no_table(root: TableRoot, why: str) -> TableMismatchError:
    return TableMismatchError(
        f"There is no record of a table here, and the files are not one table: {why}.",
        table=root.url,
        remedy="Name the root of one table; files of others, or of none, do not belong below it.",
    )


# -- types of partition columns -----------------------------------------------------------------


def _types(partitions: Sequence[str], partition_by: Sequence[str]) -> list[pa.DataType]:
    """The type of each partition column, from all its values."""
    values: dict[str, set[str]] = {column: set() for column in partition_by}
    for partition in partitions:
        for column, raw in parse_partition(partition):
            values[column].add(raw)
    return [_type(column, values[column]) for column in partition_by]


def _type(column: str, raw: Collection[str]) -> pa.DataType:
    kind = common_type(unescape(value) for value in raw if value != NULL)
    schema = pa.schema([pa.field(column, kind)])
    try:
        for value in raw:
            partition_values(f"{escape(column)}={value}", schema, (column,))
    except InvalidInputError:
        return pa.string()  # It looks like the type, and is none: 30 February.
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
