"""Files of a Delta table: as its log names them, as tasks report them, as readers meet them."""

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
from ..log.actions import AddFile, RemoveFile
from ..log.copies import source_of
from ..log.partitions import Partition
from ..log.replay import LogState
from ..log.scope import Scope

#: The tag of files that a job has adopted, and not written.
ADOPTED = "adopted"
#: The tag of what a file's rows are known by, in whatever order or file they are.
CONTENT = "content"
#: The tag of the columns that a job has sorted a file's rows by.
SORTED = "sorted"
#: Where most writers put the rows: a table of a million files has no million of texts to parse.
_ROWS_FIRST = re.compile(r'\{"numRecords":(\d{1,18})[,}]', re.ASCII)


def log_partition(path: str, schema: pa.Schema, partition_by: Sequence[str]) -> Partition:
    """A partition as the log has it, of its name ``day=2013-01-01``.

    :raises InvalidInputError: the table cannot have it.
    """
    if not partition_by:
        return ()
    values = partition_values(path, schema, partition_by)
    return tuple(partition_text(values[name]) for name in partition_by)


def written_values(
    path: str, schema: pa.Schema, partition_by: Sequence[str]
) -> dict[str, str | None]:
    """The values of a partition as an entry has them, of its name ``day=2013-01-01``."""
    if not partition_by:
        return {}
    values = partition_values(path, schema, partition_by)
    return {name: written_text(values[name]) for name in partition_by}


def partition_name(partition: Partition, schema: pa.Schema, partition_by: Sequence[str]) -> str:
    """The name of a partition, of its values in the log.

    :raises RecordDamagedError: a value is not of its column's type.
    """
    if not partition_by:
        return UNPARTITIONED
    columns = pa.schema([schema.field(name) for name in partition_by])
    return _canonical_name(partition, columns)


@lru_cache(maxsize=16_384)
def _canonical_name(partition: Partition, columns: pa.Schema) -> str:
    """The name of a partition, of its values in the log. Who opens a table again asks for the same
    ones."""
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
    """Name a partition by its values as the log has them, of whatever type."""
    if not partition_by:
        return UNPARTITIONED
    pairs = zip(partition_by, partition, strict=True)
    return "/".join(f"{escape(name)}={escape(text) if text else NULL}" for name, text in pairs)


def name_told(partition: Partition, schema: pa.Schema, partition_by: Sequence[str]) -> str:
    """Name a partition of a committed entry, also where its values do not fit the columns."""
    try:
        return partition_name(partition, schema, partition_by)
    except RecordDamagedError:
        return name_as_written(partition, partition_by)


def scope_of(names: Collection[str], schema: pa.Schema, partition_by: Sequence[str]) -> Scope:
    """The scope of partitions by their names."""
    return Scope(frozenset(log_partition(name, schema, partition_by) for name in names))


def added_file(
    layout: DeltaLayout,
    file: PendingFile,
    schema: pa.Schema,
    partition_by: Sequence[str],
    sorted_by: Sequence[str],
    now: int,
) -> AddFile:
    """What the log says of a file that a task has written.

    :param sorted_by: columns that its rows are sorted by.
    :param now: milliseconds.
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
    """Refuse files with a null in a column that must not be null, by their statistics.

    :raises InvalidInputError: names the column.
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
    """The rows of a file of the log; -1: it does not say."""
    if first := _ROWS_FIRST.match(add.statistics or ""):
        return int(first[1])
    try:
        found = json.loads(add.statistics or "{}").get("numRecords", -1)
    except (ValueError, AttributeError):
        return -1
    return found if isinstance(found, int) and found >= 0 else -1


def version_of_job(file: AddFile | RemoveFile) -> int | None:
    """The version of the entry by which a job of this package has added a file; ``None``: the file
    does not say."""
    version = file.tags.get("v") or ""
    return int(version) if version.isdecimal() and file.tags.get("job") else None


def data_file(layout: DeltaLayout, state: LogState, add: AddFile, partition: str) -> DataFile:
    """A live file of a state as readers meet it. One that a job of this package did not write, but
    has adopted perhaps, has any columns, so that its footer is read."""
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
        # No bounds, whatever stands in the tag: those of the log's statistics count.
        order_text(sorted_by),
        content=content if job and is_content(content) else "",
        may_lack=True,
        statistics=add.statistics or "",
        same_as=_source_key(layout, state, add),
    )


def _source_key(layout: DeltaLayout, state: LogState, add: AddFile) -> str:
    """The key of the file that a checkpoint has copied; empty: it is no copy."""
    source = source_of(add)
    if source == add.path:
        return ""
    try:
        return layout.key_of(source, state)
    except RecordDamagedError:
        return ""  # Another engine has taken its root off the record; nobody opens it.


def snapshot_of(
    root: TableRoot, layout: DeltaLayout, state: LogState, asked: Collection[str] | None = None
) -> Snapshot:
    """The state of a table as scans read it.

    :param state: that was read with its files.
    :param asked: partitions by name, or a condition for them; ``None``: all.
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
    files.sort(key=lambda it: it.partition)  # Stable: within a partition by age.
    versions = {it.partition: state.version for it in files}
    return Snapshot(
        root, schema, by, tuple(files), versions, asked, log_version=state.version, entries=entries
    )
