"""Adoption of a directory: its first entry makes the Parquet files there a Delta table.

=============================================  ==================================================
below the root                                 adoption
=============================================  ==================================================
a table of this package, or of another format  is refused, with what to do instead
Parquet files in partitions, or at the root    all footers are read; one entry adds the files
a file whose columns have other types, or      is refused, with file and column: no values are
names in another case, than in other files     converted, neither here nor by engines
a file with a type that Delta does not have,   is refused, with file and column
or with times of nanoseconds or milliseconds
any other object that is not hidden            is refused by name: a VACUUM would delete it
a lifecycle rule that removes files by age     is refused by its name
=============================================  ==================================================

The directory is listed before the footers are read, and again before the entry is written. Files
that came or changed in between are refused. Files that come later do not belong to the table; a
last listing reports them. If a log appears meanwhile, it has an entry before ours: a conflict.

Bounds of columns are taken from footers only for types where the bounds of every writer are exact
and in the type's order: whole numbers, decimals, dates and times. Those of strings are not taken,
since some writers truncate them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from ..committer.commit.state.context import Context
from ..committer.commit.state.found_table import refuse_below_swept, refuse_partition_folder
from ..committer.commit.state.table_kind import TableKind, table_kind
from ..committer.errors import (
    DamagedError,
    RecordDamagedError,
    SnapshotGoneError,
    TableMismatchError,
    TableNotFoundError,
    UnsupportedTypeError,
    ZeroRenameError,
    counted,
    first_few,
)
from ..committer.format.job_spec import Owner
from ..committer.format.layout import TableRoot, new_job_id
from ..committer.format.parquet.calendars import FileCalendar
from ..committer.format.parquet.column_bounds import is_ordered
from ..committer.format.parquet.foreign_columns import (
    FileColumns,
    ForeignFile,
    Known,
    columns_of,
    read_footer,
    refuse_unfit,
)
from ..committer.format.parquet.foreign_table import ListedTable, read_listed
from ..committer.format.schema.types import find_column
from ..committer.store.listing import list_objects
from ..committer.store.requests import All, ListedObject, Step
from ..committer.upkeep.adopt import AdoptAction, AdoptedPartition, AdoptReport
from ..layouts.delta.columns import delta_schema, needed_protocol, storable
from ..layouts.delta.delta_layout import PROPERTIES, DeltaLayout
from ..layouts.delta.statistics import statistics_of
from ..log.actions import AddFile, LogMetadata
from ..log.change import LogBase, LogChange
from ..log.committing import EntryCommitted
from ..log.job_steps import close_refused, commit_or_abandon, open_log_job
from ..log.opening import LogDepth, open_log
from .delta_files import ADOPTED, written_values
from .new_table import refuse_expiry
from .store_check import ATOMIC, facts_of, refuse_second_writer

#: How many footers are read at once.
_AT_ONCE = 512
_REMEDY = (
    "Write the rows of these files anew, with the types of the others, or move the files away; or "
    "write all rows to a new table: save(…, layout='delta')."
)


@dataclass
class _Footers:
    """Reader of the footers of files that are to be adopted.

    :param report: receives how many footers are read, and of how many.
    :param statistics: the statistics of the files read so far, by key.
    :param columns: the columns of these files, by key.
    """

    report: Callable[[int, int], None]
    statistics: dict[str, str] = field(default_factory=dict)
    columns: dict[str, FileColumns] = field(default_factory=dict)

    def read(self, files: Sequence[ForeignFile], partition_by: Sequence[str]) -> Step[list[Known]]:
        """Read the columns of files in their order, and keep their statistics."""
        found: list[Known] = []
        for start in range(0, len(files), _AT_ONCE):
            chunk = files[start : start + _AT_ONCE]
            found += yield from All(tuple(self._read(it, partition_by) for it in chunk))
            self.report(len(found), len(files))
        return found

    def _read(self, file: ForeignFile, partition_by: Sequence[str]) -> Step[Known]:
        try:
            footer = yield from read_footer(file)
            columns = yield from columns_of(file, partition_by, footer)
        except DamagedError as error:
            return error
        problem = columns.problem or _unreadable(footer.metadata)
        if problem:
            return FileColumns(columns.schema, problem=problem)
        self.columns[file.key] = columns
        unbounded = _unbounded(footer.metadata, columns)
        self.statistics[file.key] = statistics_of(
            footer.metadata, without=partition_by, unbounded=unbounded
        )
        return columns


def _unreadable(footer: pq.FileMetaData) -> str:
    """Return the problem of the first column that some engines cannot read as a type of Delta's;
    ``""``: there is none."""
    for index in range(footer.num_columns):
        leaf = footer.schema.column(index)
        unit = _unit(leaf)
        if unit in ("nanoseconds", "milliseconds"):
            return f"{leaf.path} has times of {unit}; Delta's have microseconds"
        if leaf.logical_type.type == "FLOAT16":
            return f"{leaf.path} has floats of 16 bits; Delta's have 32 or 64"
    return ""


def _unit(leaf: Any) -> str:
    """Return the unit of a column of times; ``""``: it is another column."""
    kind = leaf.logical_type
    if kind.type != "TIMESTAMP":
        return ""
    found = str(kind)
    return next((it for it in ("nanoseconds", "milliseconds", "microseconds") if it in found), "")


def _unbounded(footer: pq.FileMetaData, columns: FileColumns) -> list[str]:
    """Return the columns whose bounds in a footer must not be used."""
    calendar = FileCalendar.of(footer.metadata)
    return [it.name for it in columns.schema if not _is_exact(it, footer, calendar)]


def _is_exact(column: pa.Field, footer: pq.FileMetaData, calendar: FileCalendar) -> bool:
    kind = column.type
    if pt.is_date(kind) or pt.is_timestamp(kind):
        return calendar.is_gregorian
    return pt.is_integer(kind) or (pt.is_decimal(kind) and is_ordered(kind, footer.created_by))


@dataclass(frozen=True)
class AdoptionPlan:
    """A directory that can be adopted.

    :param listed: its partitions and files, as they were listed.
    :param schema: all columns, the partition columns last.
    :param statistics: the statistics of its files, by key.
    """

    root: TableRoot
    listed: ListedTable
    schema: pa.Schema
    statistics: dict[str, str]

    @property
    def files(self) -> Iterator[tuple[str, ListedObject]]:
        """The files, each with its partition."""
        for partition, items in self.listed.directory.partitions.items():
            for item in items:
                yield partition, item

    def report(self, action: AdoptAction) -> AdoptReport:
        """Return the report of the adoption, with one action for all partitions."""
        entries = [
            AdoptedPartition(name, len(items), sum(it.size for it in items), action)
            for name, items in self.listed.directory.partitions.items()
        ]
        return AdoptReport(
            self.listed.partition_by,
            tuple(entries),
            readers_list=False,
            columns=tuple(f"{it.name} {it.type}" for it in self.schema),
        )


def plan_adoption(
    root: TableRoot, layout: DeltaLayout, report: Callable[[int, int], None]
) -> Step[AdoptionPlan]:
    """Plan the adoption of a directory by the footers of its files. Changes nothing.

    :param report: receives how many footers are read, and of how many.
    :raises TableMismatchError: the directory cannot be adopted; the error names the reason.
    :raises StoreUnfitError: a lifecycle rule of the bucket removes its files, or would remove the
        log.
    :raises TableNotFoundError: there are no files.
    """
    yield from _refuse_table(root, layout)
    yield from refuse_partition_folder(Context(root))
    yield from refuse_below_swept(root)
    footers = _Footers(report)
    try:
        listed = yield from read_listed(root, footers.read)
    except SnapshotGoneError as error:
        raise _at_work(root, error.key or root.url) from error
    except DamagedError:
        # A table that was made meanwhile has the same files as one that has lost its records.
        yield from _refuse_table(root, layout)
        raise
    if listed is None:
        raise TableNotFoundError("There are no Parquet files to adopt.", table=root.url)
    listing = yield from list_objects(f"{root.prefix}/")
    _refuse_others(root, layout, listed, listing.objects)
    files = (it.key for items in listed.directory.partitions.values() for it in items)
    yield from refuse_expiry(root, {}, files)
    schema = _agreed(root, listed, footers)
    return AdoptionPlan(root, listed, schema, footers.statistics)


def _at_work(root: TableRoot, keys: str) -> TableMismatchError:
    return TableMismatchError(
        f"Files came, changed or went while the directory was read: {keys}. A writer is at work. "
        "Nothing was changed.",
        table=root.url,
        remedy="Adopt when no writer is at work.",
    )


def _refuse_table(root: TableRoot, layout: DeltaLayout) -> Step[None]:
    """Refuse a root that is a table already.

    :raises TableMismatchError: there is a table.
    """
    opened = yield from open_log(layout, LogDepth.BLIND)
    if opened.state.exists:
        raise TableMismatchError(
            "This is a Delta table: its log names its files, so that none is to be adopted. "
            "Nothing was changed.",
            table=root.url,
            remedy="Append the rows of other files by a job: save(…, layout='delta').",
        )
    if (yield from table_kind(root)) is TableKind.DIRECTORIES:
        raise TableMismatchError(
            "It is a table of directories with records of its own, which its readers and writers "
            "go by. Nothing was changed.",
            table=root.url,
            remedy=f"Copy it: zero-rename copy {root.url} NEW --layout delta",
        )


def _refuse_others(
    root: TableRoot, layout: DeltaLayout, listed: ListedTable, objects: Sequence[ListedObject]
) -> None:
    """Refuse other objects that a VACUUM would delete, and keys that a log cannot name.

    :raises TableMismatchError: there is such an object or key.
    """
    adopted = {item.key for items in listed.directory.partitions.values() for item in items}
    others = [
        it.key
        for it in objects
        if it.size > 0 and it.key not in adopted and _is_seen_by_vacuum(root, it.key)
    ]
    if others:
        raise TableMismatchError(
            f"Beside the files that would be adopted {counted(len(others), 'object')} would be no "
            f"part of the table, and a VACUUM would delete them: {first_few(sorted(others))}. "
            "Nothing was changed.",
            table=root.url,
            key=min(others),
            remedy="Move them away.",
        )
    for key in sorted(adopted):
        try:
            found = layout.root.key_of(layout.path_of(key))
        except RecordDamagedError:
            found = None
        if found != key:
            raise TableMismatchError(
                f"A log cannot name the key {key!r}. Nothing was changed.",
                table=root.url,
                key=key,
                remedy="Copy the object to another key.",
            )


def _is_seen_by_vacuum(root: TableRoot, key: str) -> bool:
    """Return whether Delta's VACUUM takes an object for data. It skips names that begin with ``_``
    or ``.``, but not directories of partitions whose column begins with ``_``."""
    names = key.removeprefix(f"{root.prefix}/").split("/")
    return not any(
        name.startswith(".") or (name.startswith("_") and "=" not in name) for name in names
    )


def _agreed(root: TableRoot, listed: ListedTable, footers: _Footers) -> pa.Schema:
    """Return the columns of the table: those of its files, each with one name and one type.

    :raises TableMismatchError: columns differ between files, or Delta has no type for a column.
    """
    names = [it for it in listed.schema.names if it not in listed.partition_by]
    first: dict[str, tuple[pa.DataType, str]] = {}
    unfit: dict[str, str] = {}
    for key, columns in footers.columns.items():
        if problem := _difference(columns, first, names):
            unfit[key] = problem
    refuse_unfit(root, unfit, "Nothing was changed.", _REMEDY)
    fields = [
        pa.field(it.name, first[it.name][0] if it.name in first else it.type)
        for it in listed.schema
    ]
    schema = pa.schema(fields)
    try:
        stored = storable(schema)
    except UnsupportedTypeError as error:
        raise TableMismatchError(
            error.message.replace("Nothing was written.", "Nothing was changed."),
            table=root.url,
            remedy=_REMEDY,
        ) from error
    if others := [f"{it.name} is {it.type}" for it in schema if stored.field(it.name) != it]:
        raise TableMismatchError(
            f"Delta has no type for the columns of the files: {', '.join(others)}. Nothing was "
            "changed.",
            table=root.url,
            remedy=_REMEDY,
        )
    return stored


def _difference(
    columns: FileColumns, first: dict[str, tuple[pa.DataType, str]], names: Sequence[str]
) -> str:
    """Return how a file's columns differ from those of the files before; ``""``: they agree.

    :param first: type and spelling of each column in the files before; new columns are added.
    :param names: the columns of all files together.
    """
    problems = []
    for given in columns.schema:
        name = find_column(given.name, names) or given.name
        kind, spelled = first.setdefault(name, (given.type, given.name))
        if spelled != given.name:
            problems.append(f"{given.name} is {spelled} in other files")
        elif kind != given.type:
            problems.append(f"{given.name} is {given.type} there, {kind} in other files")
    return "; ".join(problems)


def adopt_directory(
    root: TableRoot, layout: DeltaLayout, owner: Owner, report: Callable[[int, int], None]
) -> Step[AdoptReport]:
    """Make a directory a Delta table by a first entry. Its files stay where they lie.

    :param report: as in :func:`plan_adoption`.
    :raises TableMismatchError: the directory cannot be adopted; the error names the reason.
    :raises CommitConflictError: another job has made the table meanwhile. Nothing was changed.
    :raises CommitStateUnknownError: it is not known whether the table was made.
    """
    yield from _refuse_table(root, layout)
    told = {"application": owner.application} if owner.application else {}
    opened = yield from open_log_job(layout, iter(new_job_id, ""), told, LogDepth.BLIND)
    try:
        plan = yield from plan_adoption(root, layout, report)
        facts = yield from facts_of(root, opened.log.state, None)
        yield from refuse_second_writer(root, layout, opened.job, facts)
        change = yield from _change(layout, plan, opened.job, facts.atomic, told)
    except ZeroRenameError:
        # Only the open record was written.
        yield from close_refused(layout, opened.job)
        raise
    now = change.metadata.created_at if change.metadata is not None else None
    done = yield from commit_or_abandon(layout, opened.log, change, now or 0)
    assert isinstance(done, EntryCommitted)
    try:
        later, _ = yield from _changed(plan)
    except ZeroRenameError as error:
        unseen = {root.url: f"whether a file came meanwhile could not be seen: {error.message}"}
        return replace(plan.report(AdoptAction.ADOPTED), unfit=unseen)
    why = "it came or changed while others were adopted; append its rows by a job"
    return replace(plan.report(AdoptAction.ADOPTED), unfit={it.key: why for it in later})


def _change(
    layout: DeltaLayout, plan: AdoptionPlan, job: str, atomic: bool, owner: dict[str, Any]
) -> Step[LogChange]:
    """Build the first entry, after checking that the directory has not changed since its footers
    were read.

    :raises TableMismatchError: the directory has changed.
    """
    yield from _refuse_table(plan.root, layout)
    came, now = yield from _changed(plan)
    if came:
        raise _at_work(plan.root, first_few(sorted(it.key for it in came)))
    by = plan.listed.partition_by
    adds = []
    for partition, item in plan.files:
        values = written_values(partition, plan.schema, by)
        modified, statistics = int(item.last_modified * 1000), plan.statistics[item.key]
        path, tags = layout.path_of(item.key), {ADOPTED: "true"}
        adds.append(AddFile(path, values, item.size, modified, statistics=statistics, tags=tags))
    properties = {**PROPERTIES, ATOMIC: str(atomic).lower()}
    text = delta_schema(plan.schema)
    metadata = LogMetadata(str(uuid4()), text, by, properties, created_at=now)
    return LogChange(
        job,
        LogBase(-1),
        metadata,
        tuple(adds),
        metadata=metadata,
        protocol=needed_protocol(plan.schema),
        operation="CONVERT",
        owner=owner,
    )


def _changed(plan: AdoptionPlan) -> Step[tuple[list[ListedObject], int]]:
    """Find the files that came, changed or disappeared since the directory was read.

    :return: these files, and the time by the store's clock in Unix milliseconds."""
    listing = yield from list_objects(f"{plan.root.prefix}/")
    before = {item.key: item for _, item in plan.files}
    now = {
        it.key: it
        for it in listing.objects
        if it.size > 0 and _is_seen_by_vacuum(plan.root, it.key)
    }
    other = [it for key, it in now.items() if key not in before or before[key].etag != it.etag]
    gone = [it for key, it in before.items() if key not in now]
    return [*other, *gone], int(listing.date * 1000)
