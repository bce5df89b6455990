"""Content of rows, independent of their order: the sum of a 64-bit hash of each row.

The same rows have the same sum in any order, split or codec. A null value does not count, nor does
the order of columns, nor the width of integers, floats and decimals. So rows that are written again
with columns that the table got later, or with wider numbers, keep their content. Strings and
decimals are hashed value by value, each distinct value of a batch once; nested values one by one.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Context, Decimal
from hashlib import blake2b
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from ..schema.array_cast import cast_array

_MASK = 2**64 - 1
#: Constants of MurmurHash3's finaliser, by Austin Appleby (public domain): every bit of a number
#: affects every bit of the result.
_MIX = ((33, 0xFF51AFD7ED558CCD), (33, 0xC4CEB9FE1A85EC53))
_U64 = pa.uint64()
#: As many digits as the widest decimal of Arrow has.
_EXACT = Context(prec=76)


class RowContent:
    """Sum of the hashes of rows, added up while they are written."""

    def __init__(self) -> None:
        self._sum = 0

    def add(self, rows: pa.Table) -> None:
        """Add the hashes of rows.

        :param rows: a file's columns, in a table's normalised types.
        """
        for batch in rows.to_batches():
            if batch.num_rows and batch.num_columns:
                self._sum = (self._sum + _sum(_hashes(batch))) & _MASK

    @property
    def digest(self) -> str:
        """Sum so far, in the form in which records have it."""
        return f"{self._sum:016x}"


def _sum(hashes: pa.Array) -> int:
    # In halves: Arrow does not document that its sum of 64 bits wraps.
    low = _call("sum", _call("bit_wise_and", hashes, _u64(2**32 - 1))).as_py()
    high = _call("sum", _call("shift_right", hashes, _u64(32))).as_py()
    return low + (high << 32)


def _hashes(batch: pa.RecordBatch) -> pa.Array:
    """Return a hash of each row, made from those of its columns in any order."""
    zero = _u64(0)
    every = zero
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if pt.is_null(column.type):
            continue
        values = _mixed(_call("bit_wise_xor", _numbers(column), _u64(_of_bytes(name.encode()))))
        every = _call("add", every, _call("if_else", column.is_valid(), values, zero))
    if isinstance(every, pa.Scalar):
        every = pa.repeat(every, batch.num_rows)
    return _mixed(every)


def _mixed(numbers: pa.Array) -> pa.Array:
    for shift, factor in _MIX:
        numbers = _call("bit_wise_xor", numbers, _call("shift_right", numbers, _u64(shift)))
        numbers = _call("multiply", numbers, _u64(factor))
    return _call("bit_wise_xor", numbers, _call("shift_right", numbers, _u64(33)))


def _numbers(column: pa.Array) -> pa.Array:
    """Return 64 bits for each value: different for different values, or a hash; any for null."""
    kind = column.type
    if pt.is_boolean(kind) or pt.is_integer(kind):
        if not pt.is_signed_integer(kind):
            return column.cast(_U64)
        return _bits(column.cast(pa.int64()))
    if pt.is_date32(kind):
        return _bits(column.cast(pa.int32()).cast(pa.int64()))
    if pt.is_timestamp(kind) or pt.is_time64(kind) or pt.is_duration(kind):
        return _bits(column.cast(pa.int64()))
    if pt.is_floating(kind):
        doubles = column.cast(pa.float64())
        nan = pa.scalar(float("nan"), pa.float64())
        return _bits(_call("if_else", _call("is_nan", doubles), nan, doubles))
    return _of_values(column)


def _bits(column: pa.Array) -> pa.Array:
    return column.view(_U64)


def _of_values(column: pa.Array) -> pa.Array:
    if pt.is_nested(column.type):
        return pa.array((_of_bytes(_plain(it)) for it in _python_values(column)), _U64)
    found = column.cast(pa.binary()) if pt.is_string(column.type) else column
    found = found.dictionary_encode()
    values = found.dictionary.to_pylist()
    if pt.is_decimal(column.type):
        values = [_digits(it).encode() for it in values]
    return pa.array(map(_of_bytes, values), _U64).take(found.indices)


def _python_values(column: pa.Array) -> list[Any]:
    """Return the values of a nested column in Python.

    A value with a date or time that Python lacks, such as one in the year 10000, has whole numbers
    for its dates and times.
    """
    try:
        return column.to_pylist()
    except (OverflowError, ValueError):
        numbers = cast_array(column, _with_numbers(column.type))
        return [_python_value(*pair) for pair in zip(column, numbers, strict=True)]


def _python_value(value: pa.Scalar, with_numbers: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        return with_numbers.as_py()


def _with_numbers(kind: pa.DataType) -> pa.DataType:
    """Return a normalised type with whole numbers for dates and times."""
    if pt.is_struct(kind):
        return pa.struct([part.with_type(_with_numbers(part.type)) for part in kind])
    if pt.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.map_(
            key.with_type(_with_numbers(key.type)), item.with_type(_with_numbers(item.type))
        )
    if pt.is_list(kind):
        return pa.list_(kind.value_field.with_type(_with_numbers(kind.value_type)))
    return pa.int32() if pt.is_date(kind) else pa.int64() if pt.is_timestamp(kind) else kind


def _plain(value: Any) -> bytes:
    """Return a nested value's bytes; fields of structs are in the order of their names."""
    if isinstance(value, dict):
        inner: Iterable[bytes] = (
            _plain(name) + _plain(it) for name, it in sorted(value.items()) if it is not None
        )
    elif isinstance(value, list | tuple):
        inner = map(_plain, value)
    else:
        shown = _digits(value) if isinstance(value, Decimal) else repr(value)
        text = f"{type(value).__name__} {shown}".encode()
        return b"%d:%s" % (len(text), text)
    joined = b"".join(inner)
    return b"%s%d:%s" % (type(value).__name__[:1].encode(), len(joined), joined)


def _digits(value: Decimal) -> str:
    """Return a decimal's digits without the zeros that only its type's scale adds."""
    return f"{value.normalize(_EXACT):f}"


def _of_bytes(value: bytes) -> int:
    return int.from_bytes(blake2b(value, digest_size=8).digest(), "little")


def _u64(number: int) -> pa.Scalar:
    return pa.scalar(number, _U64)


def _call(name: str, *values: Any) -> Any:
    return pc.call_function(name, list(values))
