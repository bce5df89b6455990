"""Condition on partitions, as a collection that answers ``in``; and the files with wanted rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache

import pyarrow as pa

from ..commit.snapshot import Snapshot
from ..format.parquet.reader import partition_constants
from ..format.parquet.row_filter import RowFilter
from ..format.records.data_file import DataFile


class PartitionCondition(Collection[str]):
    """Condition on partitions, asked for each partition in a listing.

    So the heads of other partitions need not be read.

    :param row_filter: which rows are wanted.
    :param schema: the table's.
    :param partition_by: its partition columns.
    :param named: only these partitions, as they are stored; ``None``: any.
    """

    def __init__(
        self,
        row_filter: RowFilter,
        schema: pa.Schema,
        partition_by: Sequence[str],
        named: Collection[str] | None,
    ) -> None:
        self._row_filter = row_filter
        self._partition_by = tuple(partition_by)
        self._columns = _partition_columns(schema, partition_by)
        self._named = named

    @property
    def named(self) -> Collection[str] | None:
        """Partitions by name that fulfil the condition; ``None``: it chooses among any."""
        return None if self._named is None else tuple(self)

    def encode(self) -> str | None:
        """Encode the condition as a string, as :meth:`.row_filter.RowFilter.encode`."""
        return self._row_filter.encode(self._partition_by)

    def __contains__(self, partition: object) -> bool:
        if self._named is not None and partition not in self._named:
            return False
        return self._row_filter.may_keep(_constants(str(partition), self._columns))

    def __iter__(self) -> Iterator[str]:
        return (partition for partition in self._named or () if partition in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _partition_columns(schema: pa.Schema, partition_by: Sequence[str]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in partition_by])


@lru_cache(maxsize=16_384)
def _constants(partition: str, columns: pa.Schema) -> Mapping[str, pa.Scalar]:
    """Parse the values of a partition; cached, since conditions of many queries need them."""
    return partition_constants(partition, partition, columns, columns.names)


def wanted_files(
    state: Snapshot, row_filter: RowFilter, named: Collection[str] | None = None
) -> tuple[DataFile, ...]:
    """Return the files of a state that may hold wanted rows.

    They are chosen by their partitions and by the recorded bounds of their columns. No request is
    sent.

    :param named: only files of these partitions, as they are stored; ``None``: of any.
    """
    found: list[DataFile] = []
    columns = _partition_columns(state.schema, state.partition_by)
    # If the condition is on other columns, the partitions' values decide nothing.
    asks = not row_filter.columns or not {*state.partition_by}.isdisjoint(row_filter.columns)
    for name, files in state.by_partition().items():
        if named is not None and name not in named:
            continue
        constants: Mapping[str, pa.Scalar] = {}
        if asks:
            constants = _constants(name, columns)
            if not row_filter.may_keep(constants):
                continue
        found += (file for file in files if row_filter.may_be_in(file, constants))
    return tuple(found)
