"""Calendar of a Parquet file's dates and instants, from the marks in its footer.

Spark 2, and later versions in mode LEGACY, write days before 15 October 1582 by the Julian
calendar. So does Hive by default. Arrow, and Spark since 3.0, count them by the Gregorian calendar.
1 January 1 in one calendar is 30 December 0 in the other. The footer says which of them was used
(Spark's ``DataSourceUtils.datetimeRebaseSpec`` and ``int96RebaseSpec``, Hive's
``DataWritableWriteSupport``).

The date that the writer meant is kept, so its number of days changes
(``RebaseDateTime.rebaseJulianToGregorianDays``). The writer made an instant from a date and a time
in a time zone, by the rules of Java's former classes. For UTC these rules are known. For other
zones they differ from today's before 1900, and only Spark has their table: such instants are
refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from ...errors import InvalidInputError
from ..schema.array_cast import list_layout
from ..schema.types import (
    HIVE_PROLEPTIC,
    SPARK_LEGACY_DATETIME,
    SPARK_LEGACY_INT96,
    SPARK_TIME_ZONE,
    SPARK_VERSION,
)
from .column_bounds import count_leaves

#: 15 October 1582, in days since 1970: the first day with the same date in both calendars.
_GREGORIAN = -141_427
#: 1 January 1900, in Unix seconds: from then on Java's former and present time zones agree.
_ZONES_AGREE = -2_208_988_800
_SECONDS_A_DAY = 86_400
_A_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_UTC = frozenset({"UTC", "Etc/UTC", "UCT", "Etc/UCT", "GMT", "Etc/GMT", "Z", "Zulu", "Universal"})


@dataclass(frozen=True)
class FileCalendar:
    """The kinds of a file's values that are Julian before 15 October 1582.

    :param dates: its dates are; ``instants``: its instants stored as INT64 are; ``int96``: those
        stored as INT96 are.
    :param zone: the time zone in which instants were made; ``None``: the footer does not say.
    """

    dates: bool = False
    instants: bool = False
    int96: bool = False
    zone: str | None = None

    @staticmethod
    def of(metadata: Mapping[bytes, bytes] | None) -> FileCalendar:
        """Read the calendar from the marks of a footer.

        :param metadata: the footer's key-value metadata.
        """
        said = metadata or {}
        version = said.get(SPARK_VERSION)
        if version is None:
            return FileCalendar(dates=said.get(HIVE_PROLEPTIC, b"").lower() == b"false")
        legacy = version < b"3.0.0" or SPARK_LEGACY_DATETIME in said
        zone = said.get(SPARK_TIME_ZONE)
        return FileCalendar(
            legacy,
            legacy,
            version < b"3.1.0" or SPARK_LEGACY_INT96 in said,
            None if zone is None else zone.decode("utf-8", "replace"),
        )

    @property
    def is_gregorian(self) -> bool:
        """True if all values of the file are by the Gregorian calendar."""
        return not (self.dates or self.instants or self.int96)

    def keeps(self, bound: pa.Scalar) -> bool:
        """Return whether values from a lower bound on need no conversion.

        :param bound: the bound, in the file's type; not of INT96, which has no bounds.
        """
        kind = bound.type
        if pt.is_date(kind):
            return not self.dates or bound.cast(pa.date32()).value >= _GREGORIAN
        if pt.is_timestamp(kind) and kind.tz is not None and self.instants:
            return bound.value >= self._first_alike * _A_SECOND[kind.unit]
        return True

    def rebase(self, column: pa.Array, stored: Iterator[str]) -> pa.Array:
        """Convert the dates and instants of a column to Arrow's calendar.

        :param column: the column as it was read from the file.
        :param stored: the physical types of the column's leaves, one after the other.
        :raises InvalidInputError: an instant before 1900 that was made in another zone than UTC.
        """
        kind = column.type
        if pt.is_struct(kind):
            parts = [self.rebase(column.field(n), stored) for n in range(kind.num_fields)]
            fields = [field.with_type(part.type) for field, part in zip(kind, parts, strict=True)]
            return pa.StructArray.from_arrays(parts, fields=fields, mask=column.is_null())
        if pt.is_map(kind):
            offsets, mask, used = list_layout(column)
            keys = self.rebase(column.keys[used], stored)
            items = self.rebase(column.items[used], stored)
            whole = pa.map_(
                kind.key_field.with_type(keys.type), kind.item_field.with_type(items.type)
            )
            return pa.MapArray.from_arrays(offsets, keys, items, type=whole, mask=mask)
        if pt.is_list(kind):
            offsets, mask, used = list_layout(column)
            values = self.rebase(column.values[used], stored)
            whole = pa.list_(kind.value_field.with_type(values.type))
            return pa.ListArray.from_arrays(offsets, values, type=whole, mask=mask)
        if pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
            return self.rebase(column.cast(pa.list_(kind.value_field)), stored)
        return self._rebase_leaf(column, next(stored))

    def _rebase_leaf(self, values: pa.Array, stored: str) -> pa.Array:
        kind = values.type
        if pt.is_date(kind) and self.dates:
            days = values.cast(pa.date32()).cast(pa.int32())
            return _gregorian(days).cast(pa.date32())
        is_int96 = stored == "INT96"
        if pt.is_timestamp(kind) and (
            self.int96 if is_int96 else self.instants and kind.tz is not None
        ):
            return self._rebase_instants(values)
        return values

    @property
    def _first_alike(self) -> int:
        """First instant, in Unix seconds, from which both calendars agree in the writer's zone."""
        return _GREGORIAN * _SECONDS_A_DAY if self.zone in _UTC else _ZONES_AGREE

    def _rebase_instants(self, values: pa.Array) -> pa.Array:
        kind = values.type
        ticks, day = values.cast(pa.int64()), _SECONDS_A_DAY * _A_SECOND[kind.unit]
        least = pc.call_function("min", [ticks]).as_py()
        if least is None or least >= self._first_alike * _A_SECOND[kind.unit]:
            return values
        if self.zone not in _UTC:
            made = "a time zone that its footer does not name"
            raise InvalidInputError(
                "instants before 1900 were written by Spark's former calendar in "
                f"{made if self.zone is None else f'the time zone {self.zone}'}, and only Spark "
                "knows which they are today"
            )
        whole = _call("divide", ticks, day)  # Rounded towards zero.
        rest = _call("subtract", ticks, _call("multiply", whole, day))
        below = _call("less", rest, 0).cast(pa.int64())
        days = _call("subtract", whole, below).cast(pa.int32())
        moved = _call("subtract", _gregorian(days), days).cast(pa.int64())
        return _call("add", ticks, _call("multiply", moved, day)).cast(kind)


