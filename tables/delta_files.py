"""Files of a Delta table: conversions between those of tasks, log entries and readers."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache

import pyarrow as pa

from ..committer.commit.snapshot import Snapshot
from ..committer.errors import InvalidInputError, RecordDamagedError
from ..committer.format.layout import UNPARTITIONED, TableRoot
from ..committer.format.parquet.column_bounds import order_text, sort_order
from ..committer.format.records.data_file import DataFile, is_content
from ..committer.format.records.pending_file import PendingFile
from ..committer.format.schema.hive_paths import NULL, escape, partition_path, partition_values
from ..layouts.delta.columns import arrow_schema
from ..layouts.delta.delta_layout import DeltaLayout
from ..layouts.delta.partition_text import partition_text, written_text
from ..layouts.delta.paths import DeltaRoot
from ..log.actions import AddFile, RemoveFile
from ..log.copies import source_of
from ..log.partitions import Partition
from ..log.replay import LogState
from ..log.scope import Scope

#: The tag of files that a job has adopted instead of written.
ADOPTED = "adopted"
#: The tag with a digest of a file's rows that does not depend on their order or file.
CONTENT = "content"
#: The tag with the columns by which a job has sorted a file's rows.
SORTED = "sorted"
#: Most writers put the row count first. Then a table of a million files need not parse as many
#: JSON objects.
_ROWS_FIRST = re.compile(r'\{"numRecords":(\d{1,18})[,}]', re.ASCII)


def log_partition(path: str, schema: pa.Schema, partition_by: Sequence[str]) -> Partition:
    """Return a partition as the log has it, from its name, such as ``day=2013-01-01``.

    :raises InvalidInputError: the table cannot have such a partition.
    """
    if not partition_by:
        return ()
    values = partition_values(path, schema, partition_by)
    return tuple(partition_text(values[name]) for name in partition_by)


def written_values(
    path: str, schema: pa.Schema, partition_by: Sequence[str]
) -> dict[str, str | None]:
    """Return the values of a partition as an entry has them, from its name, such as
    ``day=2013-01-01``."""
    if not partition_by:
        return {}
    values = partition_values(path, schema, partition_by)
    return {name: written_text(values[name]) for name in partition_by}


def partition_name(partition: Partition, schema: pa.Schema, partition_by: Sequence[str]) -> str:
    """Return the name of a partition from its values in the log.

    :raises RecordDamagedError: a value is not of its column's type.
    """
    if not partition_by:
        return UNPARTITIONED
    columns = pa.schema([schema.field(name) for name in partition_by])
    return _canonical_name(partition, columns)


@lru_cache(maxsize=16_384)
def _canonical_name(partition: Partition, columns: pa.Schema) -> str:
    """Return the name of a partition from its values in the log. It is cached, since a table that
    is opened again has the same partitions."""
    raw = name_as_written(partition, columns.names)
    try:
        return partition_path(partition_values(raw, columns, columns.names), columns)
    except InvalidInputError as error:
        raise RecordDamagedError(
            f"The log names a partition that the table cannot have: {error.message} Nothing was "
            "read.",
            field="partitionValues",
        ) from error


def name_as_written(partition: Partition, partition_by: Sequence[str]) -> str:
    """Return the name of a partition by its values as the log has them, without their types."""
    if not partition_by:
        return UNPARTITIONED
    pairs = zip(partition_by, partition, strict=True)
    return "/".join(f"{escape(name)}={escape(text) if text else NULL}" for name, text in pairs)


def name_told(partition: Partition, schema: pa.Schema, partition_by: Sequence[str]) -> str:
    """Return the name of a partition in a committed entry, even if its values do not fit the
    columns.

    An entry from before another engine partitioned the table by other columns may have more or
    fewer values. Then the name has the values alone, so that it is that of no present partition.
    """
    if partition_by and len(partition) != len(partition_by):
        return "/".join(escape(text) if text else NULL for text in partition)
    try:
        return partition_name(partition, schema, partition_by)
    except RecordDamagedError:
        return name_as_written(partition, partition_by)


def scope_of(names: Collection[str], schema: pa.Schema, partition_by: Sequence[str]) -> Scope:
    """Return the scope of partitions that are given by their names."""
    return Scope(frozenset(log_partition(name, schema, partition_by) for name in names))


def added_file(
    layout: DeltaLayout,
    file: PendingFile,
    schema: pa.Schema,
    partition_by: Sequence[str],
    sorted_by: Sequence[str],
    now: int,
) -> AddFile:
    """Return the action that adds a file that a task has written.

    :param sorted_by: the columns by which its rows are sorted.
    :param now: Unix milliseconds.
    """
    values = written_values(file.partition, schema, partition_by)
    tags = {CONTENT: file.content} if file.content else {}
    if sorted_by:
        tags[SORTED] = order_text(sorted_by)
    return AddFile(
        layout.path_of(file.key), values, file.size, now, statistics=file.summary, tags=tags
    )


def refuse_nulls(
    files: Iterable[PendingFile], schema: pa.Schema, partition_by: Sequence[str]
) -> None:
    """Refuse files whose statistics show a null in a column that must not be null.

    :raises InvalidInputError: there may be such a null; the error names the column.
    """
    never = [field.name for field in schema if not field.nullable]
    if not never:
        return
    for file in files:
        counts = json.loads(file.summary).get("nullCount", {})
        partition = log_partition(file.partition, schema, partition_by)
        of_partition = dict(zip(partition_by, partition, strict=True))
        for name in never:
            absent = of_partition[name] is None if name in of_partition else counts.get(name, 1)
            if absent:
                raise InvalidInputError(
                    f"The column {name!r} must not be null in this table, and rows of the job have "
                    "null there. Nothing of this job is visible.",
                    key=file.key,
                    remedy="Fill the column, or leave those rows out.",
                )


def rows_of_add(add: AddFile) -> int:
    """Return the row count of a file in the log; -1: it is unknown."""
    if first := _ROWS_FIRST.match(add.statistics or ""):
        return int(first[1])
    try:
        found = json.loads(add.statistics or "{}").get("numRecords", -1)
    except (ValueError, RecursionError, AttributeError):
        return -1
    return found if isinstance(found, int) and found >= 0 else -1


def version_of_job(file: AddFile | RemoveFile) -> int | None:
    """Return the version of the entry by which a job of this package added a file; ``None``: the
    file's tags do not name it."""
    version = file.tags.get("v") or ""
    return int(version) if version.isdecimal() and file.tags.get("job") else None


