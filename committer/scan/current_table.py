"""Table at a root as it is now: by its record, or by its files if another committer wrote it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set

import pyarrow as pa

from ..commit.snapshot import Snapshot, take_snapshot
from ..commit.state.context import Context
from ..commit.state.found_table import find_table, read_table, refuse_partition_folder
from ..errors import (
    InvalidInputError,
    RecordDamagedError,
    TableNotFoundError,
    ZeroRenameError,
    about,
)
from ..format.job_spec import texts_in
from ..format.layout import TableRoot
from ..format.parquet.foreign_table import ListedTable, read_listed
from ..format.records.table_record import TableRecord
from ..format.schema.hive_paths import normalise_partition
from ..store.requests import Step


def table_exists(context: Context) -> Step[bool]:
    """Return whether there is a table of this package, even one whose record is damaged."""
    try:
        found = yield from find_table(context)
    except RecordDamagedError:
        return True
    return found is not None and found.counts


def current_table(context: Context, as_spelled: bool = False) -> Step[TableRecord | ListedTable]:
    """Read a table's record; without one, derive the table from its files.

    :param as_spelled: for files, as in :func:`.read_listed`.
    :raises TableNotFoundError: no record and no files.
    :raises InvalidInputError: the root is a partition of a table.
    :raises TableMismatchError: no record, and the files are not one table, or are one of another
        format.
    """
    while True:
        try:
            return (yield from read_table(context))
        except TableNotFoundError:
            yield from refuse_partition_folder(context)
            listed = problem = None
            try:
                listed = yield from read_listed(context.root, context.read_columns, as_spelled)
            except ZeroRenameError as error:
                problem = error
            if (yield from table_exists(context)):
                continue  # A table was made meanwhile: the listing may show half of its first job.
            if problem is not None:
                raise problem from None
            if listed is None:
                raise
            return listed


def current_snapshot(context: Context, partitions: Collection[str] | None) -> Step[Snapshot]:
    """Read one state of a table; if another committer wrote it, the state that a listing shows.

    :param partitions: in the form in which they are stored; ``None`` for all.
    """
    while True:
        try:
            return (yield from take_snapshot(context, partitions))
        except TableNotFoundError:
            found = yield from current_table(context)
            if isinstance(found, ListedTable):
                files = found.of(partitions)
                schema, partition_by = found.schema, found.partition_by
                return Snapshot(
                    context.root, schema, partition_by, files, {}, partitions, lists=True
                )


def stored_names(
    context: Context, table: TableRecord | ListedTable, partitions: Collection[str]
) -> Collection[str]:
    """Convert names of partitions from users to the form in which they are stored.

    :param partitions: a list, or a condition that is asked about each partition.
    :raises InvalidInputError: a partition that this table cannot have, or a string instead of a
        list.
    """
    return stored_in(context.root, lambda: (table.schema, table.partition_by), partitions)


def stored_in(
    root: TableRoot,
    shape: Callable[[], tuple[pa.Schema, tuple[str, ...]]],
    partitions: Collection[str],
) -> Collection[str]:
    """Convert names of partitions as :func:`stored_names`; read the columns only if needed.

    :param shape: returns the table's columns and partition columns.
    """
    partitions = given_partitions(root, partitions)
    if not isinstance(partitions, tuple):
        return partitions
    schema, by = shape()
    with about(root.url):
        return frozenset(normalise_partition(p, schema, by) for p in partitions)


def given_partitions(root: TableRoot, partitions: Iterable[str]) -> Collection[str]:
    """Return the names in an argument as a tuple; return a condition unchanged.

    The names may come in any collection: an array, a column of a frame or an iterator, for example.
    A condition is of a class derived from ``Collection`` that is not a sequence, set or mapping.

    :raises InvalidInputError: a string instead of a list, or items that are not strings.
    """
    if isinstance(partitions, Collection) and _is_condition(partitions):
        return partitions
    names = texts_in(partitions)
    if names is None:
        is_text = isinstance(partitions, str)
        what = f"the text {partitions!r}, not" if is_text else f"{partitions!r:.200}, which is not"
        raise InvalidInputError(
            f"partitions is {what} a list of partitions.",
            table=root.url,
            remedy=f"Give a list: partitions=[{partitions if is_text else 'day=2013-01-01'!r}].",
        )
    return names


def _is_condition(partitions: Collection[str]) -> bool:
    is_listed = isinstance(partitions, Sequence | Set | Mapping)
    return Collection in type(partitions).__mro__ and not is_listed
