"""Statistics of a file from its Parquet footer: exact, or absent.

Engines use statistics to skip files, so a statistic that is only nearly right loses rows: a decimal
printed as a float, a maximum that ignores NaN (which Spark treats as the greatest value), the
truncated maximum of a long string.

=====================  ================================  =====================================
type                   minimum                           maximum
=====================  ================================  =====================================
whole numbers, dates   exact                             exact
decimals               exact, every digit                exact, every digit
floats                 absent                            absent: footers ignore NaN
strings                exact, or cut to 32 characters    exact; absent if longer than 32
times                  down to the millisecond           up to the next millisecond
others, nested, and    absent                            absent
names with a dot
=====================  ================================  =====================================
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pyarrow.parquet as pq

#: How many characters of a string statistics have.
_TEXT = 32


def statistics_of(
    footer: pq.FileMetaData,
    counted: Mapping[str, int] = MappingProxyType({}),
    *,
    without: Collection[str] = (),
    unbounded: Collection[str] = (),
) -> str:
    """Return the statistics of a file, as JSON.

    :param counted: the nulls of columns for which the footer has no statistics, by name.
    :param without: columns to leave out: partition columns, whose values the log has already.
    :param unbounded: columns whose bounds in the footer must not be used.
    """
    least: dict[str, str] = {}
    greatest: dict[str, str] = {}
    nulls: dict[str, str] = {}
    for index in range(footer.num_columns):
        leaf = footer.schema.column(index)
        name = leaf.path
        if name != leaf.name or name in without:
            continue  # A part of a nested column.
        groups = [
            footer.row_group(group).column(index).statistics
            for group in range(footer.num_row_groups)
        ]
        if not all(it is not None and it.has_null_count for it in groups):
            nulls |= {name: str(counted[name])} if name in counted else {}
            continue
        nulls[name] = str(sum(it.null_count for it in groups))
        valued = [it for it in groups if it.num_values]
        # A name with a dot looks like a part of a nested column: engines might misread its bounds.
        if (
            name in unbounded
            or "." in name
            or not valued
            or not all(it.has_min_max for it in valued)
        ):
            continue
        try:
            low, high = _bounds(valued)
        except (OverflowError, ValueError, NotImplementedError):
            continue  # A time that Python cannot represent, such as one in the year 10000.
        least |= {} if low is None else {name: low}
        greatest |= {} if high is None else {name: high}
    members = (
        f'"numRecords":{footer.num_rows}',
        f'"minValues":{_object(least)}',
        f'"maxValues":{_object(greatest)}',
        f'"nullCount":{_object(nulls)}',
    )
    return "{" + ",".join(members) + "}"


def _bounds(groups: Sequence[pq.Statistics]) -> tuple[str | None, str | None]:
    """Return the bounds of a column over all row groups.

    :raises NotImplementedError: this version of pyarrow cannot read them.
    """
    try:
        return _lower(min(it.min for it in groups)), _upper(max(it.max for it in groups))
    except NotImplementedError:
        # An older pyarrow cannot read the bounds of decimals that are stored as whole numbers.
        said = json.loads(groups[0].logical_type.to_json())
        if said.get("Type") != "Decimal":
            raise
        least, most = min(it.min_raw for it in groups), max(it.max_raw for it in groups)
        return _scaled(least, said["scale"]), _scaled(most, said["scale"])


def _scaled(value: int, scale: int) -> str:
    sign, digits, _ = Decimal(value).as_tuple()
    return format(Decimal((sign, digits, -scale)), "f")


def _object(literals: Mapping[str, str]) -> str:
    """Return a JSON object of values that are JSON already. So decimals keep every digit."""
    pairs = (f"{_json(name)}:{value}" for name, value in literals.items())
    return "{" + ",".join(pairs) + "}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _lower(value: Any) -> str | None:
    return _json(value[:_TEXT]) if isinstance(value, str) else _bound(value, up=0)


def _upper(value: Any) -> str | None:
    if isinstance(value, str):
        return _json(value) if len(value) <= _TEXT else None
    return _bound(value, up=1)


def _bound(value: Any, up: int) -> str | None:
    match value:
        case bool():
            return None
        case int():
            return str(value)
        case Decimal():
            return format(value, "f")
        case datetime():
            return _time(value, up)
        case date():
            return _json(value.isoformat())
    return None


def _time(value: datetime, up: int) -> str | None:
    """Return a time as JSON with milliseconds, rounded down, or up if ``up`` is 1."""
    utc = value.astimezone(UTC) if value.tzinfo else value
    rest = utc.microsecond % 1000
    try:
        whole = utc - timedelta(microseconds=rest) + timedelta(milliseconds=up if rest else 0)
    except OverflowError:
        return None
    zone = "Z" if value.tzinfo else ""
    return _json(whole.replace(tzinfo=None).isoformat("T", "milliseconds") + zone)