def data_file(layout: DeltaLayout, state: LogState, add: AddFile, partition: str) -> DataFile:
    """Return a live file of a state in the form for readers. If no job of this package wrote it
    (another engine did, or it was adopted), it may have any columns, so its footer must be read."""
    job = "" if ADOPTED in add.tags else add.tags.get("job") or ""
    rows = rows_of_add(add) if job else -1
    content = add.tags.get(CONTENT) or ""
    sorted_by = sort_order(add.tags.get(SORTED) or "") if job else ()
    return DataFile(
        layout.key_of(add.path, state),
        partition,
        add.size,
        rows,
        "",
        job,
        # Only the sort order; bounds come from the log's statistics, not from the tag.
        order_text(sorted_by),
        content=content if job and is_content(content) else "",
        may_lack=True,
        statistics=add.statistics or "",
        same_as=_source_key(layout, state, add),
    )


def _source_key(layout: DeltaLayout, state: LogState, add: AddFile) -> str:
    """Return the key of a copy's source; ``""``: the file is not a copy, or its source's root is
    not recorded any more."""
    source = source_of(add)
    if source == add.path:
        return ""
    try:
        return layout.key_of(source, state)
    except RecordDamagedError:
        return ""  # Another engine has removed its root from the properties; no reader opens it.


def snapshot_of(
    root: TableRoot, layout: DeltaLayout, state: LogState, asked: Collection[str] | None = None
) -> Snapshot:
    """Return the snapshot of a state, as scans need it.

    :param state: a state that was read with its files.
    :param asked: the names of partitions, or a condition for them; ``None``: all.
    """
    assert state.metadata is not None
    schema, by = arrow_schema(state.metadata), state.metadata.partition_columns
    names: dict[Partition, str] = {}
    files: list[DataFile] = []
    entries: dict[str, int] = {}
    for add in state.live.values():
        partition = state.partition(add) or ()
        name = names.get(partition)
        if name is None:
            name = names[partition] = partition_name(partition, schema, by)
        if asked is None or name in asked:
            file = data_file(layout, state, add, name)
            files.append(file)
            if file.job and (at := version_of_job(add)) is not None:
                entries[file.job] = at
    files.sort(key=lambda it: it.partition)  # A stable sort: by age within a partition.
    versions = {it.partition: state.version for it in files}
    return Snapshot(
        root, schema, by, tuple(files), versions, asked, log_version=state.version, entries=entries
    )


def layout_of(root: TableRoot) -> DeltaLayout:
    """Return the layout of the table at a root."""
    return DeltaLayout(DeltaRoot(root.bucket, f"{root.prefix}/"))
