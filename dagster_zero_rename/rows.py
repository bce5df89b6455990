"""Rows that an asset's function returns, as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa

from zero_rename.committer.errors import InvalidInputError
from zero_rename.committer.format.given_rows import TAKEN, reader_of


@dataclass(frozen=True)
class Rows:
    """Rows to be written. They can be iterated only once.

    :param schema: ``None`` if there is no batch, not even an empty one.
    :param batches: those that have rows; the columns of an empty frame may have no types.
    :param empty: there are no rows.
    """

    schema: pa.Schema | None
    batches: Iterator[pa.RecordBatch]
    empty: bool


def is_spark_frame(data: Any) -> bool:
    """Return whether ``data`` is a Spark data frame, classic or of Connect; does not import
    Spark. A data frame of pandas on Spark is not one."""
    kind = type(data)
    return kind.__module__.startswith("pyspark.sql.") and kind.__name__ == "DataFrame"


def rows_of(data: Any) -> Rows:
    """Return rows in any form that this package takes as :class:`Rows`.

    :raises InvalidInputError: ``data`` has none of these forms.
    """
    _refuse_pandas_on_spark(data)
    reader = reader_of(data)
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
    _refuse_pandas_on_spark(data)
    reader = reader_of(data)
    if reader is not None:
        return reader
    if data is None:
        raise InvalidInputError(
            "The asset's rows are None; nothing was written.",
            remedy="Where there are no rows, return a frame without rows: with mode overwrite it "
            "empties the run's partitions. Annotate a function that writes by itself '-> None'.",
        )
    what = f"a {type(data).__module__}.{type(data).__name__}"
    raise InvalidInputError(
        f"The asset's rows are {what}, which this package cannot write; nothing was written.",
        remedy=f"Return {TAKEN}; a Spark data frame; or an iterator of any but the last.",
    )


def _refuse_pandas_on_spark(data: Any) -> None:
    """Refuse a frame of pandas on Spark. By Arrow's interface, which it has in some versions of
    Spark, all of its rows would go through this process."""
    kind = type(data)
    if kind.__module__.startswith("pyspark.pandas."):
        raise InvalidInputError(
            f"The asset's rows are a pyspark.pandas.{kind.__name__}; nothing was written.",
            remedy="Return frame.to_spark(), a Spark data frame; or "
            'frame.to_spark(index_col="day"), which keeps the index as a column.',
        )
