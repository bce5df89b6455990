"""Changes by Spark of tables whose columns have types that Spark lacks: it sees wider ones."""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from zero_rename.committer import InvalidInputError, Table, TableMismatchError
from zero_rename.spark import merge, save, update

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("planned_once")]

A, B, C = (uuid.UUID(int=number) for number in (1, 2, 3))
KINDS = {
    "n": pa.int64(),
    "u": pa.uuid(),
    "b": pa.uint8(),
    "w": pa.uint64(),
    "s": pa.struct([("i", pa.uint32()), ("us", pa.list_(pa.binary(16)))]),
}
FRAME = "n long, u binary, b short, w decimal(20,0), s struct<i: long, us: array<binary>>"
ROWS = {
    "n": [1, 2],
    "u": [A.bytes, B.bytes],
    "b": [255, None],
    "w": [2**64 - 1, None],
    "s": [{"i": 2**32 - 1, "us": [A.bytes, None]}, None],
}


def row(number: int, key: uuid.UUID, small: int = 7) -> tuple[Any, ...]:
    return number, key.bytes, small, Decimal(2**63), (5, [key.bytes])


@pytest.fixture
def table(s3_bucket: Any, url: str) -> Table:
    """One adopted file of another program, with Parquet's annotation UUID."""
    columns = {name: pa.array(values, KINDS[name]) for name, values in ROWS.items()}
    body = io.BytesIO()
    pq.write_table(pa.table(columns), body)
    s3_bucket.put("lake/table/f.parquet", body.getvalue())
    table = Table(url)
    table.adopt(apply=True)
    return table


CHANGES: dict[str, tuple[Callable[[Any, str], object], dict[int, uuid.UUID]]] = {
    "append": (
        lambda spark, url: save(spark.createDataFrame([row(3, C)], FRAME), url),
        {1: A, 2: B, 3: C},
    ),
    "update": (
        lambda spark, url: update(url, set={"u": f"x'{C.hex}'", "b": "b + 0"}, where="n = 2"),
        {1: A, 2: C},
    ),
    "merge": (
        lambda spark, url: merge(
            spark.createDataFrame([row(9, B), row(3, C)], FRAME), url, on=["u"]
        ),
        {1: A, 9: B, 3: C},
    ),
    "merge of columns": (
        lambda spark, url: merge(
            spark.createDataFrame([(*row(3, C), "x")], f"{FRAME}, more string"),
            url,
            on=["n"],
            schema_mode="merge",
        ),
        {1: A, 2: B, 3: C},
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes_keep_values_types_and_annotations(
    spark: Any, s3_bucket: Any, url: str, table: Table, change: str
) -> None:
    apply, wanted = CHANGES[change]
    before = table.schema
    apply(spark, url)
    found = table.to_arrow()
    kept = {
        found["n"][i].as_py(): uuid.UUID(bytes=found["u"][i].as_py()) for i in range(len(found))
    }
    assert kept == wanted
    assert [found.schema.field(it.name).type for it in before] == [it.type for it in before]
    (first,) = found.filter(pc.field("n") == 1).select(list(KINDS)).to_pylist()
    assert first == {name: values[0] for name, values in ROWS.items()}
    for file in table.files():
        leaves = pq.read_metadata(io.BytesIO(s3_bucket.read(file.key))).schema
        names = {leaves.column(i).path: str(leaves.column(i).logical_type) for i in range(6)}
        assert names["u"] == "UUID"
        assert names["b"].startswith("Int(bitWidth=8, isSigned=false")
    assert table.verify() == []


@pytest.mark.parametrize("given", [(3, b"short", 7), (3, C.bytes, -1)], ids=["width", "sign"])
def test_value_that_does_not_fit_is_refused(
    spark: Any, url: str, table: Table, given: tuple[Any, ...]
) -> None:
    frame = spark.createDataFrame([(*given, None, None)], FRAME)
    name = "'b'" if given[2] < 0 else "'u'"
    with pytest.raises(InvalidInputError, match=f"The column {name} does not fit the table's"):
        save(frame, url)
    assert len(table.to_arrow()) == 2


def test_column_of_another_type_is_refused_before_any_upload(
    spark: Any, url: str, table: Table
) -> None:
    frame = spark.createDataFrame([row(3, C)], FRAME).selectExpr("n", "hex(u) u", "b", "w", "s")
    with pytest.raises(TableMismatchError, match="u is string, in the table fixed_size_binary"):
        save(frame, url)
