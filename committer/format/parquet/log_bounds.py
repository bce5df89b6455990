"""Bounds of a file's columns from a Delta log, for entries of any engine.

======================  ===================================================================
type of the column      what is used of its statistics
======================  ===================================================================
whole numbers, texts    bounds and nulls
dates                   bounds and nulls
times                   bounds, a millisecond wider (writers cut times to one), and nulls;
                        instants before 1973 a minute wider: Spark cuts the seconds off an
                        offset such as +00:09:21, which Paris had until 1911
decimals of 15 digits   bounds and nulls
decimals of more        nulls alone: some writers print decimals as floats
floats, others, nested  nulls alone: some writers leave NaN out
======================  ===================================================================

The count of nulls is ignored if the statistics say that their bounds are not tight. A text that
cannot be read, or a value that is not of its column's type, gives no bounds.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from .column_bounds import ColumnBounds

#: Digits of a decimal that a float of 64 bits keeps.
_EXACT_DIGITS = 15
_MILLISECOND = timedelta(milliseconds=1)
#: More than the seconds that an offset can lose.
_MINUTE = timedelta(minutes=1)
#: From this year on, no zone's offset has seconds. Monrovia's was the last, until January 1972.
_WHOLE_OFFSETS = 1973
_DECODER = json.JSONDecoder(parse_float=Decimal)


def logged_bounds(text: str, schema: pa.Schema, names: Collection[str]) -> dict[str, ColumnBounds]:
    """Read the bounds of some of a file's columns, in the table's types.

    :param text: the file's statistics, as JSON; empty: there are none.
    :param schema: the table's schema.
    """
    if not text:
        return {}
    try:
        stated = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return {}
    low, high, nulls = (_object(stated, it) for it in ("minValues", "maxValues", "nullCount"))
    counted = not isinstance(stated, dict) or stated.get("tightBounds", True) is True
    found = {}
    for name in names:
        kind = schema.field(name).type
        count = nulls.get(name) if counted else None
        found[name] = ColumnBounds(
            _scalar(low.get(name), kind, -1),
            _scalar(high.get(name), kind, 1),
            count if type(count) is int and count >= 0 else None,
        )
    return found


def _object(stated: Any, name: str) -> Mapping[str, Any]:
    found = stated.get(name) if isinstance(stated, dict) else None
    return found if isinstance(found, dict) else {}


def _scalar(value: Any, kind: pa.DataType, sign: int) -> pa.Scalar | None:
    """Return a bound in its column's type; ``None``: no bound.

    :param sign: 1 for an upper bound, -1 for a lower one.
    """
    try:
        plain = _plain(value, kind, sign)
        return None if plain is None else pa.scalar(plain, kind)
    except (pa.ArrowException, ValueError, OverflowError, ArithmeticError):
        return None


def _plain(value: Any, kind: pa.DataType, sign: int) -> Any:
    if pt.is_integer(kind):
        return value if type(value) is int else None
    if pt.is_decimal(kind):
        exact = kind.precision <= _EXACT_DIGITS and type(value) in (int, Decimal)
        return Decimal(value) if exact else None
    if not isinstance(value, str):
        return None
    if pt.is_string(kind):
        return value
    if pt.is_date32(kind):
        return date.fromisoformat(value)
    if pt.is_timestamp(kind):
        at = datetime.fromisoformat(value.replace("Z", "+00:00"))
        if (at.tzinfo is None) != (kind.tz is None):
            return None
        is_cut = at.tzinfo is not None and at.year < _WHOLE_OFFSETS
        return at + sign * (_MINUTE + _MILLISECOND if is_cut else _MILLISECOND)
    return None
