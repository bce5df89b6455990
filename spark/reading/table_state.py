"""State of a table that a reader plans on, noted for the writes that may come of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from ...committer.commit.snapshot import Snapshot
from ...committer.errors import TableMismatchError
from ...committer.format.as_of import AsOf
from ...committer.format.schema.hive_paths import normalise_partition
from ...committer.scan.partition_condition import wanted_files
from ...committer.scan.reads import read_of
from ...committer.table import Table
from .predicate import row_filter, selected_partitions
from .table_reads import TableReads


@dataclass(frozen=True)
class TableSelection:
    """What is wanted of a table.

    :param partitions: those alone, ``day=2013-01-01``; ``None`` for any.
    :param where: a condition in Spark's SQL, or ``None``.
    :param as_of: the moment whose state is read; ``None``: now.
    """

    partitions: tuple[str, ...] | None = None
    where: str | None = None
    as_of: AsOf | None = None


def plan_on(
    table: Table, schema: pa.Schema, by: Sequence[str], wanted: TableSelection, reads: TableReads
) -> Snapshot:
    """Fix the state of the partitions that may hold rows, and note it, unless it is a former one.
    Its files are those that may hold rows, as far as the table has that on record.

    :param schema: the table's, as it was when the columns were chosen; ``by``: its partition
        columns.
    :raises InvalidInputError: a partition that the table cannot have.
    :raises TableMismatchError: the table has another schema by now.
    """
    named = wanted.partitions
    if named is not None:
        named = tuple(normalise_partition(path, schema, by) for path in named)
    selected = (
        named if wanted.where is None else selected_partitions(wanted.where, schema, by, named)
    )
    snapshot = table.snapshot(selected, wanted.as_of)
    there = {field.name: field.type for field in snapshot.schema}
    if any(there.get(field.name) != field.type for field in schema):
        raise TableMismatchError(
            "The table's schema changed while the query was planned.",
            table=table.root.url,
            remedy="Load the table anew.",
        )
    if wanted.as_of is None:  # Who reads the past knows that there is a present.
        open_ended = named is None and selected is not None
        # Of a partition whose files are all left out, rows were read nevertheless: none.
        reads.planned(snapshot.base, wanted.where if open_ended else None)
    reads.read(read_of(snapshot))
    kept = row_filter(wanted.where, schema)
    return snapshot if kept is None else replace(snapshot, files=wanted_files(snapshot, kept))
