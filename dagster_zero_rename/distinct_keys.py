"""Check for partition keys of an asset that become one partition of its table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache, lru_cache
from zoneinfo import ZoneInfo

import dagster as dg
import pyarrow as pa
import pyarrow.types as pt
from dagster._time import dst_safe_strftime

from zero_rename.committer.errors import InvalidInputError
from zero_rename.committer.format.job_spec import Mode
from zero_rename.committer.format.schema.hive_paths import (
    escape,
    normalise_partition,
    parse_partition,
)
from zero_rename.committer.format.schema.types import find_column, normalise
from zero_rename.orchestration.runs.partitions import check_partition_format
from zero_rename.orchestration.runs.schedules import (
    Schedule,
    starts_of_one_partition,
    tells_days_apart,
)

from .key_paths import Layout, PartitionExpr, holds_times, key_paths, keys_by_path, start_value


@dataclass(frozen=True)
class _Shared:
    """Two keys that become the same part of a partition's path, with the remedy."""

    keys: tuple[str, str]
    part: str
    remedy: str


def check_has_partitions(
    partitions_def: dg.PartitionsDefinition | None, expr: PartitionExpr | None
) -> None:
    """Check that an asset with a ``partition_expr`` has partitions.

    :raises InvalidInputError: it has none.
    """
    if expr is not None and partitions_def is None:
        raise InvalidInputError(
            f"An asset has partition_expr={expr!r}, and no partitions. Nothing was written.",
            remedy="Give it partitions_def=…, or leave partition_expr out.",
        )


def check_formats(spec: dg.AssetSpec, expr: PartitionExpr | None, mode: str | None) -> None:
    """Check that an asset's format of times keeps its partition keys apart, for any columns of the
    table. In other modes than overwrite, keys may share a partition.

    :raises InvalidInputError: two keys become one partition, or the format is invalid; or the asset
        has no partitions.
    """
    check_has_partitions(spec.partitions_def, expr)
    if Mode.parse(mode or Mode.REPLACE) is not Mode.REPLACE:
        return
    for definition, text in _dimensions(spec.partitions_def, expr):
        times = isinstance(definition, dg.TimeWindowPartitionsDefinition)
        if times and text is not None and "=" in text:
            _refuse(spec.key.to_user_string(), _shared_windows(definition, text))


def check_keys(
    asset: str,
    partitions_def: dg.PartitionsDefinition | None,
    expr: PartitionExpr | None,
    layout: Layout,
    instance: dg.DagsterInstance,
) -> None:
    """Check that a table's columns keep all keys of a definition apart, not only those of one run.

    :param instance: has the keys of dynamic partitions.
    :raises InvalidInputError: two keys become one partition. Nothing was written.
    """
    known = normalise(layout.schema)
    columns = layout.partition_by or ()
    only = columns[0] if len(columns) == 1 else None
    for definition, text in _dimensions(partitions_def, expr):
        if isinstance(definition, dg.TimeWindowPartitionsDefinition):
            column = text if text is not None or "=" in definition.fmt else only
            _refuse(asset, _shared_windows(definition, column, known))
            continue
        with dg.partition_loading_context(dynamic_partitions_store=instance):
            keys = definition.get_partition_keys()
        if text is None and not any("=" in key for key in keys):
            text = only
        _refuse(asset, _shared_texts(keys, text, known))


def check_whole_partitions(
    asset: str,
    paths: Mapping[str, str],
    partitions_def: dg.PartitionsDefinition,
    expr: PartitionExpr | None,
    layout: Layout,
    instance: dg.DagsterInstance,
) -> None:
    """Check that partitions have rows of the given keys only. An asset that appends may have
    several keys in one partition: who reads it for one of them would get the rows of all.

    :param paths: the partitions to be read, by their keys.
    :param instance: has the keys of dynamic partitions.
    :raises InvalidInputError: another key has one of these partitions. Nothing was read.
    """
    try:
        check_keys(asset, partitions_def, expr, layout, instance)
        return
    except InvalidInputError:
        pass  # Some keys share a partition, these or others.
    with dg.partition_loading_context(dynamic_partitions_store=instance):
        others = [key for key in partitions_def.get_partition_keys() if key not in paths]
    read = keys_by_path(paths)
    found = key_paths(asset, others, partitions_def, expr, layout, may_share=True)
    for other, path in found.items():
        if path in read:
            raise InvalidInputError(
                f"The partition keys {read[path][0]!r} and {other!r} of the asset {asset!r} are "
                f"both {path} in its table, and only the former is an input of this run: its rows "
                "cannot be told from those of the latter. Nothing was read.",
                remedy="Let the partition mapping name all keys of that partition; or give "
                "a partition_expr as fine as the asset's partitions; or read the table in the "
                "function, by a ZeroRenameResource and a condition.",
            )