def physical_types(file: pq.ParquetSchema, schema: pa.Schema) -> dict[str, list[str]]:
    """Return the physical types of each column's leaves.

    :param schema: the file's columns, in Arrow's types.
    """
    found, leaf = {}, 0
    for field in schema:
        after = min(leaf + count_leaves(field.type), len(file))
        found[field.name] = [file.column(n).physical_type for n in range(leaf, after)]
        leaf = after
    return found


def _gregorian(days: pa.Array) -> pa.Array:
    """Convert days that are Julian before 15 October 1582 to Gregorian days of the same date."""
    old = _call("unique", _call("filter", days, _call("less", days, _GREGORIAN)))
    if not len(old):
        return days
    new = pa.array(map(_same_date, old.to_pylist()), pa.int32())
    place = pc.call_function("index_in", [days], pc.SetLookupOptions(old))
    return _call("coalesce", new.take(place), days)


def _same_date(day: int) -> int:
    """Return the Gregorian day with the date of a Julian day, both in days since 1970.

    29 February becomes 1 March in a year without that day, as in Spark.
    """
    # Years begin in March, so the leap day is the last of a year; an era has 4 years.
    since = day + 719_470  # 1 March 0 of the Julian calendar.
    era, of_era = divmod(since, 1461)
    of_year = min(of_era // 365, 3)
    year, rest = era * 4 + of_year, of_era - of_year * 365
    leap_days = year // 4 - year // 100 + year // 400
    return year * 365 + leap_days + rest - 719_468


def _call(name: str, *operands: pa.Array | int) -> pa.Array:
    return pc.call_function(name, list(operands))
