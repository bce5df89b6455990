"""Directory of data files without a record: its partitions and partition columns, if any.

Files lie in Hive-style directories, at the root, or elsewhere. Partition directories make the
layout; without any, the files at the root do. Files at the root beside partitions, and files below
directories at the root that are not ``column=value``, do not belong to the table. They are *stray*:
tolerated, named, never read. A file whose name shows that it is not Parquet is stray in any place.

Some directories within a partition are not partition directories (``day=1/HIVE_UNION_SUBDIR_1``).
Spark and Hive read their rows as that partition's (``PartitioningUtils.parsePartition``). Here such
a directory is a contradiction: to ignore it would lose its rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ...errors import InvalidInputError
from ...store.requests import ListedObject
from ..layout import CONTROL, UNPARTITIONED, TableRoot
from .hive_paths import is_decodable, parse_partition, partition_path, partition_values

#: Ending of the empty object that Hadoop's older S3 file systems write beside a directory.
_FOLDER = "_$folder$"
#: Endings of files that are not Parquet. A file of any other name may hold rows: Hive's have no
#: extension.
_NO_PARQUET = re.compile(
    r"\.(csv|tsv|txt|jsonl?|ndjson|xml|orc|avro|crc|md5|sha\d+|log|md|html?|pdf|xlsx?|sql|py|ya?ml"
    r"|zip|tar|tgz)(\.(gz|bz2|zst|xz|lz4|snappy|bak|tmp))?$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Directory:
    """Data files below a root, by partition.

    :param partition_by: the columns of its partition directories, outermost first; empty for files
        at the root; ``None``: there are no files in either place.
    :param partitions: the files of each partition.
    :param strays: files outside partitions, and files that are not Parquet by their names.
    :param contradiction: why the files are not one table; ``None``: they are.
    """

    partition_by: tuple[str, ...] | None
    partitions: Mapping[str, tuple[ListedObject, ...]]
    strays: tuple[ListedObject, ...] = ()
    contradiction: str | None = None


def is_parquet(item: ListedObject) -> bool:
    """Return whether a file may be Parquet, by its name."""
    return _NO_PARQUET.search(item.key) is None


def is_data_file(item: ListedObject) -> bool:
    """Return whether a listed object may hold rows, by its size and name."""
    return _is_file(item) and is_parquet(item)


def _is_file(item: ListedObject) -> bool:
    """Return whether an object is a file; objects that stand for directories are empty."""
    return item.size > 0 and not item.key.endswith(_FOLDER)


def visible_files(root: TableRoot, objects: Sequence[ListedObject]) -> list[ListedObject]:
    """Return the listed files below a root that Spark would not skip.

    They may be in any directory and of any kind. Files of tables that lie below the root are left
    out.
    """
    control = f"/{CONTROL}/"
    tables = {item.key.partition(control)[0] for item in objects if control in item.key}
    below = tuple(f"{prefix}/" for prefix in tables if prefix != root.prefix)
    return [
        item
        for item in objects
        if _is_file(item) and root.is_data(item) and not item.key.startswith(below)
    ]


def arrange(root: TableRoot, objects: Sequence[ListedObject]) -> Directory:
    """Arrange the objects that were listed below ``root`` into partitions, from any writer."""
    partitions: dict[str, list[ListedObject]] = {}
    strays: list[ListedObject] = []
    for item in visible_files(root, objects):
        place = root.partition_of_data_key(item.key) or ""
        in_partition = place == UNPARTITIONED or "=" in place.partition("/")[0]
        if in_partition and is_parquet(item):
            partitions.setdefault(place, []).append(item)
        else:
            strays.append(item)
    if len(partitions) > 1:
        strays += partitions.pop(UNPARTITIONED, ())
    found = {name: tuple(items) for name, items in sorted(partitions.items())}
    layouts, contradiction = _layouts(found)
    if len(layouts) > 1:
        some = " and ".join(repr(name) for name in list(layouts.values())[:2])
        contradiction = f"files lie in {some}, which are not partitions of one table"
    columns = next(iter(layouts), None)
    return Directory(columns, found, tuple(strays), contradiction)


def _layouts(names: Iterable[str]) -> tuple[dict[tuple[str, ...], str], str | None]:
    """Find the partition columns of directories, each with an example.

    The second result says which directory is not a partition, and why; ``None``: all are.
    """
    layouts: dict[tuple[str, ...], str] = {}
    for name in names:
        try:
            columns = tuple(column for column, _ in parse_partition(name))
        except InvalidInputError as error:
            why = "they are not partitions of one table"
            if not is_decodable(name):
                why = error.message.rstrip(".")
            return layouts, f"files lie in {name!r}, which is no partition: {why}"
        layouts.setdefault(columns, name)
    return layouts, None


def canonical_name(path: str, schema: pa.Schema, partition_by: Sequence[str]) -> str | None:
    """Return the partition to which rows with a directory's values are written.

    :returns: it differs from ``path`` if the directory's writer has another form of the values
        (``month=01``); ``None``: ``path`` is not a partition of such a table.
    """
    try:
        return partition_path(partition_values(path, schema, partition_by), schema)
    except InvalidInputError:
        return None
