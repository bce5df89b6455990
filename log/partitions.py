"""Partitions by their values: engines write the same value in different ways.

=====================  ==================================================  ======================
column                 spellings in a log                                  form for comparison
=====================  ==================================================  ======================
timestamp              ``2013-01-01T05:00:00.000000Z`` by Spark,           ``2013-01-01
                       ``2013-01-01 05:00:00`` by others                   05:00:00.000000``, UTC
timestamp_ntz          with and without a fraction                         with six digits
double, float          ``1.0E10``, ``NaN``                                 as Python writes it
decimal                ``1.5`` and ``1.50``                                with the type's scale
boolean                ``true``, ``True``                                  in lower case
byte to long           ``01``: Spark's ``CONVERT TO DELTA`` takes the      without zeros and plus
                       text of a directory ``month=01``
date                   ``2013-1-1``, likewise                              ``2013-01-01``
others                 only one                                            as it is
=====================  ==================================================  ======================

A string that is not of its column's type is compared as it is. Readers refuse its rows.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import lru_cache, partial

from .actions import LogMetadata

#: A partition: its values in the order of the partition columns.
Partition = tuple[str | None, ...]
_DECIMAL = re.compile(r"decimal\(\s*\d+\s*,\s*(\d+)\s*\)")
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_DATE = re.compile(r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})")


@dataclass(frozen=True)
class PartitionChoice:
    """A choice of the partitions whose files are wanted.

    :param metadata: that of the table.
    :param wanted: returns whether a partition is wanted.
    """

    metadata: LogMetadata
    wanted: Callable[[Partition], bool]

    @property
    def columns(self) -> tuple[str, ...]:
        """The partition columns."""
        return self.metadata.partition_columns

    def has(self, values: Mapping[str, str | None]) -> bool:
        """Return whether files with these partition values are wanted."""
        return self.wanted(partition_of(values, self.metadata))


def partition_of(values: Mapping[str, str | None], metadata: LogMetadata) -> Partition:
    """Return the partition of a file by its values in the log."""
    rewrites = _rewrites(metadata.schema, metadata.partition_columns)
    # In Delta an empty string as a partition value is null.
    texts = ((rewrite, values.get(name) or None) for name, rewrite in rewrites)
    return tuple(text and rewrite(text) if rewrite else text for rewrite, text in texts)


@lru_cache(maxsize=64)
def _rewrites(
    schema: str, columns: tuple[str, ...]
) -> tuple[tuple[str, Callable[[str], str] | None], ...]:
    """Return the partition columns, each with the function that brings its values into the form
    for comparison; ``None``: they are compared as they are."""
    try:
        kinds = {it["name"]: it["type"] for it in json.loads(schema)["fields"]}
    except (ValueError, RecursionError, KeyError, TypeError):
        kinds = {}  # Readers of the columns refuse a damaged schema.
    return tuple((name, _rewrite(kinds.get(name))) for name in columns)


def _rewrite(kind: object) -> Callable[[str], str] | None:
    if not isinstance(kind, str):
        return None
    scale = _DECIMAL.fullmatch(kind)
    write = partial(_decimal, scale=int(scale[1])) if scale else _WRITES.get(kind)
    return None if write is None else lru_cache(maxsize=4096)(partial(_or_as_it_is, write))


def _or_as_it_is(write: Callable[[str], str], text: str) -> str:
    try:
        return write(text)
    except (ValueError, ArithmeticError):
        return text


def _timestamp(text: str) -> str:
    at = datetime.fromisoformat(text)
    utc = at.astimezone(UTC).replace(tzinfo=None) if at.tzinfo else at
    return utc.isoformat(" ", "microseconds")


def _local(text: str) -> str:
    return datetime.fromisoformat(text).isoformat(" ", "microseconds")


def _integer(text: str) -> str:
    return str(int(_match(_INTEGER, text)[0]))


def _date(text: str) -> str:
    year, month, day = map(int, _match(_DATE, text).groups())
    return date(year, month, day).isoformat()


def _match(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    found = pattern.fullmatch(text)
    if found is None:
        raise ValueError(text)
    return found


def _float(text: str) -> str:
    """Return a number as one of 32 bits, which Python writes with all digits of 64 bits."""
    return str(struct.unpack("f", struct.pack("f", float(text)))[0])


def _decimal(text: str, scale: int) -> str:
    found = format(Decimal(text), f".{scale}f")
    if Decimal(found) != Decimal(text):
        raise ValueError(f"more than {scale} digits")
    return found


_WRITES: Mapping[str, Callable[[str], str]] = {
    "timestamp": _timestamp,
    "timestamp_ntz": _local,
    "double": lambda text: str(float(text)),
    "float": _float,
    "boolean": str.lower,
    **dict.fromkeys(("byte", "short", "integer", "long"), _integer),
    "date": _date,
}
