"""One state of a Delta table, as its log was read once: columns, and the files of partitions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import pyarrow as pa

from ..committer.commit.snapshot import Snapshot
from ..committer.format.layout import TableRoot
from ..committer.scan.current_table import stored_in
from ..layouts.delta.columns import arrow_schema
from ..layouts.delta.delta_layout import DeltaLayout
from ..log.replay import LogState
from .delta_files import snapshot_of


@dataclass(frozen=True)
class OpenedTable:
    """A table at one version. What is asked of it sends no request.

    :param state: was read with its files.
    """

    root: TableRoot
    layout: DeltaLayout
    state: LogState

    def shape(self) -> tuple[pa.Schema, tuple[str, ...]]:
        """The columns and the partition columns."""
        assert self.state.metadata is not None
        return arrow_schema(self.state.metadata), self.state.metadata.partition_columns

    def snapshot(self, partitions: Collection[str] | None = None) -> Snapshot:
        """The state of the partitions named, or of all.

        :param partitions: by name, or a condition for them; ``None``: all.
        :raises InvalidInputError: a partition that the table cannot have.
        """
        if partitions is not None:
            partitions = stored_in(self.root, self.shape, partitions)
        return snapshot_of(self.root, self.layout, self.state, partitions)
