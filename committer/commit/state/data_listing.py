"""Data files, as listings of the store show them."""

from __future__ import annotations

from collections.abc import Collection

from ...format.layout import UNPARTITIONED, TableRoot, is_hidden
from ...format.records.data_file import DataFile
from ...format.records.table_record import TableRecord
from ...format.schema.directory import canonical_name
from ...format.schema.hive_paths import is_decodable, unescape
from ...store.listing import list_folders, list_objects
from ...store.requests import All, ListedObject, Step
from .context import Context


def _belongs(partition: str, columns: tuple[str, ...]) -> bool:
    """Return whether a path consists of a table's ``column=value`` directories, with any values."""
    if not columns:
        return partition == UNPARTITIONED
    parts = partition.split("/")
    columns_of = [part.partition("=")[0] for part in parts if "=" in part]
    names = [unescape(name) for name in columns_of if is_decodable(name)]
    return len(names) == len(parts) and names == list(columns)


def list_data(root: TableRoot, partition: str) -> Step[list[ListedObject]]:
    """List the data files that lie directly in a partition's directory.

    Names that begin with ``_`` or ``.`` are not data, nor are the empty objects that some tools
    write for directories.
    """
    prefix = root.partition_prefix(partition)

    def is_data(item: ListedObject) -> bool:
        name = item.key.removeprefix(prefix)
        return bool(name) and not is_hidden(name)

    listing = yield from list_objects(prefix, direct=True, wanted=is_data)
    return list(listing.objects)


def list_table(
    context: Context, partition_by: tuple[str, ...]
) -> Step[dict[str, list[ListedObject]]]:
    """List every data file of a table, by partition: one request per thousand keys.

    Files outside of the table's partitions are left out.
    """
    # Without partitions all data files are direct children.
    listing = yield from list_objects(f"{context.root.prefix}/", direct=not partition_by)
    found: dict[str, list[ListedObject]] = {}
    for item in listing.objects:
        partition = context.root.partition_of_data_key(item.key)
        if partition is None or not context.root.is_data(item):
            continue
        if _belongs(partition, partition_by):
            found.setdefault(partition, []).append(item)
    return found


def list_directories(context: Context, partition_by: tuple[str, ...]) -> Step[list[str]]:
    """List the partitions that have directories.

    Requests: one for each directory above them, and for each thousand.
    """
    level = [""]
    for depth in range(1, len(partition_by) + 1):
        folders = tuple(list_folders(f"{context.root.prefix}/{above}") for above in level)
        children = yield from All(folders)
        level = [
            f"{above}{name}/"
            for above, names in zip(level, children, strict=True)
            for name in names
            if _belongs(f"{above}{name}", partition_by[:depth])
        ]
    return [path.rstrip("/") for path in level]


def list_partitions(
    context: Context, partition_by: tuple[str, ...], partitions: Collection[str] | None
) -> Step[dict[str, list[ListedObject]]]:
    """List the data files of some partitions, by partition; partitions without files are left out.

    :param partitions: Hive-escaped partition paths, or any object that answers by ``in`` whether a
        partition is meant; ``None`` for all.
    """
    if isinstance(partitions, tuple | list | set | frozenset):
        names = sorted(set(partitions))
        found = yield from All(tuple(list_data(context.root, name) for name in names))
        return {name: files for name, files in zip(names, found, strict=True) if files}
    # A filter over partition columns cannot enumerate its partitions.
    every = yield from list_table(context, partition_by)
    return {n: every[n] for n in sorted(every) if partitions is None or n in partitions}


def list_older(
    context: Context, table: TableRecord, partitions: Collection[str] | None
) -> Step[dict[str, list[ListedObject]]]:
    """List the data files in the partitions of a table over older files, by partition.

    A directory with values that are not of the columns' types is left out. A directory whose
    escaped bytes are not UTF-8 is not left out: an error at reading its files is better than losing
    their rows.

    :param partitions: as in :func:`list_partitions`.
    """
    if isinstance(partitions, tuple | list | set | frozenset):
        return (yield from list_partitions(context, table.partition_by, partitions))
    every = yield from list_table(context, table.partition_by)
    return {
        name: items
        for name, items in every.items()
        if not (
            is_decodable(name) and canonical_name(name, table.schema, table.partition_by) is None
        )
        and (partitions is None or name in partitions)
    }


def foreign_file(partition: str, item: ListedObject) -> DataFile:
    """Build the record of a listed file whose rows have not been counted."""
    return DataFile(item.key, partition, item.size, rows=-1, checksum="", job="")
