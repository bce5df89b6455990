"""Footers of Parquet files as other writers leave them: pyarrow's, with single fields changed.

A footer is a struct in Thrift's compact protocol. Here it is a dictionary from a field's number to
its type and value, nested ones alike, so that a test changes what it is about and leaves the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

#: Types of the compact protocol that are told apart here.
TRUE, FALSE, BYTE, I32, I64, BINARY, LIST, STRUCT = 1, 2, 3, 5, 6, 8, 9, 12
_NUMBERS = {4, I32, I64}
#: Fields of ``FileMetaData``.
SCHEMA, NUM_ROWS, ROW_GROUPS, CREATED_BY, COLUMN_ORDERS = 2, 3, 4, 6, 7

Struct = dict[int, tuple[int, Any]]


def with_footer(body: bytes, change: Callable[[Struct], None]) -> bytes:
    """A Parquet file with its footer changed in place.

    :param change: gets the file's ``FileMetaData``.
    """
    length = int.from_bytes(body[-8:-4], "little")
    footer = _Reader(body[-8 - length : -8]).struct()
    change(footer)
    written = _struct(footer)
    return body[: -8 - length] + written + len(written).to_bytes(4, "little") + b"PAR1"


def without_column_orders(created_by: str) -> Callable[[Struct], None]:
    """Make a footer one of a writer that knew no column orders: its bounds stand in the fields
    that are deprecated since, and it has no ``column_orders``.

    :param created_by: the writer's name.
    """

    def change(footer: Struct) -> None:
        footer.pop(COLUMN_ORDERS, None)
        footer[CREATED_BY] = (BINARY, created_by.encode())
        for statistics in each_statistics(footer):
            for deprecated, current in ((1, 5), (2, 6)):
                if current in statistics:
                    statistics[deprecated] = statistics.pop(current)
            statistics.pop(7, None)
            statistics.pop(8, None)

    return change


def each_statistics(footer: Struct) -> list[Struct]:
    """The statistics of all column chunks: 1, 2 are ``max``, ``min``; 5, 6 ``max_value``,
    ``min_value``."""
    groups = footer[ROW_GROUPS][1][1]
    chunks = [chunk for group in groups for chunk in group[1][1][1]]
    return [chunk[3][1][12][1] for chunk in chunks if 12 in chunk[3][1]]


def annotate(column: str, logical: int, parameters: Struct | None = None) -> Callable:
    """Annotate a column with another logical type.

    :param logical: the number of the type in the union ``LogicalType``.
    """

    def change(footer: Struct) -> None:
        element = schema_element(footer, column)
        element.pop(6, None)
        element[10] = (STRUCT, {logical: (STRUCT, parameters or {})})

    return change


def schema_element(footer: Struct, column: str) -> Struct:
    """The ``SchemaElement`` of a column: 6 is its converted type, 10 its logical type."""
    elements = footer[SCHEMA][1][1]
    return next(element for element in elements if element[4][1] == column.encode())


@dataclass
class _Reader:
    data: bytes
    at: int = 0

    def struct(self) -> Struct:
        fields: Struct = {}
        number = 0
        while head := self._byte():
            delta, kind = head >> 4, head & 15
            number = number + delta if delta else self._zigzag()
            fields[number] = (kind, self._value(kind))
        return fields

    def _value(self, kind: int) -> Any:
        if kind in (TRUE, FALSE):
            return kind == TRUE
        if kind in _NUMBERS:
            return self._zigzag()
        if kind == BYTE:
            return self._byte()
        if kind == BINARY:
            return self._take(self._varint())
        if kind == LIST:
            head = self._byte()
            count = self._varint() if head >> 4 == 15 else head >> 4
            inner = head & 15
            # Booleans of a list take a byte each.
            read = self._byte if inner in (TRUE, FALSE) else lambda: self._value(inner)
            return inner, [read() for _ in range(count)]
        if kind == STRUCT:
            return self.struct()
        raise ValueError(f"type {kind} at {self.at}")

    def _byte(self) -> int:
        return self._take(1)[0]

    def _take(self, length: int) -> bytes:
        self.at += length
        return self.data[self.at - length : self.at]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)


def _struct(fields: Struct) -> bytes:
    written, last = b"", 0
    for number, (kind, value) in sorted(fields.items()):
        head = kind if kind not in (TRUE, FALSE) else (TRUE if value else FALSE)
        delta = number - last
        written += (
            bytes([delta << 4 | head]) if delta < 16 else bytes([head]) + _varint(number << 1)
        )
        last = number
        if kind not in (TRUE, FALSE):
            written += _written(kind, value)
    return written + b"\0"


def _written(kind: int, value: Any) -> bytes:
    if kind in _NUMBERS:
        return _varint(value << 1 if value >= 0 else (-value << 1) - 1)
    if kind == BYTE:
        return bytes([value])
    if kind == BINARY:
        return _varint(len(value)) + value
    if kind == STRUCT:
        return _struct(value)
    inner, items = value
    head = bytes([len(items) << 4 | inner]) if len(items) < 15 else bytes([240 | inner])
    length = b"" if len(items) < 15 else _varint(len(items))
    if inner in (TRUE, FALSE):
        return head + length + bytes(items)
    return head + length + b"".join(_written(inner, item) for item in items)


def _varint(value: int) -> bytes:
    written = b""
    while value > 127:
        written += bytes([value & 127 | 128])
        value >>= 7
    return written + bytes([value])
