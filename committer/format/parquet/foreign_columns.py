"""Columns of foreign Parquet files, read from footers, and their differences from a table's.

A foreign file counts only after its footer was read: a column that the table does not show would be
lost when the next job writes the file's rows again. Names are compared without regard to case, as
Spark and Hive do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from math import isnan

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from ...errors import DamagedError, InvalidInputError, TableMismatchError
from ...store.range_reader import SizedFile, gone
from ...store.requests import All, ByteRange, Found, Get, ListedObject, Step
from ..layout import TableRoot
from ..schema.compatibility import respelled, type_differences, with_untyped
from ..schema.evolution import joined_type
from ..schema.hive_paths import partition_values
from ..schema.types import ANNOTATION, find_column, normalise
from .annotations import agreed, annotated_schema
from .column_bounds import chunk_bounds, is_ordered
from .row_counts import counted_rows

#: Bytes read at once from the end of the first files. For later files the number depends on the
#: largest footer so far, within these limits.
_TAIL = 64 * 1024
_LEAST, _MOST = 8 * 1024, 1024 * 1024
#: Bytes at the end of a Parquet file: the footer's length in four bytes, and ``PAR1``.
_END = 8
#: Most files whose footers are being read or in memory at once.
_AT_ONCE = 512
#: Most files whose columns are remembered: about 100 bytes each.
_REMEMBERED = 100_000
#: Most files that an error names.
_NAMED = 3


@dataclass(frozen=True)
class ForeignFile:
    """A file that another program wrote.

    :param etag: the ETag of the version that counts; ``None``: the present version.
    """

    key: str
    partition: str
    size: int
    etag: str | None = None
    last_modified: float = 0.0

    @staticmethod
    def of(partition: str, item: ListedObject) -> ForeignFile:
        return ForeignFile(item.key, partition, item.size, item.etag, item.last_modified)


@dataclass(frozen=True)
class FileColumns:
    """Columns of a file, from its footer.

    :param schema: the columns in a table's types, INT96 as instants, without partition columns.
    :param int96: the columns that are stored as INT96.
    :param ranges: for columns of integers: the name, and bounds of all values.
    :param places: partition columns that the file also holds, with the directory's value in each
        row.
    :param problem: the reason why no table can hold the file; empty: a table can.
    """

    schema: pa.Schema
    int96: frozenset[str] = frozenset()
    ranges: tuple[tuple[str, int, int], ...] = ()
    places: pa.Schema = field(default_factory=lambda: pa.schema([]))
    problem: str = ""

    def is_within(self, name: str, kind: pa.DataType) -> bool:
        """Return whether a type holds every integer of a column."""
        lowest, highest = _integers(kind)
        return any(
            name == it and lowest <= low and high <= highest for it, low, high in self.ranges
        )


#: The columns of a file, or the error of reading its footer.
Known = FileColumns | DamagedError
#: Reads the columns of files, given the table's partition columns.
ReadColumns = Callable[[Sequence[ForeignFile], Sequence[str]], Step[Sequence[Known]]]


class FooterReader:
    """Reader of the footers of files, in parallel, each version of a file once in a process.

    :param report: called with the number of files that are read, and the number of all.
    """

    def __init__(self, report: Callable[[int, int], None] = lambda done, total: None) -> None:
        self._report = report
        self._known: dict[bytes, FileColumns] = {}
        self._distinct: dict[object, FileColumns] = {}

    def reporting(self, report: Callable[[int, int], None]) -> FooterReader:
        """Return a reader with another report that shares what this one has read."""
        other = FooterReader(report)
        other._known, other._distinct = self._known, self._distinct
        return other

    def read(
        self, files: Sequence[ForeignFile], partition_by: Sequence[str] = ()
    ) -> Step[list[Known]]:
        """Read the columns of files, in the order of the files.

        :raises SnapshotGoneError: a file was removed or replaced since it was listed.
        """
        found: list[Known] = []
        tail = _TAIL
        for start in range(0, len(files), _AT_ONCE):
            chunk = files[start : start + _AT_ONCE]
            read = yield from All(tuple(self._read(file, partition_by, tail) for file in chunk))
            found += (columns for columns, _ in read)
            largest = max((length for _, length in read), default=0)
            tail = min(max(2 * largest, _LEAST), _MOST) if largest else tail
            self._report(len(found), len(files))
        return found

    def _read(
        self, file: ForeignFile, partition_by: Sequence[str], tail: int
    ) -> Step[tuple[Known, int]]:
        """Return a file's columns and its footer's length; 0: the columns were known already."""
        name = "\n".join((file.key, file.etag or "", *partition_by))
        digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if file.etag is not None and digest in self._known:
            return self._known[digest], 0
        try:
            columns, length = yield from read_columns(file, partition_by, tail)
        except DamagedError as error:
            return error, 0
        # Files of one writer have the same columns, so they share one object.
        same = (
            columns.schema.serialize().to_pybytes(),
            columns.int96,
            columns.ranges,
            columns.places.serialize().to_pybytes(),
            columns.problem,
        )
        columns = self._distinct.setdefault(same, columns)
        if file.etag is not None and len(self._known) < _REMEMBERED:
            self._known[digest] = columns
        return columns, length


def read_columns(
    file: ForeignFile, partition_by: Sequence[str], tail: int = _TAIL
) -> Step[tuple[FileColumns, int]]:
    """Read a file's columns, and the length of its footer in bytes.

    Requests: one ranged GET; two if the footer is larger than ``tail``.

    :raises SnapshotGoneError: the file was removed or replaced since it was listed.
    :raises DamagedError: it is not Parquet, or contradicts itself.
    """
    footer = yield from read_footer(file, tail)
    return (yield from columns_of(file, partition_by, footer)), footer.length


@dataclass(frozen=True)
class ReadFooter:
    """A file's footer that was read.

    :param body: the bytes that were read from the file's end; the footer is the last ``length`` of
        them.
    """

    metadata: pq.FileMetaData
    body: bytes
    length: int


def read_footer(file: ForeignFile, tail: int = _TAIL) -> Step[ReadFooter]:
    """Read a file's footer.

    Requests: one ranged GET; two if the footer is larger than ``tail``.

    :raises SnapshotGoneError: the file was removed or replaced since it was listed.
    :raises DamagedError: it is not Parquet, or contradicts itself.
    """
    body = yield from _read_range(file, max(0, file.size - tail), file.size)
    length = int.from_bytes(body[-_END:-4], "little") + _END if len(body) >= _END else 0
    if len(body) < length <= file.size:
        body = yield from _read_range(file, file.size - length, file.size)
    try:
        metadata = pq.read_metadata(pa.BufferReader(body))
        counted_rows(metadata)
    except (pa.ArrowException, OSError) as error:
        raise not_parquet(file.key, error) from error
    return ReadFooter(metadata, body, length)


def columns_of(
    file: ForeignFile, partition_by: Sequence[str], footer: ReadFooter
) -> Step[FileColumns]:
    """Return the columns of a file from its footer.

    If the file has partition columns, and the footer does not show that each row has the
    directory's value, these columns are read.

    :raises SnapshotGoneError: the file was removed or replaced since it was listed.
    :raises DamagedError: it is not Parquet.
    """
    metadata = footer.metadata
    try:
        arrow, refused = annotated_schema(metadata)
    except (pa.ArrowException, OSError) as error:
        raise not_parquet(file.key, error) from error
    if refused:
        return FileColumns(pa.schema([]), problem="; ".join(refused.values()))
    inside = [field for field in arrow if find_column(field.name, partition_by)]
    try:
        plain = _columns(metadata, arrow, [field.name for field in inside])
        places = _bare(normalise(pa.schema(inside))) if inside else pa.schema([])
    except InvalidInputError as error:
        return FileColumns(pa.schema([]), problem=error.message.rstrip("."))
    for place in places:
        problem = yield from _contradiction(file, partition_by, place, metadata, footer.body)
        if problem:
            return FileColumns(plain.schema, problem=problem)
    renamed = [field.with_name(find_column(field.name, partition_by) or "") for field in places]
    return FileColumns(plain.schema, plain.int96, plain.ranges, pa.schema(renamed))


def not_parquet(key: str, error: BaseException) -> DamagedError:
    """Build the error for a foreign file that cannot be read as Parquet."""
    return DamagedError(
        f"The file cannot be read as Parquet: {str(error).rstrip('.')}. No job of this package "
        "wrote it.",
        key=key,
        remedy="Every file below a table has to be Parquet. If this file is of another kind, move "
        "it out of the table; if it is damaged, have its own writer write it again.",
    )


def _columns(metadata: pq.FileMetaData, arrow: pa.Schema, without: Sequence[str]) -> FileColumns:
    int96 = int96_columns(metadata.schema)
    fields = [
        field.with_type(pa.timestamp("us", "UTC")) if field.name in int96 else field
        for field in arrow
        if field.name not in without
    ]
    if not fields:
        return FileColumns(pa.schema([]))
    schema = _bare(normalise(pa.schema(fields)))
    leaves = {metadata.schema.column(at).path: at for at in range(len(metadata.schema))}
    ranges = [
        (field.name, *found)
        for field in schema
        if pt.is_integer(field.type)
        and is_ordered(field.type, metadata.created_by)
        and (found := _range(metadata, leaves[field.name], field.type)) is not None
    ]
    return FileColumns(schema, int96, tuple(ranges))


def _bare(schema: pa.Schema) -> pa.Schema:
    """Return columns without the file's metadata about them, except the marks of annotations."""
    fields = []
    for column in schema:
        said = (column.metadata or {}).get(ANNOTATION)
        fields.append(column.with_metadata(None if said is None else {ANNOTATION: said}))
    return pa.schema(fields)


