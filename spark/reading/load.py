"""Load of a table: one consistent state of it, as fast as the session can.

::

    from zero_rename.spark import load

    flights = load(spark, "s3://bucket/flights", where="day >= '2013-01-01'")

If the session's own file systems reach the table's store, Spark's Parquet reader reads the
files (:mod:`.listed_parquet`): it knows which columns a query needs, skips row groups and reads
into vectors. Otherwise this package's reader does, in Spark's tasks (:mod:`.file_rows`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from ...committer.commit.snapshot import Snapshot
from ...committer.errors import InvalidInputError
from ...committer.format.as_of import AsOf, Past
from ...committer.format.job_spec import choice
from ...committer.format.layout import UNPARTITIONED
from ...committer.format.parquet.reader import partition_constants
from ...committer.format.schema.compatibility import find_column, is_untyped
from ...committer.format.schema.directory import canonical_name
from ...committer.format.schema.hive_paths import is_read_alike_by_spark, normalise_partition
from ...committer.scan.partition_condition import wanted_files
from ...committer.store.fast_root import is_fast
from ...committer.table import Table
from ...tables import DeltaTable
from ...tables.table_at_root import find_at_root, open_at_root
from ..column_names import quoted
from ..session_settings import is_on
from ..startup.preflight import warn_of_overwrites
from ..types import spark_schema
from ..worker import application_of
from .file_rows import file_rows
from .foreign_types import refused_by_spark
from .listed_parquet import FilePaths, hidden_column, listed_parquet
from .loaded_frame import LoadedFiles
from .predicate import require_text, row_filter
from .session_store import OURS, SessionStore, session_store
from .table_reads import TableReads, plan_on

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

logger = logging.getLogger("zero_rename.spark.reading.load")
#: Spark setting: its own sources and operators accept the type TIME. By default off in Spark 4.3.
_TIME_TYPE = "spark.sql.timeType.enabled"
#: Spark setting: the calendar of old dates and instants in files that no Spark has marked; and its
#: value for the calendar by which jobs of this package write.
_CALENDAR, _OURS = "spark.sql.parquet.datetimeRebaseModeInRead", "CORRECTED"


class By(StrEnum):
    """Choice of the reader of the files."""

    AUTO = "auto"
    SPARK = "spark"
    ZERO_RENAME = "zero_rename"


@dataclass(frozen=True)
class _ReadRequest:
    """Request for rows and columns of a state.

    :param where: a condition in Spark's SQL, or ``None``.
    :param names: the columns, in the order wanted.
    :param schema: Spark's schema of those columns and of the condition's.
    """

    table: Table | DeltaTable
    snapshot: Snapshot
    where: str | None
    names: Sequence[str]
    schema: StructType

    def of(self, frame: DataFrame) -> DataFrame:
        """Select the requested rows and columns from a frame of :attr:`schema`, by Spark."""
        selected = frame if self.where is None else frame.where(self.where)
        # Without this, a view of the frame would accept an INSERT, whose rows would be lost. By
        # selectExpr it is one call of the JVM, not two for each column.
        return selected.selectExpr(*map(quoted, self.names))


def load(
    spark: SparkSession,
    table: str,
    *,
    columns: Sequence[str] | None = None,
    partitions: Sequence[str] | None = None,
    where: str | None = None,
    by: str = By.AUTO,
    as_of: Past | None = None,
    job: str | None = None,
) -> DataFrame:
    """Load one consistent state of a table as a data frame: the present state by default.

    If this application later overwrites partitions of the table, changes by other jobs since that
    state count as conflicts (docs/spark.md, *What a write has read*).

    A ``where()`` or ``filter()`` directly after ``load()`` also skips files without a match, if
    Spark itself reads them; otherwise it logs a warning (:mod:`.loaded_frame`).

    :param table: ``s3://bucket/prefix``.
    :param columns: names, in the order wanted, in any case if the session ignores case; ``None``
        for all.
    :param partitions: the only partitions to read, ``["day=2013-01-01"]``.
    :param where: a condition for the rows to read, as for ``DataFrame.where``: ``day >=
        '2013-01-01' and delay > 60``. Partitions that surely have no such row are left out before
        Spark plans (:mod:`.predicate`).
    :param by: ``spark`` (its own Parquet reader), ``zero_rename`` (this package's), or ``auto``:
        Spark's if the session reaches the table's store by itself.
    :param as_of: a former state of a Delta table: a time with its zone, or a version
        (:meth:`.DeltaTable.scan`). No later write is compared with it.
    :param job: a job of a Delta table, whose rows alone are read instead of a state, before it is
        published or after (:meth:`.DeltaTable.scan`). No later write is compared with them.
    :raises InvalidInputError: an invalid call, or ``by="spark"`` and the session
        cannot read the table by itself; the message says why.
    :raises TableNotFoundError: there is no table.
    :raises pyspark.errors.AnalysisException: Spark does not accept the condition.
    """
    for name, given in (("columns", columns), ("partitions", partitions)):
        if isinstance(given, str):
            raise InvalidInputError(
                f"{name} is a list, not a string; nothing was read.",
                remedy=f"Give {name}=[{given!r}].",
            )
    if where is not None:
        require_text("where", where, "read")
    way = choice("by", By, by)
    warn_of_overwrites(spark)
    reads = TableReads.of(application_of(spark), Table(table).root.url)
    reads.loaded()
    # For a former state, or a job's rows, the present files are not read.
    is_newest = as_of is None and job is None
    found = open_at_root(table) if is_newest else find_at_root(table)
    if job is not None:
        source = found.table
        state = _rows_of_job(source, job, partitions, where, as_of)
        reads.read(state)
        shown = list(columns) if columns is not None else state.schema.names
        types = spark_schema(state.schema, _needed(shown, where, state.schema))
        return _frame(spark, _ReadRequest(source, state, where, shown, types), way)[0]
    past = None if as_of is None else AsOf.parse(as_of)
    found = found if past is None else found.at(past)
    source, schema = found.table, found.schema
    names = list(columns) if columns is not None else schema.names
    types = spark_schema(schema, _needed(names, where, schema))
    snapshot = plan_on(found, reads, partitions, where, past)
    frame, paths = _frame(spark, _ReadRequest(source, snapshot, where, names, types), way)
    shown = frozenset(find_column(name, schema.names) or name for name in names)
    return LoadedFiles(snapshot, shown, paths).on(frame)


def _rows_of_job(
    table: Table | DeltaTable,
    job: str,
    partitions: Sequence[str] | None,
    where: str | None,
    as_of: Past | None,
) -> Snapshot:
    """Return the files of a job that may hold the rows wanted.

    :raises InvalidInputError: a former state is asked for, too, or the table is not a Delta table.
    """
    if as_of is not None or not isinstance(table, DeltaTable):
        why = "as_of is given, too" if as_of is not None else "it is no Delta table"
        raise InvalidInputError(
            f"job={job} names rows of one job of a Delta table, and {why}; nothing was read.",
            table=table.root.url,
            remedy="Leave one of the two out.",
        )
    whole = table.rows_of_job(job)
    by, schema = whole.partition_by, whole.schema
    named = None
    if partitions is not None:
        named = tuple(normalise_partition(path, schema, by) for path in partitions)
    kept = row_filter(where, schema)
    if kept is not None:
        return replace(whole, files=wanted_files(whole, kept, named))
    if named is None:
        return whole
    return replace(whole, files=tuple(it for it in whole.files if it.partition in named))


def state_frame(
    spark: SparkSession,
    table: Table | DeltaTable,
    state: Snapshot,
    columns: Sequence[str] | None = None,
    where: str | None = None,
) -> DataFrame:
    """Make a frame of the rows of a known state. The other parameters are those of :func:`load`."""
    names = list(state.schema.names if columns is None else columns)
    types = spark_schema(state.schema, _needed(names, where, state.schema))
    return _frame(spark, _ReadRequest(table, state, where, names, types), By.AUTO)[0]


def _needed(names: Sequence[str], where: str | None, schema: pa.Schema) -> list[str]:
    """Return the table's columns that are asked for, and those that a condition may use.

    Spark does not say which ones a condition uses. So these are all that its text names, in any
    case.
    """
    own = [find_column(name, schema.names) or name for name in names]
    text = (where or "").lower().replace("``", "`").replace('""', '"')
    said = [n for n in schema.names if re.search(rf"(?<!\w){re.escape(n.lower())}(?!\w)", text)]
    return list(dict.fromkeys([*own, *(schema.names if "*" in text else said)]))


def _frame(
    spark: SparkSession, request: _ReadRequest, by: By
) -> tuple[DataFrame, FilePaths | None]:
    """Make the frame, with the paths of its files; ``None``: Spark itself does not read them."""
    url, snapshot = request.snapshot.root.url, request.snapshot
    if not snapshot.files:
        return request.of(spark.createDataFrame([], request.schema)), None
    if by is not By.ZERO_RENAME:
        found = _by_spark(spark, request)
        if not isinstance(found, SessionStore):
            return found
        if by is By.SPARK:
            raise InvalidInputError(
                f"This session cannot read the table by itself: {found.why_not}; nothing was read.",
                table=url,
                remedy=found.remedy,
            )
        logger.info("%s is read by this package: the session cannot, %s", url, found.why_not)
    kept = row_filter(request.where, snapshot.schema)
    return request.of(file_rows(spark, request.schema, snapshot, kept)), None


def _by_spark(
    spark: SparkSession, request: _ReadRequest
) -> tuple[DataFrame, FilePaths] | SessionStore:
    """Make the frame by Spark's own reader, with its files' paths; or return why it cannot."""
    lists = _lists(request.snapshot, lambda: _differs_in_calendar(spark, request.schema))
    if lists is None:
        why = (
            "files that this package has not written lie in no directories of their partition's "
            "values"
        )
        return SessionStore(None, why, OURS)
    root, files = request.snapshot.root, request.snapshot.files
    hidden = next(filter(None, map(hidden_column, lists)), None)
    if hidden is not None:
        return SessionStore(None, f"it would take the column {hidden} from its own path", OURS)
    if any(is_fast(file.key) for file in files):
        return SessionStore(None, "files of it lie in the table's fast root", OURS)
    partitioned = {it.partition: it.key for each in lists for it in each.files}
    otherwise = next((k for p, k in partitioned.items() if not is_read_alike_by_spark(p)), "")
    if otherwise:
        why = f"it would take the letters in {otherwise} that are escaped as UTF-8 for others"
        return SessionStore(None, why, OURS)
    if any(file.is_foreign for file in files) and is_on(spark, "spark.sql.caseSensitive"):
        why = "files of other programs may spell columns in another case, which it tells apart"
        return SessionStore(None, why, OURS)
    columns = map(request.snapshot.schema.field, request.schema.names)
    untyped = next((field.name for field in columns if is_untyped(field)), None)
    if untyped is not None:
        why = f"files hold nulls without a type in the column {untyped}, which its reader refuses"
        return SessionStore(None, why, OURS)
    unlike = _why_no_time(spark, request) or _why_no_duration(request)
    if unlike is not None:
        return unlike
    endpoint = request.table.driver.clients.endpoint
    store = session_store(spark, root, endpoint, files[0])
    if store.scheme is None:
        return store
    parts = {field.name: "NullType(" in repr(field.dataType) for field in request.schema}
    refused = refused_by_spark(request.table, request.snapshot, parts)
    if refused is not None:
        why = f"files of other programs hold {refused}, which its reader refuses"
        return SessionStore(None, why, OURS)
    for each in lists:
        for file in {file.partition: file for file in each.files}.values():
            # An invalid value is refused, as by this package's reader. Spark would read null.
            partition_constants(file.partition, file.key, each.schema, each.partition_by)
    found = [listed_parquet(spark, request.schema, each, store.scheme) for each in lists]
    if None in found:
        why = "this Spark does not take a list of its files"
        return SessionStore(None, why, OURS)
    logger.info("%s is read by Spark itself, through %s://", root.url, store.scheme)
    return _as_one(request, [it for it in found if it is not None])


def _as_one(
    request: _ReadRequest, listed: Sequence[tuple[DataFrame, FilePaths]]
) -> tuple[DataFrame, FilePaths]:
    """Join the frames of a state's lists into one, with its files' paths."""
    (frame, paths), *others = listed
    for other, _ in others:
        frame = frame.unionByName(other)
        paths = replace(paths, column=None, why_not="some of its files are of other engines")
    return request.of(frame), paths


def _lists(snapshot: Snapshot, apart: Callable[[], bool]) -> Sequence[Snapshot] | None:
    """Split a state into lists of files that Spark reads in the same way.

    In a table with a log, files of this package hold the values of their partition, and do not lie
    in a directory of that name. Files of other programs are in such a directory and do not hold the
    values. ``None`` if a file has its values in neither place.

    :param apart: returns whether Spark has to read files of this package otherwise than those of
        other programs, in any table.
    """
    theirs = tuple(file for file in snapshot.files if file.is_foreign)
    ours = tuple(file for file in snapshot.files if not file.is_foreign)
    if snapshot.log_version is None or not snapshot.partition_by:
        if not (theirs and ours and apart()):
            return [snapshot]
        return [replace(snapshot, files=ours), replace(snapshot, files=theirs)]
    placed = {(file.key.rpartition("/")[0], file.partition) for file in theirs}
    if not all(_is_in_its_directory(folder, name, snapshot) for folder, name in placed):
        return None
    ours = tuple(replace(file, partition=UNPARTITIONED) for file in ours)
    lists = [replace(snapshot, partition_by=(), files=ours)] if ours else []
    return [*lists, replace(snapshot, files=theirs)] if theirs else lists


def _differs_in_calendar(spark: SparkSession, schema: StructType) -> bool:
    """Return whether a session reads old dates or instants by another calendar than this package's.

    It does so in files without a mark of Spark's, such as those of rows that no Spark wrote.
    """
    if re.search(r"\b(DateType|TimestampType)\(", repr(schema)) is None:
        return False
    return (spark.conf.get(_CALENDAR, None) or "").upper() != _OURS


def _is_in_its_directory(folder: str, partition: str, snapshot: Snapshot) -> bool:
    """Return whether Spark finds a partition's values in the names of a folder of the table."""
    name = folder.removeprefix(f"{snapshot.root.prefix}/")
    columns = [part.partition("=")[0] for part in name.split("/")]
    if columns != list(snapshot.partition_by) or not is_read_alike_by_spark(name):
        return False
    return canonical_name(name, snapshot.schema, snapshot.partition_by) == partition


def _why_no_time(spark: SparkSession, request: _ReadRequest) -> SessionStore | None:
    """Return why Spark's reader cannot read a requested column of type TIME; ``None``: it can."""
    named = (f.name for f in request.schema if "TimeType(" in repr(f.dataType))
    column = next(named, None)
    if column is None:
        return None
    if not is_on(spark, _TIME_TYPE):
        why = f"its reader takes no TIME, which is the type of the column {column}"
        return SessionStore(None, why, f'{OURS} Or call spark.conf.set("{_TIME_TYPE}", "true").')
    if any(file.is_foreign for file in request.snapshot.files):
        why = f"files of other programs may hold {column} in milliseconds, which its reader refuses"
        return SessionStore(None, why, OURS)
    return None


def _why_no_duration(request: _ReadRequest) -> SessionStore | None:
    """Return why Spark's reader cannot read a requested day-time interval; ``None``: it can."""
    if not any(file.is_foreign for file in request.snapshot.files):
        return None
    named = (f.name for f in request.schema if "DayTimeIntervalType(" in repr(f.dataType))
    column = next(named, None)
    if column is None:
        return None
    why = f"files of other programs may count {column} in another unit, which its reader mistakes"
    return SessionStore(None, why, OURS)


def create_view(
    spark: SparkSession,
    name: str,
    table: str,
    *,
    columns: Sequence[str] | None = None,
    partitions: Sequence[str] | None = None,
    where: str | None = None,
    by: str = By.AUTO,
) -> None:
    """Create a temporary view of a table for SQL, or replace the one of that name.

    It always shows the state at the time of this call: create it again to see a later one. The
    other arguments are those of :func:`load`, and so are the errors.

    :param name: the view's name in SQL, in this session only.
    :param table: ``s3://bucket/prefix``.
    """
    frame = load(spark, table, columns=columns, partitions=partitions, where=where, by=by)
    frame.createOrReplaceTempView(name)
