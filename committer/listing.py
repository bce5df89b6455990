"""Data files as listings show them."""

from __future__ import annotations

from .context import Context
from .layout import UNPARTITIONED, is_hidden
from .store import ListedObject, ListObjects, Step


def has_columns(partition: str, columns: tuple[str, ...]) -> bool:
    """Whether a path has a partition table's number of ``column=value`` directories."""
    parts = partition.split("/")
    return len(parts) == len(columns) and all("=" in part for part in parts)


def _belongs(partition: str, columns: tuple[str, ...]) -> bool:
    return has_columns(partition, columns) if columns else partition == UNPARTITIONED


def list_data(context: Context, partition: str) -> Step[list[ListedObject]]:
    """A partition's direct children that are data: names that begin with ``_`` or ``.`` never
    are, nor are the empty objects that some tools write for directories."""
    prefix = context.root.partition_prefix(partition)
    items: list[ListedObject] = []
    token = None
    while True:
        page = yield ListObjects(prefix, delimiter=True, token=token)
        for item in page.objects:
            name = item.key.removeprefix(prefix)
            if name and not is_hidden(name):
                items.append(item)
        token = page.token
        if token is None:
            return items


def list_table(
    context: Context, partition_by: tuple[str, ...]
) -> Step[dict[str, list[ListedObject]]]:
    """Every data file of a table, by partition: one request per thousand keys.

    Files elsewhere than in a partition of the table are left out.
    """
    found: dict[str, list[ListedObject]] = {}
    prefix, token = f"{context.root.prefix}/", None
    while True:
        # Without partitions the files are direct children, and nothing else need be listed.
        page = yield ListObjects(prefix, delimiter=not partition_by, token=token)
        for item in page.objects:
            partition = context.root.partition_of_data_key(item.key)
            if partition is not None and _belongs(partition, partition_by):
                found.setdefault(partition, []).append(item)
        token = page.token
        if token is None:
            return found
