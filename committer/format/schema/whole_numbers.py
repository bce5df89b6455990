"""Whole numbers as arrays and scalars of Arrow, made without an import of pandas.

When pyarrow makes the first array or scalar of a process from a Python value, it imports pandas, if
that is installed: 0.2 s of CPU and 36 MB, in each new worker of a Spark application. Arrays made
from bytes are the same, and import nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import pyarrow as pa


def whole_numbers(values: Sequence[int], kind: pa.DataType) -> Any:
    """Make an array of integers without nulls.

    :param kind: an integer type.
    :raises OverflowError: a value does not fit the type.
    """
    size, signed = kind.bit_width // 8, not str(kind).startswith("u")
    packed = b"".join(value.to_bytes(size, sys.byteorder, signed=signed) for value in values)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(packed)])


def whole_number(value: int, kind: pa.DataType) -> pa.Scalar:
    """Make a scalar of an integer, as :func:`whole_numbers` makes an array."""
    return whole_numbers([value], kind)[0]