def int96_columns(file: pq.ParquetSchema) -> frozenset[str]:
    """Return the columns that are stored as INT96.

    This is the former nanosecond timestamp, an instant, which Spark writes by default.
    """
    columns = (file.column(index) for index in range(len(file)))
    return frozenset(column.path for column in columns if column.physical_type == "INT96")


def _range(metadata: pq.FileMetaData, leaf: int, kind: pa.DataType) -> tuple[int, int] | None:
    """Return the bounds of the narrowest types that hold all integers of a column.

    ``None``: its statistics are not complete.
    """
    low = high = 0
    for group in range(metadata.num_row_groups):
        chunk = metadata.row_group(group).column(leaf)
        bounds = chunk_bounds(chunk.statistics, kind, kind)
        if bounds.low is not None and bounds.high is not None:
            low, high = min(low, bounds.low.as_py()), max(high, bounds.high.as_py())
        elif bounds.nulls is None or bounds.nulls != chunk.num_values:
            return None
    lowest = (-(2 ** (bits - 1)) for bits in (8, 16, 32))
    highest = (2**bits - 1 for bits in (7, 8, 15, 16, 31, 32, 63))
    return (
        0 if not low else next((it for it in lowest if it <= low), -(2**63)),
        next((it for it in highest if it >= high), 2**64 - 1),
    )


