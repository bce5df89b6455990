"""Batches of rows by which Spark hands a frame to its Python workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as pt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
#: While a frame is saved. Spark measures no batch at this number of bytes
#: (``BatchedPythonArrowInput.underBatchSizeLimit``): it would add up the buffers of all columns
#: after every single row, two thirds of the JVM's work for a save of narrow rows. Fewer rows than
#: Spark's 10,000 hold a batch below 64 MiB, its other limit, up to 32 KiB a row.
_QUICK = {_ROWS: "2000", _BYTES: str(2**31 - 1)}


@contextmanager
def quick_batches(session: SparkSession, schema: pa.Schema) -> Iterator[None]:
    """Let Spark make batches by their rows alone for a while.

    Where the session sets a limit of its own, where rows may be long (columns of bytes), and
    before Spark 4.1, which measures none, all stays as it is. Several saves of one session may run
    at once: the first to end takes the settings back, and the others are slower from there on.
    """
    mine = session.version >= "4.1" and not any(_has_bytes(field.type) for field in schema)
    if not mine or any(session.conf.get(key, None) is not None for key in _QUICK):
        yield
        return
    for key, value in _QUICK.items():
        session.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in _QUICK.items():
            if session.conf.get(key, None) == value:
                session.conf.unset(key)


def _has_bytes(kind: pa.DataType) -> bool:
    """Whether values may be byte strings, of a variant, too."""
    if pt.is_binary(kind) or pt.is_large_binary(kind):
        return True
    if pt.is_map(kind):
        return _has_bytes(kind.key_type) or _has_bytes(kind.item_type)
    return any(_has_bytes(kind.field(number).type) for number in range(kind.num_fields))
