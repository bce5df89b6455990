"""Rows in each form in which users have them, at each door of plain Python."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from support.memory_store import MemoryStore
from support.protocol import memory_table
from zero_rename.committer import InvalidInputError, Table
from zero_rename.committer.format.given_rows import table_of
from zero_rename.committer.format.schema.array_cast import cast_array

DAY = dt.date(2026, 1, 2)
ROWS = [{"k": "a", "v": 1, "day": DAY}, {"k": "b", "v": None, "day": DAY}]
SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("day", pa.date32())])
ARROW = pa.Table.from_pylist(ROWS, SCHEMA)


class ArrowStream:
    """A stranger's rows, of which nothing is known but that they are Arrow's."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


class ArrowArray:
    """One batch of a stranger's."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self._batch.__arrow_c_array__(requested_schema)


FORMS: dict[str, Callable[[], Any]] = {
    "table": lambda: ARROW,
    "batch": lambda: ARROW.to_batches()[0],
    "reader": ARROW.to_reader,
    "views": lambda: ARROW.cast(SCHEMA.set(0, pa.field("k", pa.string_view()))),
    "pandas": lambda: pd.DataFrame(ROWS).astype({"v": "Int64"}),
    "pandas with a named index": lambda: pd.DataFrame(ROWS).astype({"v": "Int64"}).set_index("k"),
    "pandas categories": lambda: pd.DataFrame(ROWS).astype({"v": "Int64", "k": "category"}),
    "polars": lambda: pl.DataFrame(ROWS),
    "lazy polars": lambda: pl.LazyFrame(ROWS),
    "polars categories": lambda: pl.DataFrame(ROWS).with_columns(pl.col("k").cast(pl.Categorical)),
    "polars enum": lambda: pl.DataFrame(ROWS).with_columns(pl.col("k").cast(pl.Enum(["b", "a"]))),
    "duckdb": lambda: duckdb.from_arrow(ARROW),
    "stream": lambda: ArrowStream(ARROW),
    "array": lambda: ArrowArray(ARROW.to_batches()[0]),
}


@pytest.fixture
def table() -> Table:
    return memory_table(MemoryStore())


def held(table: Table) -> list[dict[str, Any]]:
    return sorted(table.to_arrow().to_pylist(), key=lambda row: row["k"])


@pytest.mark.parametrize("form", FORMS)
def test_job_writes_rows_of_each_form(table: Table, form: str) -> None:
    with table.job(SCHEMA, partition_by=["day"]) as job:
        job.write(FORMS[form]())
    assert held(table) == ROWS


@pytest.mark.parametrize("form", FORMS)
def test_merge_takes_rows_of_each_form(table: Table, form: str) -> None:
    before = [{"k": "a", "v": 7, "day": DAY}, {"k": "z", "v": 9, "day": DAY}]
    with table.job(SCHEMA, partition_by=["day"]) as job:
        job.write(pa.Table.from_pylist(before, SCHEMA))
    done = table.merge(FORMS[form](), on=["k"])
    assert (done.rows.updated, done.rows.inserted, done.rows.unchanged) == (1, 1, 1)
    assert held(table) == [*ROWS, before[1]]


@pytest.mark.parametrize("form", FORMS)
def test_merge_of_each_form_makes_the_table(table: Table, form: str) -> None:
    table.merge(FORMS[form](), on=["k"], partition_by=["day"])
    assert held(table) == ROWS


@pytest.mark.parametrize("form", ["pandas", "polars", "stream", "table", "polars categories"])
def test_job_takes_its_columns_from_a_frame(table: Table, form: str) -> None:
    frame = FORMS[form]()
    with table.job(frame, partition_by=["day"]) as job:
        job.write(frame)
    assert held(table) == ROWS
    assert table.schema.field("k").type == pa.string()


def test_job_takes_its_columns_from_a_schema_of_polars(table: Table) -> None:
    frame = pl.DataFrame(ROWS)
    with table.job(frame.schema, partition_by=["day"]) as job:
        job.write(frame)
    assert held(table) == ROWS


@pytest.mark.parametrize("kind", [pl.String, pl.Binary, pl.Categorical, pl.Enum(["x", "y", "w"])])
def test_merge_by_a_key_of_polars_type_finds_it_and_heeds_its_conditions(
    table: Table, kind: Any
) -> None:
    values = ["x", "y", "w"] if kind != pl.Binary else [b"x", b"y", b"w"]
    frame = pl.DataFrame({"k": pl.Series(values, dtype=kind), "v": [1, 2, 3], "p": ["a", "a", "b"]})
    table.merge(frame, on=["k"], partition_by=["p"])
    changes = frame.with_columns(v=pl.col("v") * 10, op=pl.Series(["U", "D", "U"])).vstack(
        frame.with_columns(v=pl.lit(5, pl.Int64), op=pl.lit("U"))[:1]
    )
    done = table.merge(changes, on=["k"], delete_when=pc.field("op") == "D", latest_by="v")
    assert (done.rows.updated, done.rows.deleted) == (2, 1)
    assert [(row["k"], row["v"]) for row in held(table)] == [(values[2], 30), (values[0], 10)]


def test_nested_categories_and_texts_of_polars_are_written_as_texts(table: Table) -> None:
    kind = pl.Struct({"c": pl.Enum(["a"]), "b": pl.Binary})
    frame = pl.DataFrame(
        {
            "k": [1, 2],
            "tags": pl.Series([["a", None], None], dtype=pl.List(pl.Categorical)),
            "pair": pl.Series([["a", "b"], None], dtype=pl.Array(pl.String, 2)),
            "it": pl.Series([{"c": "a", "b": b"x"}, None], dtype=kind),
        }
    )
    expected = [
        {"k": 1, "tags": ["a", None], "pair": ["a", "b"], "it": {"c": "a", "b": b"x"}},
        {"k": 2, "tags": None, "pair": None, "it": None},
    ]
    with table.job(frame) as job:
        job.write(frame)
    assert held(table) == expected
    assert table.merge(frame, on=["k"]).rows.unchanged == 2


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (None, r"nothing \(None\)"),
        ([1, 2], r"builtins\.list"),
        ({"k": [1]}, r"builtins\.dict"),
        (pl.DataFrame({"k": pl.Series([object()], dtype=pl.Object)}), "'k' holds Python objects"),
        (pl.DataFrame({"k": pl.Series([1], dtype=pl.Int128)}), "polars"),
        (pl.Series("k", [1]), "polars"),
        (pd.DataFrame({"k": [1, "a"]}), "pandas"),
    ],
)
def test_what_is_no_table_is_refused_and_nothing_is_written(
    table: Table, data: Any, named: str
) -> None:
    with table.job(pa.schema([("k", pa.int64())])) as job:
        job.write(pa.table({"k": [0]}))
    with pytest.raises(InvalidInputError, match=named):
        table.merge(data, on=["k"])
    with pytest.raises(InvalidInputError, match=named), table.job() as job:
        job.write(data)
    assert held(table) == [{"k": 0}]


def test_a_reader_is_written_as_it_is_read(table: Table) -> None:
    read: list[int] = []

    def batches() -> Any:
        for number in range(3):
            read.append(number)
            yield pa.record_batch({"k": [number]})

    stream = pa.RecordBatchReader.from_batches(pa.schema([("k", pa.int64())]), batches())
    with table.job(stream.schema) as job:
        job.write(stream)
    assert read == [0, 1, 2]
    assert [row["k"] for row in held(table)] == [0, 1, 2]


STRUCT = pa.struct([("a", pa.string()), ("b", pa.int64())])
TURNED = pa.struct([("b", pa.int32()), ("a", pa.large_string())])
VALUES = [{"b": 1, "a": "x"}, None, {"b": None, "a": "y"}, {"b": 4, "a": None}]


@pytest.mark.parametrize(
    ("array", "kind"),
    [
        (pa.array(VALUES, TURNED), STRUCT),
        (pa.array([VALUES, None, [], VALUES[:1]], pa.list_(TURNED)), pa.list_(STRUCT)),
        (pa.array([VALUES, None, [], VALUES[:1]], pa.large_list(TURNED)), pa.list_(STRUCT)),
        (pa.array([VALUES[:2], None, VALUES[2:]], pa.list_(TURNED, 2)), pa.list_(STRUCT)),
        (
            pa.array(
                [[("k", it) for it in VALUES], None, [], [("l", None)]],
                pa.map_(pa.string(), TURNED),
            ),
            pa.map_(pa.string(), STRUCT),
        ),
        (pa.array(["x", None, "x", "y"]).dictionary_encode(), pa.string()),
        (pa.array([b"x", None, b"", b"y"], pa.binary_view()), pa.binary()),
        (
            pa.DictionaryArray.from_arrays(
                pa.array([1, None, 0], pa.uint8()), pa.array(["x", None], pa.string_view())
            ),
            pa.string(),
        ),
    ],
    ids=["struct", "list", "large", "fixed", "map", "dictionary", "view", "dictionary of views"],
)
def test_cast_of_any_slice_keeps_its_values_by_their_names(array: Any, kind: pa.DataType) -> None:
    for start in range(len(array) + 1):
        for end in range(start, len(array) + 1):
            part = array[start:end]
            cast = cast_array(part, kind)
            cast.validate(full=True)
            assert cast.type == kind
            assert cast.to_pylist() == part.to_pylist()


def test_a_table_in_memory_has_no_dictionaries_and_views_at_any_depth() -> None:
    frame = pl.DataFrame({"k": pl.Series([["a"], []], dtype=pl.List(pl.Categorical))})
    found = table_of(frame)
    assert "dictionary" not in str(found.schema)
    assert "view" not in str(found.schema)
    assert found.to_pylist() == [{"k": ["a"]}, {"k": []}]