def _integers(kind: pa.DataType) -> tuple[int, int]:
    if pt.is_signed_integer(kind):
        return -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1
    return 0, 2**kind.bit_width - 1


def _read_range(file: ForeignFile, start: int, end: int) -> Step[bytes]:
    answer = yield from Get(file.key, ByteRange(start, end - 1), if_match=file.etag)
    if not isinstance(answer, Found) or answer.size != file.size:
        raise gone(file.key)
    return answer.body


# -- partition columns in files -------------------------------------------------------------------


def _contradiction(
    file: ForeignFile,
    partition_by: Sequence[str],
    place: pa.Field,
    metadata: pq.FileMetaData,
    tail: bytes,
) -> Step[str]:
    """Describe a row whose partition column differs from the directory's value; empty: none does.

    The column is read only if its statistics do not decide this.
    """
    if pt.is_null(place.type):
        place = place.with_type(pa.string())
    try:
        value = _directory_value(file.partition, partition_by, place)
    except InvalidInputError as error:
        return f"{place.name} is in the file, too, as {place.type}: {error.message.rstrip('.')}"
    leaf = _leaf(metadata, place.name)
    if leaf is None or _is_everywhere(metadata, leaf, place, value):
        return ""
    bodies = {file.size - len(tail): tail}
    for start, end in _spans(metadata, leaf):
        if start < file.size - len(tail):
            bodies[start] = yield from _read_range(file, start, end)
    source = pa.PythonFile(_Pieces(file.size, bodies), mode="r")
    try:
        batches = pq.ParquetFile(source).iter_batches(columns=[place.name])
        return contradiction(file.partition, partition_by, place, batches)
    except (pa.ArrowException, OSError) as error:
        raise not_parquet(file.key, error) from error


