"""Partition keys of an asset as partitions of its table.

The asset's ``partition_expr``, named as in Dagster's own table I/O managers, maps keys to
partitions. It is the column that holds the keys, or a path of columns with ``strftime`` codes for
the start of the key's time window; for several dimensions, a dictionary with one of these for each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime

import dagster as dg
import pyarrow as pa
import pyarrow.types as pt

from zero_rename.committer.errors import InvalidInputError
from zero_rename.committer.format.schema.hive_paths import (
    escape,
    normalise_partition,
    parse_partition,
    partition_path,
)
from zero_rename.committer.format.schema.types import normalise
from zero_rename.committer.table import Table
from zero_rename.orchestration.runs.partitions import check_partition_format
from zero_rename.tables import DeltaTable

#: A column, or a path with ``strftime`` codes; by dimension if there are several.
PartitionExpr = str | Mapping[str, str]
_SHOWN = 3


@dataclass(frozen=True)
class Layout:
    """Columns of a table and its partition columns.

    :param partition_by: ``None``: there is no table yet, and the first write makes it.
    """

    schema: pa.Schema
    partition_by: tuple[str, ...] | None


def layout_of(table: Table | DeltaTable, written: pa.Schema | None = None) -> Layout:
    """Return the columns of a table.

    For a table of another committer they are not on record, so the rows to be written give their
    types. Without such rows, a partition column that does not hold times has type string: a key is
    then the folder's name, even if it looks like a number (``store=01``).

    :param written: the columns of the rows to be written.
    :raises TableNotFoundError: there is no table, and no file.
    """
    if isinstance(table, DeltaTable):
        return Layout(table.schema, table.partition_by)
    if (shape := table.recorded_shape()) is not None:
        return Layout(*shape)
    schema, partition_by = table.schema, table.partition_by
    if written is not None:
        return Layout(written, partition_by)
    for index, field in enumerate(schema):
        if field.name in partition_by and not holds_times(field.type):
            schema = schema.set(index, pa.field(field.name, pa.string()))
    return Layout(schema, partition_by)


def key_paths(
    asset: str,
    keys: Sequence[str] | None,
    partitions_def: dg.PartitionsDefinition | None,
    expr: PartitionExpr | None,
    layout: Layout,
    *,
    may_share: bool = False,
) -> dict[str, str]:
    """Return the partition of each key; these also give the partition columns of a new table.

    :param asset: its name, for errors.
    :param keys: ``None`` for an asset without partitions; the result is empty then.
    :param may_share: two of the keys may be one partition, as those of an asset that appends. Else
        they are refused.
    :raises InvalidInputError: the asset has partitions and the table has none, or the reverse; or
        the table cannot have a key as a partition, or two keys are one partition. Nothing was
        written.
    """
    if keys is None or partitions_def is None:
        if layout.partition_by:
            raise InvalidInputError(
                f"The asset {asset!r} has no partitions, and its table is partitioned by "
                f"{', '.join(layout.partition_by)}; nothing was written.",
                remedy="Give the asset partitions_def=…, or name another table.",
            )
        return {}
    if layout.partition_by == ():
        raise InvalidInputError(
            f"The asset {asset!r} has partitions, and its table has none: a run of one of them "
            "would replace all rows. Nothing was written.",
            remedy="Leave partitions_def out, or name another table.",
        )
    known = Layout(normalise(layout.schema), layout.partition_by)
    paths = {key: _path(asset, key, partitions_def, expr, known) for key in keys}
    if not paths:
        return {}
    columns = known.partition_by or _columns(next(iter(paths.values())))
    named = {
        key: _canonical(asset, key, path, known.schema, columns) for key, path in paths.items()
    }
    if not may_share:
        _check_one_each(asset, named)
    return named


def path_columns(paths: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns in the paths of partitions, outermost first."""
    return _columns(next(iter(paths.values()))) if paths else ()


def _columns(path: str) -> tuple[str, ...]:
    return tuple(column for column, _ in parse_partition(path))


