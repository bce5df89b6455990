"""One state of a Delta table from one reading of its log: columns, and files of partitions."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from ..committer.commit.snapshot import Snapshot
from ..committer.format.layout import TableRoot
from ..committer.scan.current_table import stored_in
from ..committer.store.requests import Step
from ..layouts.delta.columns import arrow_schema
from ..layouts.delta.delta_layout import DeltaLayout
from ..log.opening import OpenedLog, read_files
from ..log.partitions import Partition
from .delta_files import partition_name, snapshot_of


@dataclass(frozen=True)
class OpenedTable:
    """A Delta table at one version.

    :param opened: the log at that version, with or without its files. If the version is a former
        one, it has the data roots that the table has now.
    :param run: carries out a step on the table's store.
    """

    root: TableRoot
    layout: DeltaLayout
    opened: OpenedLog
    run: Callable[[Step[OpenedLog]], Any]

    def shape(self) -> tuple[pa.Schema, tuple[str, ...]]:
        """Return the columns and the partition columns."""
        metadata = self.opened.state.metadata
        assert metadata is not None
        return arrow_schema(metadata), metadata.partition_columns

    def snapshot(self, partitions: Collection[str] | None = None) -> Snapshot:
        """Return the state of some partitions, or of all. No request is sent if opening the log has
        read the files already, as for a table of up to 400 files.

        :param partitions: by name, or a condition for them; ``None``: all.
        :raises InvalidInputError: the table cannot have such a partition.
        :raises SnapshotGoneError: others have cleaned the log since.
        """
        schema, by = self.shape()
        if partitions is not None:
            partitions = stored_in(self.root, self.shape, partitions)

        def wanted(partition: Partition) -> bool:
            return partitions is None or partition_name(partition, schema, by) in partitions

        state = self.run(read_files(self.layout, self.opened, wanted)).state
        state = replace(state, metadata=self.opened.state.metadata)
        return snapshot_of(self.root, self.layout, state, partitions)