def contradiction(
    partition: str, partition_by: Sequence[str], place: pa.Field, batches: Iterable[pa.RecordBatch]
) -> str:
    """Describe a row whose partition column differs from the directory's value; empty: none does.

    :param place: the column, in a table's type.
    :param batches: the column's values in the file.
    """
    try:
        wanted = _directory_value(partition, partition_by, place).as_py()
    except InvalidInputError as error:
        return f"{place.name} is in the file, too, as {place.type}: {error.message.rstrip('.')}"
    allowed = [wanted, ""] if wanted is None else [wanted]
    for batch in batches:
        values = batch.column(0).unique().cast(place.type).to_pylist()
        other = [it for it in values if it not in allowed and not (_is_nan(it) and _is_nan(wanted))]
        if other:
            return (
                f"{place.name} is {other[0]!r} in rows of the file, and {wanted!r} by its "
                f"directory {partition}"
            )
    return ""


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and isnan(value)


def _directory_value(partition: str, partition_by: Sequence[str], place: pa.Field) -> pa.Scalar:
    """Return a directory's value of a partition column, in the type that the column has in files.

    :raises InvalidInputError: it is not a value of that type.
    """
    column = find_column(place.name, partition_by) or place.name
    kinds = [(name, place.type if name == column else pa.string()) for name in partition_by]
    return pa.scalar(
        partition_values(partition, pa.schema(kinds), partition_by)[column], place.type
    )


def _leaf(metadata: pq.FileMetaData, name: str) -> int | None:
    leaves = (at for at in range(len(metadata.schema)) if metadata.schema.column(at).path == name)
    return next(leaves, None)


def _is_everywhere(metadata: pq.FileMetaData, leaf: int, place: pa.Field, value: pa.Scalar) -> bool:
    """Return whether statistics show that each row has ``value``."""
    for group in range(metadata.num_row_groups):
        chunk = metadata.row_group(group).column(leaf)
        bounds = chunk_bounds(chunk.statistics, place.type, place.type)
        if value.is_valid:
            if bounds.nulls != 0 or bounds.low != value or bounds.high != value:
                return False
        elif bounds.nulls != chunk.num_values:
            return False
    return True


def _spans(metadata: pq.FileMetaData, leaf: int) -> Iterable[tuple[int, int]]:
    """Yield the byte ranges of a column, one for each row group."""
    for group in range(metadata.num_row_groups):
        chunk = metadata.row_group(group).column(leaf)
        start = chunk.data_page_offset
        if chunk.has_dictionary_page and chunk.dictionary_page_offset is not None:
            start = min(start, chunk.dictionary_page_offset)
        yield start, start + chunk.total_compressed_size


class _Pieces(SizedFile):
    """A file with some of its byte ranges in memory.

    :param bodies: the bytes of each range, by its start.
    """

    def __init__(self, size: int, bodies: Mapping[int, bytes]) -> None:
        super().__init__(size)
        self._bodies = bodies

    def read(self, size: int = -1) -> bytes:
        start, end = self._pass(size)
        for first, body in self._bodies.items():
            if first <= start and end <= first + len(body):
                return body[start - first : end - first]
        raise OSError(f"bytes {start} to {end} were not read")


# -- fitting --------------------------------------------------------------------------------------


def misfit(field: pa.Field, kind: pa.DataType, is_int96: bool) -> list[str]:
    """Describe why a column of a foreign file cannot be read as the table's; empty: it can.

    Types in which other writers store the same kind of value fit; the values are checked when they
    are read.

    :param kind: the column's type in the file, normalised.
    """
    wanted = field.type
    if pt.is_integer(wanted) and pt.is_integer(kind):
        return []
    if pt.is_string(wanted) and pt.is_binary(kind):
        return []  # Former versions of Hive and Impala do not annotate strings.
    if is_int96 and pt.is_timestamp(wanted) and pt.is_timestamp(kind):
        return []  # An instant without a zone.
    return type_differences(wanted, respelled(kind, wanted), field.name)


