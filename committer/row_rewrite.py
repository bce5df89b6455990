"""Change of a table's rows by a job that rewrites only the partitions with changes.

The job goes by the state that the rows were computed from: it is refused if another job has changed
one of its partitions since, or made one that was not there.
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
    """Report of a merge, an update or a deletion.

    :param table: its root, ``s3://bucket/prefix``.
    :param rows: inserted, updated, deleted and unchanged ones, of the partitions that were read.
    :param partitions: those that were rewritten, or are to be; ``left``: those that were read and
        stay as they were. ``left`` is empty if an earlier attempt of the run made the change: then
        ``committed.change_reads`` has their number.
    :param bytes_read: of the files that the rows were computed from; ``bytes_written``: of the new
        ones.
    :param attempts: how often it was computed: once, and once more for each conflict.
    :param committed: the job; ``None`` if nothing was to be changed, or the change was only
        planned.
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
        """Build the report of a change that an earlier attempt of the run has made."""
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
        """Build the report of a change of a state, made or planned.

        :param counts: by partition; ``changed``: those that are rewritten.
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
        """Return what the job's decision records about the rows that were read."""
        rows = sum(counts[name].unchanged for name in self.left if name in counts)
        return ChangeReads(len(self.left), rows, self.bytes_read)

    @property
    def bytes_written(self) -> int:
        return 0 if self.committed is None else self.committed.bytes


@dataclass(frozen=True)
class RowPlan:
    """Plan of a change of a state.

    :param counts: its changes of the rows of each partition.
    :param changed: the partitions in which any row changes.
    :param write: passes the rows that these are to hold to a job.
    :param schema: the table's columns after the change.
    :param brings_rows: whether some rows may come from outside of the table.
    :param why_not_repeatable: why it would change rows again if repeated on its own result.
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
        """Build the report of the plan, carried out or not."""
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
    """Return the policies of a job that changes rows of some partitions of a state, and its inputs.

    Like :func:`.compaction.replacing_policies`. There are no inputs if the partitions hold no rows.

    :param changes: for each partition, the changes of its rows.
    :param files: how the caller wants the files written. The content of their rows is recorded even
        if ``files`` does not say so, if it is recorded for the present files.
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
