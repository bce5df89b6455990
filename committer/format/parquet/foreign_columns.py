"""Columns of Parquet files that others wrote, by their footers, and whether they fit a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from ...errors import DamagedError, TableMismatchError
from ...store.range_reader import gone
from ...store.requests import All, ByteRange, Found, Get, ListedObject, Step
from ..layout import TableRoot
from ..schema.compatibility import type_differences
from ..schema.types import normalise
from .row_counts import counted_rows

#: Files that are looked at from either end: the newest have what was added last, the oldest what
#: was dropped since.
_LOOKED_AT = 3
#: Read at once from the end: footers are seldom larger.
_TAIL = 64 * 1024
#: What ends a Parquet file: the footer's length in four bytes, and ``PAR1``.
_END = 8


@dataclass(frozen=True)
class Footer:
    """What a file's footer says of its columns.

    :param schema: the columns in a table's types, INT96 as instants.
    :param int96: the columns that are stored so.
    """

    schema: pa.Schema
    int96: frozenset[str]


def look_at(files: Sequence[ListedObject]) -> list[ListedObject]:
    """A few files that tell what columns a directory has: the newest first."""
    by_age = sorted(files, key=lambda item: (item.last_modified, item.key))
    chosen = (*by_age[-_LOOKED_AT:][::-1], *by_age[:_LOOKED_AT])
    return list({item.key: item for item in chosen}.values())


def read_footer(item: ListedObject) -> Step[Footer]:
    """A file's columns, by one ranged GET, two where the footer is large.

    :raises SnapshotGoneError: the file is gone, or another one since it was listed.
    :raises DamagedError: it is not Parquet, contradicts itself, or has columns that no table can
        hold.
    """
    tail = yield from _read_end(item, _TAIL)
    needed = int.from_bytes(tail[-_END:-4], "little") + _END if len(tail) >= _END else 0
    if len(tail) < needed <= item.size:
        tail = yield from _read_end(item, needed)
    try:
        metadata = pq.read_metadata(pa.BufferReader(tail))
        counted_rows(metadata)
        found = metadata.schema.to_arrow_schema()
        int96 = int96_columns(metadata.schema)
        fields = [
            field.with_type(pa.timestamp("us", "UTC")) if field.name in int96 else field
            for field in found
        ]
        plain = normalise(pa.schema(fields))
    except (pa.ArrowException, OSError) as error:
        raise DamagedError(
            f"The file cannot be read as Parquet: {error}.",
            key=item.key,
            remedy="Only tables of Parquet files can be read here; remove the file if it is none.",
        ) from error
    return Footer(pa.schema([pa.field(field.name, field.type) for field in plain]), int96)


def int96_columns(file: pq.ParquetSchema) -> frozenset[str]:
    """The columns that are stored as INT96, the nanosecond timestamp of old: an instant, which
    Spark writes by default."""
    columns = (file.column(index) for index in range(len(file)))
    return frozenset(column.path for column in columns if column.physical_type == "INT96")


def _read_end(item: ListedObject, length: int) -> Step[bytes]:
    start = max(0, item.size - length)
    answer = yield from Get(item.key, ByteRange(start, item.size - 1), if_match=item.etag)
    if not isinstance(answer, Found):
        raise gone(item.key)
    return answer.body


def misfit(field: pa.Field, kind: pa.DataType, is_int96: bool) -> list[str]:
    """What keeps a column of a foreign file from being read as the table's, in words.

    What other writers store otherwise and mean alike fits; its values are checked when read.

    :param kind: the file's type, normalised.
    """
    wanted = field.type
    if pt.is_integer(wanted) and pt.is_integer(kind):
        return []
    if pt.is_string(wanted) and pt.is_binary(kind):
        return []  # Hive and Impala of old do not annotate strings.
    if is_int96 and pt.is_timestamp(wanted) and pt.is_timestamp(kind):
        return []  # An instant without a zone.
    return type_differences(wanted, kind, field.name)


def check_footers(
    root: TableRoot, schema: pa.Schema, partition_by: Sequence[str], files: Sequence[ListedObject]
) -> Step[None]:
    """Whether a table of these columns could read the files that are there: a few footers tell.

    :param schema: the table's that is about to be made, normalised.
    :param files: all that a listing shows in the table's partitions.
    :raises TableMismatchError: a column of another type, or one that the table would not show.
    """
    chosen = look_at(files)
    footers = yield from All(tuple(read_footer(item) for item in chosen))
    for item, footer in zip(chosen, footers, strict=True):
        problems = _problems(schema, partition_by, footer)
        if problems:
            raise TableMismatchError(
                "There are files here already, and their columns are not the job's: "
                f"{'; '.join(problems)}. Nothing was written.",
                table=root.url,
                key=item.key,
                remedy="Select and cast the job's columns to those of the files; or write to "
                "another root; or replace all files with replace_table.",
            )


def _problems(schema: pa.Schema, partition_by: Sequence[str], footer: Footer) -> list[str]:
    problems = []
    for field in footer.schema:
        if field.name in partition_by:
            continue  # The directory's name counts.
        if schema.get_field_index(field.name) < 0:
            problems.append(f"the job has no column {field.name}, which would be seen no more")
            continue
        own = schema.field(field.name)
        for problem in misfit(own, field.type, field.name in footer.int96):
            problems.append(problem.replace(", in the table ", " there, in the job "))
    return problems