def _is_held(own: pa.Field, given: pa.Field, columns: FileColumns) -> bool:
    """Return whether a column of a table holds a file's values as they are."""
    if pt.is_integer(own.type) and pt.is_integer(given.type):
        return not type_differences(own.type, given.type, "") or columns.is_within(
            given.name, own.type
        )
    return not misfit(own, given.type, given.name in columns.int96)


def problems_of(schema: pa.Schema, columns: FileColumns) -> list[str]:
    """Describe each column for which a table would not show all of a file; empty: it shows all."""
    if columns.problem:
        return [columns.problem]
    problems = []
    for given in columns.schema:
        name = find_column(given.name, schema.names)
        if name is None:
            problems.append(f"{given.name} is not in the table")
        elif not _is_held(schema.field(name), given, columns):
            problems.append(f"{given.name} is {given.type}, in the table {schema.field(name).type}")
    return problems


def joined(
    schema: pa.Schema, found: Iterable[tuple[ForeignFile, Known]]
) -> tuple[pa.Schema, dict[str, str]]:
    """Join the columns of a table with those of files.

    The second result says why files do not fit, by key.

    :param schema: the table's columns, which come first. A column becomes wider if a file needs it,
        unless it is a partition column.
    """
    fields, fixed = {field.name: field for field in schema}, frozenset(schema.names)
    unfit: dict[str, str] = {}
    seen: dict[int, list[str]] = {}
    for file, columns in found:
        if isinstance(columns, DamagedError):
            unfit[file.key] = str(columns)
            continue
        if id(columns) not in seen:
            seen[id(columns)] = _join(fields, fixed, columns)
        if seen[id(columns)]:
            unfit[file.key] = "; ".join(seen[id(columns)])
    return pa.schema(list(fields.values()), metadata=schema.metadata), unfit


def _join(fields: dict[str, pa.Field], fixed: frozenset[str], columns: FileColumns) -> list[str]:
    """Add a file's columns to those of a table, all of them or none.

    :returns: the reasons why they were not added; empty: they were.
    """
    if columns.problem:
        return [columns.problem]
    after, problems = {}, []
    for given in columns.schema:
        name = find_column(given.name, fields)
        if name is None:
            after[given.name] = given
            continue
        own = fields[name]
        kept = own.type if name in fixed and _is_held(own, given, columns) else None
        kind = kept or joined_type(own.type, respelled(given.type, own.type))
        if kind is None and _is_held(own, given, columns):
            kind = own.type
        if kind is None:
            problems.append(f"{given.name} is {given.type} there, in the table {own.type}")
        else:
            wider = with_untyped(own.with_type(kind), own.type, given.type)
            after[name] = wider if name in fixed else agreed(wider, given)
    if not problems:
        fields |= after
    return problems


def refuse_unfit(root: TableRoot, unfit: Mapping[str, str], nothing: str, remedy: str) -> None:
    """Refuse files that do not fit a table.

    :param unfit: the reasons, by key of the file.
    :param nothing: a sentence that says what was not done.
    :raises TableMismatchError: there are such files; the message names the first of them.
    """
    if not unfit:
        return
    some = [f"{key}: {unfit[key]}" for key in sorted(unfit)[:_NAMED]]
    more = len(unfit) - len(some)
    raise TableMismatchError(
        "Files here, which no job of this package wrote, have columns that do not fit: "
        f"{'; '.join(some)}{f'; and {more} more files' if more else ''}. {nothing}",
        table=root.url,
        key=min(unfit),
        remedy=remedy,
    )


def check_files(
    root: TableRoot, schema: pa.Schema, found: Iterable[tuple[ForeignFile, Known]], remedy: str
) -> None:
    """Refuse files with columns that a table of this schema would not show.

    :raises DamagedError: a footer cannot be read.
    :raises TableMismatchError: a file has a column that the table does not have, or has in another
        type.
    """
    unfit: dict[str, str] = {}
    seen: dict[int, list[str]] = {}
    for file, columns in found:
        if isinstance(columns, DamagedError):
            raise columns
        if id(columns) not in seen:
            seen[id(columns)] = problems_of(schema, columns)
        if seen[id(columns)]:
            unfit[file.key] = "; ".join(seen[id(columns)])
    refuse_unfit(root, unfit, "Nothing of this job is visible.", remedy)
