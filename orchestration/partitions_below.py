"""Partitions below a directory, found by a listing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..committer.format.layout import UNPARTITIONED
from ..committer.format.records.head import partition_of_slot_key
from ..committer.store.listing import list_objects
from .delta_query import partitions_in

if TYPE_CHECKING:
    from ..committer import Table
    from ..tables import DeltaTable


def partitions_below(table: Table | DeltaTable, directory: str, by_heads: bool) -> tuple[str, ...]:
    """Find the partitions below a directory.

    This takes a request for each thousand heads or objects. For a Delta table it reads the log.

    :param directory: the path above them, such as ``year=2013``; ``""`` for the table's root.
    :param by_heads: find partitions that have a head; else those with files in their folders.
    """
    # Imported on use: processes that only parse DAG files need not load it.
    from ..tables import DeltaTable

    if isinstance(table, DeltaTable):
        return partitions_in(table, directory)
    root = table.root
    prefix = root.heads_prefix if by_heads else root.partition_prefix(directory or UNPARTITIONED)
    names = set[str | None]()
    for item in table.run(list_objects(prefix)).objects:
        if by_heads:
            names.add(partition_of_slot_key(root, item.key))
        elif root.is_data(item):
            names.add(root.partition_of_data_key(item.key))
    below = f"{directory}/" if directory else ""
    known = names - {None, UNPARTITIONED}
    return tuple(sorted(name for name in known if name is not None and name.startswith(below)))