def _refuse(asset: str, shared: _Shared | None) -> None:
    if shared is None:
        return
    one, other = shared.keys
    raise InvalidInputError(
        f"The partition keys {one!r} and {other!r} of the asset {asset!r} are both {shared.part} "
        "in its table: a run of one would replace the rows of the other. Nothing was written.",
        remedy=shared.remedy,
    )


def _dimensions(
    partitions_def: dg.PartitionsDefinition | None, expr: PartitionExpr | None
) -> Iterator[tuple[dg.PartitionsDefinition, str | None]]:
    """Yield each dimension, and the column or format that its keys become; ``None`` if it is not
    given."""
    if isinstance(partitions_def, dg.MultiPartitionsDefinition):
        given = expr if isinstance(expr, Mapping) else {}
        for dimension in partitions_def.partitions_defs:
            yield dimension.partitions_def, given.get(dimension.name, dimension.name)
    elif partitions_def is not None and not isinstance(expr, Mapping):
        yield partitions_def, expr


def _shared_texts(keys: Sequence[str], column: str | None, schema: pa.Schema) -> _Shared | None:
    """Find two keys, not times, that become one partition."""
    spelled = _spelling(schema)
    seen: dict[str, str] = {}
    for key in keys:
        part = spelled(key if column is None else f"{escape(column)}={escape(key)}")
        if part is not None and seen.setdefault(part, key) != key:
            remedy = "Keep one of the keys, or name a column that tells them apart."
            return _Shared((seen[part], key), part, remedy)
    return None


@lru_cache
def _shared_windows(
    definition: dg.TimeWindowPartitionsDefinition, text: str | None, schema: pa.Schema | None = None
) -> _Shared | None:
    """Find two time windows that become one partition.

    :param text: a format, or a column; ``None``: the keys are paths.
    :param schema: ``None``: the columns are not known yet, and ``text`` is a format.
    """
    last = definition.end

    def starts(moment: datetime) -> Iterator[datetime]:
        for window in definition._iterate_time_windows(moment.timestamp()):
            if last is not None and window.end > last:
                return
            yield window.start

    if schema is not None and text in schema.names and pt.is_string(schema.field(text).type):
        return None  # Keys differ, and a string column holds them unchanged.
    zones = frozenset((ZoneInfo(definition.timezone),))
    schedule = Schedule(starts, definition.start, last, zones)
    part_of, days_differ = _parts(definition, text, schema, schedule)
    found = starts_of_one_partition(schedule, part_of, days_differ=days_differ)
    if found is None:
        return None
    one, other = (_key(definition, start) for start in found)
    remedy = (
        "Make partition_expr as fine as the asset's partitions: with %G beside %V, with the hour, "
        "and with its offset %z, or a column of timestamps in UTC, where a clock goes back."
    )
    return _Shared((one, other), part_of(found[0]) or "", remedy)


def _parts(
    definition: dg.TimeWindowPartitionsDefinition,
    text: str | None,
    schema: pa.Schema | None,
    schedule: Schedule,
) -> tuple[Callable[[datetime], str | None], bool]:
    """Return a function from a window's start to its part of a path, and whether days differ in
    it."""
    spelled = str if schema is None else _spelling(schema)
    if text is not None and "=" in text:
        check_partition_format(text, str(definition.timezone))
        differ = tells_days_apart(text, schedule.first.date(), schedule.end.date())
        return lambda start: spelled(start.strftime(text)), differ
    if text is None:
        return lambda start: spelled(_key(definition, start)), False
    index = -1 if schema is None else schema.get_field_index(text)
    if schema is not None and index >= 0 and holds_times(schema.field(index).type):
        kind = schema.field(index).type
        return lambda start: f"{escape(text)}={start_value(start, kind)}", True
    return lambda start: spelled(f"{escape(text)}={escape(_key(definition, start))}"), False


def _key(definition: dg.TimeWindowPartitionsDefinition, start: datetime) -> str:
    zone, form = definition.timezone, definition.fmt
    return dst_safe_strftime(start, zone, form, definition.cron_schedule)


def _spelling(schema: pa.Schema) -> Callable[[str], str | None]:
    """Return a function from a path to the path that the table has, its columns sorted by name. It
    returns ``None`` if the table cannot have the path."""

    @cache
    def of_column(column: str, value: str) -> str | None:
        own = find_column(column, schema.names)
        if own is None:
            return None
        with suppress(InvalidInputError):
            return normalise_partition(f"{escape(own)}={value}", schema, [own])
        return None

    def of_path(path: str) -> str | None:
        try:
            parts = [of_column(column, value) for column, value in parse_partition(path)]
        except InvalidInputError:
            return None
        known = [part for part in parts if part is not None]
        return "/".join(sorted(known)) if len(known) == len(parts) else None

    return of_path
