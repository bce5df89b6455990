"""Change of a table's rows by a job that writes the partitions anew which it changes.

The job goes by the state that the rows were computed from: it is refused where another one has
changed one of its partitions since, or made one that was not there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from .commit.snapshot import Snapshot
from .commit.state.context import Context
from .commit.state.found_table import find_table
from .commit.state.job_state import Committed
from .errors import InvalidInputError
from .format.job_spec import Content, Coordination, FileOptions, SchemaMode
from .format.records.inputs import Inputs
from .format.row_changes import ChangeReads, RowChanges
from .store.requests import Step
from .upkeep.compaction import content_kept, replacing_policies
from .write_job import WriteJob


@dataclass(frozen=True)
class TableChange:
    """What a merge, an update or a deletion did to a table.

    :param table: its root, ``s3://bucket/prefix``.
    :param rows: inserted, updated, deleted and unchanged ones, of the partitions that were read.
    :param partitions: those that were written anew, or are to be; ``left``: those that were read
        and are as they were. Not told where an earlier try of the run has done it: of these
        ``committed.change_reads`` has the number.
    :param bytes_read: of the files that the rows were computed from; ``bytes_written``: of the
        new ones.
    :param attempts: how often it was computed: once, and once more for each conflict.
    :param committed: the job; ``None`` where nothing was to be changed, or it was only asked for.
    """

    table: str
    rows: RowChanges
    partitions: tuple[str, ...]
    left: tuple[str, ...]
    bytes_read: int
    attempts: int = 1
    committed: Committed | None = None

    @staticmethod
    def done_before(done: Committed) -> TableChange:
        """What an earlier try of the run has done."""
        names = tuple(change.partition for change in done.partitions)
        rows = done.row_changes or RowChanges()
        read = 0 if done.change_reads is None else done.change_reads.bytes_read
        return TableChange(done.table, rows, names, (), read, committed=done)

    @staticmethod
    def of(
        state: Snapshot,
        counts: Mapping[str, RowChanges],
        changed: Collection[str],
        committed: Committed | None = None,
        attempts: int = 1,
    ) -> TableChange:
        """What is done to a state, or is to be.

        :param counts: by partition; ``changed``: those that are written anew.
        """
        return TableChange(
            state.root.url,
            RowChanges.sum([RowChanges(), *counts.values()]),
            tuple(sorted(changed)),
            tuple(sorted((state.by_partition().keys() | counts.keys()) - {*changed})),
            sum(file.size for file in state.files),
            attempts,
            committed,
        )

    def reads(self, counts: Mapping[str, RowChanges]) -> ChangeReads:
        """What the job's decision is to say of what was read."""
        rows = sum(counts[name].unchanged for name in self.left if name in counts)
        return ChangeReads(len(self.left), rows, self.bytes_read)

    @property
    def bytes_written(self) -> int:
        return 0 if self.committed is None else self.committed.bytes


@dataclass(frozen=True)
class RowPlan:
    """What a change is to make of a state.

    :param counts: what it does to the rows of each partition.
    :param changed: the partitions in which any row changes.
    :param write: hands the rows that these are to hold to a job.
    :param schema: what the table's columns are to be.
    :param brings_rows: whether some of them may come of something else than the table's own.
    :param why_not_repeatable: why it would change rows once more, made on what it has left.
    """

    state: Snapshot
    counts: Mapping[str, RowChanges]
    changed: Collection[str]
    write: Callable[[WriteJob], None]
    schema: pa.Schema
    schema_mode: SchemaMode = SchemaMode.KEEP
    brings_rows: bool = False
    why_not_repeatable: str | None = None

    def report(self, committed: Committed | None = None, attempts: int = 1) -> TableChange:
        """What was done, or is to be."""
        return TableChange.of(self.state, self.counts, self.changed, committed, attempts)


def check_rewritable(context: Context) -> Step[None]:
    """Refuse a table whose writers do not notice each other.

    :raises InvalidInputError: it is of coordination *none*.
    """
    found = yield from find_table(context)
    if found is not None and found.record.coordination is Coordination.NONE:
        raise InvalidInputError(
            "In a table of coordination=none there is nothing by which another writer's rows would "
            "be noticed, so they could be lost. Nothing was changed.",
            table=context.root.url,
            remedy="Load the partitions again, with mode overwrite.",
        )


def rewrite_policies(
    context: Context, state: Snapshot, changes: Mapping[str, RowChanges], files: FileOptions
) -> Step[tuple[dict[str, Any], list[Inputs]]]:
    """As :func:`.compaction.replacing_policies`, of some partitions of a state whose rows change;
    no inputs where the partitions hold no rows.

    :param changes: what is done to the rows of each of them.
    :param files: as the caller wants them written; by rows are known, too, those that were.
    """
    there = state.of(changes.keys())
    policies, inputs = yield from replacing_policies(context, there, changes)
    policies |= {
        "base": state.base,
        "serializable": state.read is not None,
        "row_changes": dict(changes),
    }
    if content_kept(there.files) is Content.ROWS:
        policies["files"] = replace(files, content=Content.ROWS)
    return policies, [inputs] if there.files else []
