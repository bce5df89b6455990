"""Data files as listings show them."""

from __future__ import annotations

from ..layout import UNPARTITIONED, TableRoot, is_hidden
from ..s3.listing import list_objects
from ..s3.requests import ListedObject, Step
from .context import Context


def has_columns(partition: str, columns: tuple[str, ...]) -> bool:
    """Whether a path has a partition table's number of ``column=value`` directories."""
    parts = partition.split("/")
    return len(parts) == len(columns) and all("=" in part for part in parts)


def _belongs(partition: str, columns: tuple[str, ...]) -> bool:
    return has_columns(partition, columns) if columns else partition == UNPARTITIONED


def list_data(root: TableRoot, partition: str) -> Step[list[ListedObject]]:
    """A partition's direct children that are data: names that begin with ``_`` or ``.`` never
    are, nor are the empty objects that some tools write for directories."""
    prefix = root.partition_prefix(partition)

    def is_data(item: ListedObject) -> bool:
        name = item.key.removeprefix(prefix)
        return bool(name) and not is_hidden(name)

    listing = yield from list_objects(prefix, direct=True, wanted=is_data)
    return list(listing.objects)


def list_table(
    context: Context, partition_by: tuple[str, ...]
) -> Step[dict[str, list[ListedObject]]]:
    """Every data file of a table, by partition: one request per thousand keys.

    Files elsewhere than in a partition of the table are left out.
    """
    # Without partitions the files are direct children, and nothing else need be listed.
    listing = yield from list_objects(f"{context.root.prefix}/", direct=not partition_by)
    found: dict[str, list[ListedObject]] = {}
    for item in listing.objects:
        partition = context.root.partition_of_data_key(item.key)
        if partition is not None and _belongs(partition, partition_by):
            found.setdefault(partition, []).append(item)
    return found
