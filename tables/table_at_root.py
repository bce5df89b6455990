"""Table at a root, of any layout: a table of directories, or a Delta table opened by its log."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import pyarrow as pa

from ..committer.commit.snapshot import Snapshot
from ..committer.commit.state.context import Context
from ..committer.commit.state.found_table import refuse_partition_folder
from ..committer.errors import InvalidInputError
from ..committer.format.as_of import AsOf
from ..committer.format.layout import TableRoot
from ..committer.scan.reads import note_read
from ..committer.store.requests import Step
from ..committer.table import Table
from ..layouts.delta.delta_layout import DeltaLayout
from ..log.opening import LogDepth, OpenedLog, open_log
from ..log.replay import LogState
from .delta_files import layout_of
from .delta_table import DeltaTable
from .opened_table import OpenedTable
from .seen_logs import note_log, seen_log
from .store_check import ATOMIC


@dataclass(frozen=True)
class TableAtRoot:
    """A table and its columns, at present or at a former moment.

    :param opened: the newest state of a Delta table, read together with its columns.
    """

    table: Table | DeltaTable
    schema: pa.Schema
    partition_by: tuple[str, ...]
    opened: OpenedTable | None = None

    def at(self, as_of: AsOf) -> TableAtRoot:
        """Return the table with the columns that it had at a moment; for a table of directories,
        with the present ones."""
        if not isinstance(self.table, DeltaTable):
            return self
        return TableAtRoot(self.table, *self.table.shape(as_of))

    def snapshot(
        self, partitions: Collection[str] | None = None, as_of: AsOf | None = None
    ) -> Snapshot:
        """Return one state of some partitions, or of all. It is recorded as an input of later jobs
        of this process. For a Delta table the newest state is the one that was opened.

        :param as_of: the moment whose state is read; ``None``: now.
        :raises InvalidInputError: ``as_of`` is given for a table of directories.
        """
        if isinstance(self.table, DeltaTable):
            if self.opened is None or as_of is not None:
                return self.table.snapshot(partitions, as_of)
            return note_read(self.opened.snapshot(partitions))
        if as_of is not None:
            raise InvalidInputError(
                f"as_of asks for a former state, {as_of}, and a table of directories keeps none; "
                "nothing was read.",
                table=self.table.root.url,
                remedy="Leave as_of out. Tables of layout='delta' keep their history.",
            )
        return self.table.snapshot(partitions)


def find_at_root(url: str) -> TableAtRoot:
    """Find the table at a root, by its record, its Delta log, or else files of other programs.

    :raises TableNotFoundError: there is no table and no file.
    :raises InvalidInputError: the root is a partition's directory of another table.
    """
    return replace(_at_root(url), opened=None)


def open_at_root(url: str) -> TableAtRoot:
    """Find the table at a root as :func:`find_at_root` does. For a Delta table also keep the state
    that was read together with its columns."""
    return _at_root(url)


def _at_root(url: str) -> TableAtRoot:
    table, delta = Table(url), DeltaTable(url)
    seen = seen_log(delta.driver, table.root)
    # A root with a log that this package has made has no table of directories. Beside a log of
    # another engine there may be one.
    if seen is not None and seen.property_of(ATOMIC):
        found = _delta_at(delta, seen)
        if found is not None:
            return found
    recorded = table.recorded_shape()
    if recorded is not None:
        return TableAtRoot(table, *recorded)
    return _delta_at(delta, seen) or TableAtRoot(table, table.schema, table.partition_by)


def _delta_at(delta: DeltaTable, seen: LogState | None) -> TableAtRoot | None:
    """Open a Delta table; ``None``: there is no such table."""
    root, layout = delta.root, layout_of(delta.root)
    log = delta.run(_open_delta(root, layout, seen))
    if log is None:
        return None
    note_log(delta.driver, root, log)
    opened = OpenedTable(root, layout, log, delta.run)
    return TableAtRoot(delta, *opened.shape(), opened)


def _open_delta(
    root: TableRoot, layout: DeltaLayout, seen: LogState | None
) -> Step[OpenedLog | None]:
    opened = yield from open_log(layout, LogDepth.BLIND, before=seen)
    if not opened.state.exists:
        return None
    # A partition's directory of another table is refused, even if it has a log.
    yield from refuse_partition_folder(Context(root))
    return opened
