"""Rows that users give: of Arrow, pandas or Polars, or of any object with an Arrow interface."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from ..errors import InvalidInputError
from .schema.array_cast import plain_columns

#: Description of the accepted objects, for errors.
TAKEN = (
    "a pyarrow Table, RecordBatch or RecordBatchReader, a pandas or Polars frame, or any object "
    "that hands out an Arrow stream, such as a DuckDB relation"
)


def reader_of(data: Any) -> pa.RecordBatchReader | None:
    """Return rows in any accepted form as a reader of Arrow batches; ``None``: not accepted.

    In a pandas frame, an index with a name becomes a column.

    :raises InvalidInputError: a frame with values for which Arrow has no type.
    """
    if isinstance(data, pa.RecordBatchReader):
        return data
    try:
        if isinstance(data, pa.RecordBatch):
            return pa.Table.from_batches([data]).to_reader()
        if _is_a(data, "pandas", "DataFrame"):
            # An index without a name only numbers the rows.
            named = [name for name in data.index.names if name is not None]
            frame = data.reset_index(level=named) if named else data
            return pa.Table.from_pandas(frame, preserve_index=False).to_reader()
        if _is_a(data, "polars", "LazyFrame"):
            data = data.collect()
        if _is_a(data, "polars", "DataFrame"):
            _refuse_objects(data)
        if hasattr(data, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(data)
        if hasattr(data, "__arrow_c_array__"):
            return pa.Table.from_batches([pa.record_batch(data)]).to_reader()
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"The rows are given as {_form(data)}, and cannot become Arrow's: {error}. Nothing of "
            "them was written.",
            remedy="Cast the columns to types that Arrow has, or give a pyarrow.Table.",
        ) from error
    return None


def batches_of(data: Any) -> Iterable[pa.RecordBatch]:
    """Return rows in any accepted form as Arrow batches.

    At most one batch is in memory, besides what ``data`` itself holds.

    :raises InvalidInputError: the form is not accepted.
    """
    if isinstance(data, pa.RecordBatch):
        return (data,)
    return data.to_batches() if isinstance(data, pa.Table) else _reader(data)


def table_of(data: Any) -> pa.Table:
    """Return rows in any accepted form as a table in memory.

    Its columns have types that all functions of Arrow accept.

    :raises InvalidInputError: the form is not accepted.
    """
    return plain_columns(data if isinstance(data, pa.Table) else _reader(data).read_all())


def schema_of(data: Any) -> pa.Schema:
    """Return the schema of rows in any accepted form, or of a schema of Arrow or Polars.

    :raises InvalidInputError: the form is not accepted.
    """
    if isinstance(data, pa.Schema):
        return data
    if hasattr(data, "__arrow_c_schema__"):
        return pa.schema(data)
    return data.schema if isinstance(data, pa.Table | pa.RecordBatch) else _reader(data).schema


def _reader(data: Any) -> pa.RecordBatchReader:
    reader = reader_of(data)
    if reader is None:
        raise InvalidInputError(
            f"The rows are given as {_form(data)}, which this package cannot write. Nothing of "
            "them was written.",
            remedy=f"Give {TAKEN}.",
        )
    return reader


def _form(data: Any) -> str:
    return "nothing (None)" if data is None else f"{type(data).__module__}.{type(data).__name__}"


def _is_a(data: Any, library: str, name: str) -> bool:
    """Return whether an object is of a library's class, without importing the library."""
    kind = getattr(sys.modules.get(library), name, None)
    return kind is not None and isinstance(data, kind)


def _refuse_objects(frame: Any) -> None:
    """Refuse columns of Python objects, which Polars hands out as addresses in memory."""
    import polars

    for name, kind in frame.schema.items():
        if kind == polars.Object:
            raise TypeError(f"the column {name!r} holds Python objects")
