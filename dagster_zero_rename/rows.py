"""Rows that an asset's function hands over, as Arrow batches; and rows read, as it wants them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa

from zero_rename.committer.errors import InvalidInputError

_TAKEN = (
    "Return a pyarrow Table, RecordBatch or RecordBatchReader, a pandas or polars frame, a DuckDB "
    "relation, a Spark data frame, or an iterator of any but the last."
)


@dataclass(frozen=True)
class Rows:
    """Rows to be written, which can be gone through once.

    :param schema: ``None`` where there is not even a batch without rows.
    :param batches: those that have rows; an empty frame's columns have no types to go by.
    :param empty: there is none.
    """

    schema: pa.Schema | None
    batches: Iterator[pa.RecordBatch]
    empty: bool


def is_spark_frame(data: Any) -> bool:
    """Whether ``data`` is a Spark data frame, of whichever kind; does not import Spark."""
    return _library(data) == "pyspark" and type(data).__name__ == "DataFrame"


def rows_of(data: Any) -> Rows:
    """Rows in any of the forms that this package takes.

    :raises InvalidInputError: it is in none of them.
    """
    reader = _reader(data)
    if reader is None and isinstance(data, Iterable) and not isinstance(data, str | bytes | dict):
        readers = map(_checked_reader, data)
    else:
        readers = iter((_checked_reader(data) if reader is None else reader,))
    schema = None
    for reader in readers:
        schema = reader.schema if schema is None else schema
        for batch in reader:
            if batch.num_rows:
                rest = chain(reader, chain.from_iterable(readers))
                others = (it for it in rest if it.num_rows)
                return Rows(batch.schema, chain((batch,), others), empty=False)
    return Rows(schema, iter(()), empty=True)


def _checked_reader(data: Any) -> pa.RecordBatchReader:
    reader = _reader(data)
    if reader is not None:
        return reader
    what = "nothing (None)" if data is None else f"a {type(data).__module__}.{type(data).__name__}"
    raise InvalidInputError(
        f"The asset's rows are {what}, which this package cannot write; nothing was written.",
        remedy=_TAKEN,
    )


def _reader(data: Any) -> pa.RecordBatchReader | None:
    if isinstance(data, pa.RecordBatchReader):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data]).to_reader()
    if _library(data) == "pandas" and type(data).__name__ == "DataFrame":
        # An index with a name is a column like any other; one without only numbers the rows.
        named = [name for name in data.index.names if name is not None]
        frame = data.reset_index(level=named) if named else data
        return pa.Table.from_pandas(frame, preserve_index=False).to_reader()
    if _library(data) == "polars" and type(data).__name__ == "LazyFrame":
        data = data.collect()
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    return None


def _library(data: Any) -> str:
    return type(data).__module__.partition(".")[0]
