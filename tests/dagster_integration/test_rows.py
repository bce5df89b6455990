"""Rows in whatever form an asset's function hands them over."""

from __future__ import annotations

import datetime as dt
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dagster_zero_rename.frames import is_spark
from dagster_zero_rename.rows import is_spark_frame, rows_of
from zero_rename.committer import InvalidInputError

SCHEMA = pa.schema([("day", pa.date32()), ("number", pa.int64())])
TWO = [{"day": dt.date(2013, 1, 1), "number": n} for n in (1, 2)]


def table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, SCHEMA)


@pytest.mark.parametrize(
    "data",
    [
        table(TWO),
        pa.RecordBatch.from_pylist(TWO, SCHEMA),
        table(TWO).to_reader(),
        pd.DataFrame(TWO),
        pd.DataFrame(TWO).set_index("day"),
        pd.DataFrame(TWO)[::-1],
        pl.DataFrame(TWO),
        pl.LazyFrame(TWO),
        duckdb.sql("select date '2013-01-01' as day, range + 1 as number from range(2)"),
        (pd.DataFrame([row]) for row in TWO),
        [pl.DataFrame(TWO[:1]), table(TWO[1:])],
        iter([table([]), table(TWO)]),
    ],
    ids=[
        *("table", "batch", "reader", "pandas", "named index", "other index", "polars", "lazy"),
        *("duckdb", "iterator", "list", "an empty table first"),
    ],
)
def test_rows_come_in_many_forms(data: Any) -> None:
    rows = rows_of(data)
    found = [row for batch in rows.batches for row in batch.to_pylist()]
    assert rows.schema is not None
    assert sorted(rows.schema.names) == ["day", "number"]
    assert sorted(found, key=lambda row: row["number"]) == TWO
    assert not rows.empty


@pytest.mark.parametrize(
    "data",
    [
        pd.DataFrame(),
        pd.DataFrame({"day": [], "number": []}),
        pl.DataFrame(),
        table([]),
        table([]).to_reader(),
        [],
        iter([table([]), table([])]),
    ],
)
def test_no_rows_are_told_from_some(data: Any) -> None:
    rows = rows_of(data)
    assert (rows.empty, list(rows.batches)) == (True, [])


def test_an_iterator_is_gone_through_as_it_is_written() -> None:
    made: list[int] = []

    def frames() -> Any:
        for number in range(3):
            made.append(number)
            yield pd.DataFrame({"number": [number]})

    rows = rows_of(frames())
    assert made == [0]
    next(rows.batches)
    next(rows.batches)
    assert made == [0, 1]


def test_frame_of_pandas_on_spark_is_refused_with_what_to_call() -> None:
    import pyspark.pandas as ps

    frame = object.__new__(ps.DataFrame)  # A real one needs a Spark session.
    assert not is_spark_frame(frame)
    assert not is_spark(ps.DataFrame)
    for data in (frame, iter([frame])):
        with pytest.raises(InvalidInputError, match=r"pyspark\.pandas\.DataFrame.*to_spark\(\)"):
            rows_of(data)


def test_frame_of_spark_is_known_by_its_class() -> None:
    from pyspark.sql import DataFrame
    from pyspark.sql.classic.dataframe import DataFrame as Classic

    assert is_spark_frame(object.__new__(Classic))
    assert is_spark(DataFrame)