def _path(
    asset: str,
    key: str,
    partitions_def: dg.PartitionsDefinition,
    expr: PartitionExpr | None,
    layout: Layout,
) -> str:
    """Return the partition of a key; its columns are in the table's order if there is a table."""
    if not isinstance(partitions_def, dg.MultiPartitionsDefinition):
        if isinstance(expr, Mapping):
            raise InvalidInputError(
                f"partition_expr of the asset {asset!r} names dimensions, and it has one only; "
                "nothing was written.",
                remedy='Give a column or a path: partition_expr="day".',
            )
        if expr is None and "=" in key:
            return key
        return _part(asset, key, partitions_def, expr or _only_column(asset, key, layout), layout)
    exprs = {dimension.name: dimension.name for dimension in partitions_def.partitions_defs}
    if expr is not None and (isinstance(expr, str) or not set(expr) <= set(exprs)):
        raise InvalidInputError(
            f"partition_expr of the asset {asset!r} does not go by its dimensions, "
            f"{', '.join(exprs)}; nothing was written.",
            remedy="Give a dictionary: the column or path of each dimension.",
        )
    given: Mapping[str, str] = {} if expr is None or isinstance(expr, str) else expr
    # In the order given, which is that of a new table's columns.
    ordered = {**given, **{name: text for name, text in exprs.items() if name not in given}}
    of_dimension = partitions_def.get_partition_key_from_str(key).keys_by_dimension
    parts = "/".join(
        _part(
            asset,
            of_dimension[name],
            partitions_def.get_partitions_def_for_dimension(name),
            text,
            layout,
        )
        for name, text in ordered.items()
    ).split("/")
    if layout.partition_by:
        places = {column: place for place, column in enumerate(layout.partition_by)}
        parts.sort(key=lambda part: places.get(_columns(part)[0], len(places)))
    return "/".join(parts)


def _only_column(asset: str, key: str, layout: Layout) -> str:
    if layout.partition_by is not None and len(layout.partition_by) == 1:
        return layout.partition_by[0]
    columns = (
        "has no table yet"
        if layout.partition_by is None
        else (f"has a table that is partitioned by {', '.join(layout.partition_by)}")
    )
    raise InvalidInputError(
        f"Nothing says which partition the key {key!r} is: the asset {asset!r} {columns}, and no "
        "partition_expr. Nothing was written.",
        remedy='Give the asset metadata={"partition_expr": "day"} for a column that holds the '
        'keys, or "year=%Y/month=%-m/day=%-d" for columns made of the start of the partition.',
    )


def _part(
    asset: str, key: str, partitions_def: dg.PartitionsDefinition, expr: str, layout: Layout
) -> str:
    """Return the columns and values of one dimension, as a part of a path."""
    times = isinstance(partitions_def, dg.TimeWindowPartitionsDefinition)
    if "=" in expr:
        if not times:
            raise InvalidInputError(
                f"partition_expr={expr!r} of the asset {asset!r} is a format of times, and the "
                f"key {key!r} is none; nothing was written.",
                remedy="Name the column that holds the keys.",
            )
        check_partition_format(expr, str(partitions_def.timezone))
        return _start(key, partitions_def).strftime(expr)
    index = layout.schema.get_field_index(expr)
    if index < 0:
        raise InvalidInputError(
            f"The asset {asset!r} is partitioned by the column {expr!r}, and its rows have none "
            f"of that name but {', '.join(layout.schema.names)}; nothing was written.",
            remedy="Add the column to the rows, or name another one in partition_expr.",
        )
    kind = layout.schema.field(index).type
    if times and holds_times(kind):
        value = start_value(_start(key, partitions_def), kind)
        return partition_path({expr: value}, layout.schema)
    return f"{escape(expr)}={escape(key)}"


def holds_times(kind: pa.DataType) -> bool:
    """Return whether a column of this type holds the start of a key's time window instead of the
    key."""
    return pt.is_date(kind) or pt.is_timestamp(kind)


def start_value(start: datetime, kind: pa.DataType) -> date | datetime:
    """Return the start of a time window as a value of a column of dates or timestamps."""
    if pt.is_date(kind):
        return start.date()
    return start.replace(tzinfo=None) if kind.tz is None else start


def _start(key: str, partitions_def: dg.TimeWindowPartitionsDefinition) -> datetime:
    return partitions_def.time_window_for_partition_key(key).start


def _canonical(asset: str, key: str, path: str, schema: pa.Schema, columns: Sequence[str]) -> str:
    try:
        return normalise_partition(path, schema, columns)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"The partition key {key!r} of the asset {asset!r} is no partition of its table: "
            f"{error.message} Nothing was written.",
            remedy=f"{error.remedy or ''} partition_expr in the asset's metadata says which "
            "column, or which path of columns, its keys are.".strip(),
        ) from error


def keys_by_path(paths: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the keys of each partition."""
    found: dict[str, list[str]] = {}
    for key, path in paths.items():
        found.setdefault(path, []).append(key)
    return found


def _check_one_each(asset: str, paths: Mapping[str, str]) -> None:
    for path, keys in keys_by_path(paths).items():
        if len(keys) > 1:
            raise InvalidInputError(
                f"The partition keys {', '.join(keys[:_SHOWN])} of the asset {asset!r} are all "
                f"{path} in its table: a run of one would replace the rows of the others. Nothing "
                "was written.",
                remedy="Make partition_expr as fine as the asset's partitions.",
            )
