"""Which columns a table has after a job with others, and how Spark is told of them."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from zero_rename.committer.errors import TableMismatchError
from zero_rename.committer.format.schema.compatibility import (
    check_same,
    from_json,
    is_later,
    is_untyped,
    to_json,
)
from zero_rename.committer.format.schema.evolution import evolved
from zero_rename.committer.format.schema.row_metadata import ROW_METADATA
from zero_rename.committer.format.schema.types import normalise


def one(kind: pa.DataType) -> pa.Schema:
    return pa.schema([("c", kind)])


@pytest.mark.parametrize(
    ("table", "job", "expected"),
    [
        (pa.int8(), pa.int16(), pa.int16()),
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.int64(), pa.int32(), pa.int64()),
        (pa.uint32(), pa.int64(), pa.int64()),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.decimal128(5, 2), pa.decimal128(7, 4), pa.decimal128(7, 4)),
        (pa.null(), pa.string(), pa.string()),
        (pa.string(), pa.null(), pa.string()),
        (pa.binary(4), pa.binary(), pa.binary()),
        (
            pa.struct([("a", pa.int32()), ("b", pa.int64())]),
            pa.struct([("b", pa.int32()), ("a", pa.int64())]),
            pa.struct([("a", pa.int64()), ("b", pa.int64())]),
        ),
        (pa.list_(pa.float32()), pa.list_(pa.float64()), pa.list_(pa.float64())),
        (
            pa.map_(pa.int32(), pa.int64()),
            pa.map_(pa.int64(), pa.int32()),
            pa.map_(pa.int64(), pa.int64()),
        ),
    ],
    ids=str,
)
def test_a_type_widens(table: pa.DataType, job: pa.DataType, expected: pa.DataType) -> None:
    found = evolved(one(table), one(job), ()).field("c").type
    assert found.equals(expected) or str(found) == str(one(expected).field(0).type), found


@pytest.mark.parametrize(
    ("table", "job"),
    [
        (pa.int32(), pa.string()),
        (pa.int64(), pa.float64()),
        (pa.int64(), pa.uint64()),
        (pa.decimal128(10, 2), pa.decimal128(10, 4)),
        (pa.decimal128(10, 2), pa.float64()),
        (pa.date32(), pa.timestamp("us")),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.struct([("a", pa.int32())]), pa.struct([("a", pa.int32()), ("b", pa.int32())])),
        (pa.list_(pa.int32()), pa.list_(pa.string())),
    ],
    ids=str,
)
def test_what_would_lose_something_names_both_types(table: pa.DataType, job: pa.DataType) -> None:
    with pytest.raises(TableMismatchError, match=r"c is .*, in the table .*accepted: ") as caught:
        evolved(one(table), one(job), (), url="s3://b/t")
    assert caught.value.table == "s3://b/t"


def test_nothing_changes_where_the_table_holds_it_all() -> None:
    table = pa.schema([("a", pa.int64()), ("b", pa.string())])
    assert evolved(table, pa.schema([("b", pa.string()), ("a", pa.int32())]), ()) is table


@pytest.mark.parametrize("of", [lambda it: it, pa.list_, lambda it: pa.map_(pa.string(), it)])
def test_column_of_nulls_that_gets_a_type_is_marked_for_good(of: Any) -> None:
    """Files of before hold nulls without a type, which not every reader takes."""
    now = evolved(one(of(pa.null())), one(of(pa.int32())), ())
    assert is_untyped(now.field("c"))
    again = evolved(now, pa.schema([("c", of(pa.int64())), ("d", pa.null())]), ())
    assert [is_untyped(field) for field in again] == [True, False]
    assert is_untyped(from_json(to_json(normalise(again))).field("c"))
    assert not is_untyped(evolved(one(of(pa.int32())), one(of(pa.int64())), ()).field("c"))


def test_a_name_in_another_case_is_no_new_column() -> None:
    with pytest.raises(TableMismatchError, match="C differs from the table's c by case only"):
        evolved(one(pa.int64()), pa.schema([("c", pa.int64()), ("C", pa.int64())]).remove(0), ())


def test_later_columns_may_be_left_out_and_first_ones_not() -> None:
    table = evolved(one(pa.int64()), pa.schema([("c", pa.int64()), ("d", pa.int64())]), ())
    assert [is_later(field) for field in table] == [False, True]
    check_same(table, one(pa.int64()))
    with pytest.raises(TableMismatchError, match="c is missing"):
        check_same(table, pa.schema([("d", pa.int64())]))


def spark_json(*fields: tuple[str, Any]) -> dict[bytes, bytes]:
    members = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in fields]
    return {ROW_METADATA: json.dumps({"type": "struct", "fields": members}).encode()}


def described(schema: pa.Schema) -> dict[str, Any]:
    fields = json.loads((schema.metadata or {})[ROW_METADATA])["fields"]
    return {field["name"]: field["type"] for field in fields}


def test_sparks_description_follows() -> None:
    table = pa.schema(
        [("p", pa.string()), ("c", pa.string()), ("n", pa.int32())],
        spark_json(("c", "char(3)"), ("n", "integer")),
    )
    variant = pa.struct([("value", pa.binary()), ("metadata", pa.binary())])
    job = pa.schema(
        [("p", pa.string()), ("n", pa.int64()), ("v", variant)],
        spark_json(("n", "long"), ("v", "variant")),
    )
    found = evolved(table, job, ("p",))
    assert described(found) == {"c": "char(3)", "n": "long", "v": "variant"}


def test_columns_that_spark_never_saw_are_described_as_it_would_read_them() -> None:
    table = pa.schema([("c", pa.int64())], spark_json(("c", "long")))
    job = pa.schema(
        [
            ("c", pa.int64()),
            ("u", pa.uint32()),
            ("l", pa.list_(pa.struct([("d", pa.decimal128(5, 2))]))),
            ("m", pa.map_(pa.string(), pa.timestamp("us"))),
        ]
    )
    found = described(evolved(table, job, ()))
    assert found["u"] == "long"
    assert found["l"]["elementType"]["fields"][0]["type"] == "decimal(5,2)"
    assert found["m"] == {
        "type": "map",
        "keyType": "string",
        "valueType": "timestamp_ntz",
        "valueContainsNull": True,
    }
    assert (evolved(one(pa.int64()), job, ()).metadata or {}) == {}
