"""Directory of data files without a record: which layout its paths come to, if any.

Files lie in Hive-style directories, at the root, or elsewhere. Partition directories make the
layout; without any, the files at the root do. What lies at the root beside partitions, or below
directories at the root that are not ``column=value``, is no part of the table, and is *stray*:
tolerated, named, never read. So is a file of whatever place whose name says that it is no Parquet.
Of a directory within a partition that is none itself (``day=1/HIVE_UNION_SUBDIR_1``) Spark and Hive
read the rows as that partition's (``PartitioningUtils.parsePartition``); here it is a
contradiction, since to pass it over would lose them.
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

#: What Hadoop's older S3 file systems write for a directory, empty, beside it.
_FOLDER = "_$folder$"
#: Names of files that hold something else than Parquet. Any other name may be of a file of rows:
#: Hive's have no extension.
_NO_PARQUET = re.compile(
    r"\.(csv|tsv|txt|jsonl?|ndjson|xml|orc|avro|crc|md5|sha\d+|log|md|html?|pdf|xlsx?|sql|py|ya?ml"
    r"|zip|tar|tgz)(\.(gz|bz2|zst|xz|lz4|snappy|bak|tmp))?$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Directory:
    """Data files below a root, by where they lie.

    :param partition_by: the columns of its partition directories, outermost first; empty for
        files at the root; ``None`` where nothing is in either place.
    :param partitions: the files of each partition.
    :param strays: files that lie in no partition, and what is no Parquet by its name.
    :param contradiction: why the files are not one table; ``None`` where they are.
    """

    partition_by: tuple[str, ...] | None
    partitions: Mapping[str, tuple[ListedObject, ...]]
    strays: tuple[ListedObject, ...] = ()
    contradiction: str | None = None


def is_parquet(item: ListedObject) -> bool:
    """Whether a file may hold rows, as far as its name tells."""
    return _NO_PARQUET.search(item.key) is None


def is_data_file(item: ListedObject) -> bool:
    """Whether a listed object may hold rows, as far as its size and name tell."""
    return _is_file(item) and is_parquet(item)


def _is_file(item: ListedObject) -> bool:
    """Whether it does not stand for a directory: those are empty."""
    return item.size > 0 and not item.key.endswith(_FOLDER)


def visible_files(root: TableRoot, objects: Sequence[ListedObject]) -> list[ListedObject]:
    """The files that Spark would not skip among what was listed below a root, in whatever
    directories and of whatever kind, without those of tables that lie below it themselves."""
    control = f"/{CONTROL}/"
    tables = {item.key.partition(control)[0] for item in objects if control in item.key}
    below = tuple(f"{prefix}/" for prefix in tables if prefix != root.prefix)
    return [
        item
        for item in objects
        if _is_file(item) and root.is_data(item) and not item.key.startswith(below)
    ]


def arrange(root: TableRoot, objects: Sequence[ListedObject]) -> Directory:
    """The layout of what was listed below ``root``, whoever wrote it."""
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
    """The partition columns that directories have, each with an example, and what is none."""
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
    """The partition that rows with this directory's values are written to.

    :returns: another name than ``path`` where whoever made the directory spells values
        otherwise (``month=01``); ``None`` for what is no partition of such a table.
    """
    try:
        return partition_path(partition_values(path, schema, partition_by), schema)
    except InvalidInputError:
        return None
