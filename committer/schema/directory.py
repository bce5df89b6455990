"""Directory of data files without a record: which layout its paths come to, if any.

Files lie in Hive-style directories, at the root, or elsewhere. Partition directories make the
layout; without any, the files at the root do. What lies at the root beside partitions, or below
directories that are not ``column=value``, is no part of the table, as in Spark
(``PartitioningUtils.parsePartitions``), and is *stray*: tolerated, named, never read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ..errors import InvalidInputError
from ..layout import CONTROL, UNPARTITIONED, TableRoot
from ..s3.requests import ListedObject
from .hive_paths import parse_partition, partition_path, partition_values

#: What Hadoop's older S3 file systems write for a directory, empty, beside it.
_FOLDER = "_$folder$"


@dataclass(frozen=True)
class Directory:
    """Data files below a root, by where they lie.

    :param partition_by: the columns of its partition directories, outermost first; empty for
        files at the root; ``None`` where nothing is in either place.
    :param partitions: the files of each partition.
    :param strays: files that lie in no partition.
    :param contradiction: why the files are not one table; ``None`` where they are.
    """

    partition_by: tuple[str, ...] | None
    partitions: Mapping[str, tuple[ListedObject, ...]]
    strays: tuple[ListedObject, ...] = ()
    contradiction: str | None = None


def is_data_file(item: ListedObject) -> bool:
    """Whether a listed object holds rows, as far as its size and name tell: what stands for a
    directory is empty."""
    return item.size > 0 and not item.key.endswith(_FOLDER)


def data_files(root: TableRoot, objects: Sequence[ListedObject]) -> list[ListedObject]:
    """The data files among what was listed below a root, in whatever directories, without those
    of tables that lie below it themselves."""
    control = f"/{CONTROL}/"
    tables = {item.key.partition(control)[0] for item in objects if control in item.key}
    below = tuple(f"{prefix}/" for prefix in tables if prefix != root.prefix)
    return [
        item
        for item in objects
        if is_data_file(item) and root.is_data(item) and not item.key.startswith(below)
    ]


def arrange(root: TableRoot, objects: Sequence[ListedObject]) -> Directory:
    """The layout of what was listed below ``root``, whoever wrote it."""
    partitions: dict[str, list[ListedObject]] = {}
    strays: list[ListedObject] = []
    for item in data_files(root, objects):
        place = root.partition_of_data_key(item.key) or ""
        if place == UNPARTITIONED or "=" in place.partition("/")[0]:
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
    """The partition columns that directories have, each with an example, and what is none."""
    layouts: dict[tuple[str, ...], str] = {}
    for name in names:
        try:
            columns = tuple(column for column, _ in parse_partition(name))
        except InvalidInputError:
            return layouts, (
                f"files lie in {name!r}, which is no partition: they are not partitions of one "
                "table"
            )
        layouts.setdefault(columns, name)
    return layouts, None


def canonical_name(path: str, schema: pa.Schema, partition_by: Sequence[str]) -> str | None:
    """The partition that rows with this directory's values are written to.

    :returns: another name than ``path`` where whoever made the directory spells values
        otherwise (``month=01``); ``None`` for what is no partition of such a table.
    """
    try:
        return partition_path(partition_values(path, schema, partition_by), schema)
    except InvalidInputError:
        return None
