"""Which columns a table can have; that they are kept, compared and cast without loss."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.arrow_data import COLUMNS, table_of
from zero_rename.committer.errors import InvalidInputError, TableMismatchError, UnsupportedTypeError
from zero_rename.committer.format.schema.compatibility import (
    cast,
    check_same,
    check_types,
    data_schema,
    from_json,
    to_json,
)
from zero_rename.committer.format.schema.types import normalise

EVERYTHING = table_of(COLUMNS).schema
UTC = pa.timestamp("us", "UTC")


def one(kind: pa.DataType, **options: Any) -> pa.Schema:
    return pa.schema([pa.field("c", kind, **options)])


def element(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", kind))


@pytest.mark.parametrize("name", COLUMNS)
def test_types_of_tables_stay(name: str) -> None:
    schema = one(COLUMNS[name][0])
    assert normalise(schema).equals(schema, check_metadata=True)


@pytest.mark.parametrize(
    ("given_type", "kept"),
    [
        (pa.float16(), pa.float32()),
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.large_binary(), pa.binary()),
        (pa.binary_view(), pa.binary()),
        (pa.dictionary(pa.int8(), pa.large_string()), pa.string()),
        (pa.decimal32(5, 2), pa.decimal128(5, 2)),
        (pa.decimal256(38, 2), pa.decimal128(38, 2)),
        (pa.date64(), pa.date32()),
        (pa.time32("s"), pa.time64("us")),
        (pa.time64("ns"), pa.time64("us")),
        (pa.timestamp("ns", "Europe/Berlin"), UTC),
        (pa.timestamp("s"), pa.timestamp("us")),
        (pa.duration("ns"), pa.duration("us")),
        (pa.large_list(pa.int8()), element(pa.int8())),
        (pa.list_(pa.int8(), 2), element(pa.int8())),
        (pa.struct([("x", pa.large_string())]), pa.struct([("x", pa.string())])),
        (pa.map_(pa.large_string(), pa.float16()), pa.map_(pa.string(), pa.float32())),
        (
            element(pa.struct([("x", pa.timestamp("ms"))])),
            element(pa.struct([("x", pa.timestamp("us"))])),
        ),
        (pa.uuid(), pa.binary(16)),
        (pa.json_(), pa.string()),
    ],
    ids=str,
)
def test_other_types_become_those(given_type: pa.DataType, kept: pa.DataType) -> None:
    assert normalise(one(given_type)).field("c").type == kept


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (pa.decimal256(39, 2), "c"),
        (pa.decimal128(5, -2), "c"),
        (pa.month_day_nano_interval(), "c"),
        (pa.struct([]), "c"),
        (pa.dense_union([pa.field("a", pa.int8())]), "c"),
        (pa.run_end_encoded(pa.int32(), pa.int8()), "c"),
        (pa.list_view(pa.int8()), "c"),
        (pa.bool8(), "c"),
        (pa.struct([("x", pa.list_(pa.struct([])))]), r"c\.x\[\]"),
        (pa.map_(pa.string(), pa.month_day_nano_interval()), r"c\.value"),
    ],
    ids=str,
)
def test_types_no_table_can_hold_are_refused(kind: pa.DataType, path: str) -> None:
    with pytest.raises(UnsupportedTypeError, match=f"'{path}'") as caught:
        normalise(one(kind))
    assert caught.value.remedy


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([]),
        pa.schema([("a", pa.int8()), ("a", pa.int8())]),
        pa.schema([("a", pa.int8()), ("A", pa.int8())]),
        pa.schema([("", pa.int8())]),
        one(pa.struct([("x", pa.int8()), ("X", pa.int8())])),
    ],
    ids=["none", "twice", "case", "nameless", "nested"],
)
def test_unfit_names_are_refused(schema: pa.Schema) -> None:
    with pytest.raises(InvalidInputError):
        normalise(schema)


def test_every_column_is_nullable() -> None:
    strict = pa.struct([pa.field("x", pa.int8(), nullable=False)])
    inner = pa.list_(pa.field("item", strict, nullable=False))
    field = normalise(one(inner, nullable=False)).field("c")
    assert field.nullable
    assert field.type.value_field.nullable
    assert field.type.value_type.field("x").nullable


def test_metadata_is_kept_but_pandas() -> None:
    schema = one(pa.int8(), metadata={"k": "v", "PARQUET:field_id": "1"})
    schema = schema.with_metadata({"pandas": "{}", "org.apache.spark.x": "y"})
    kept = normalise(schema)
    assert kept.metadata == {b"org.apache.spark.x": b"y"}
    assert kept.field("c").metadata == {b"k": b"v"}
    assert data_schema(kept, []).metadata == kept.metadata


def test_record_is_exact_and_readable() -> None:
    schema = EVERYTHING.with_metadata({"k": "v"})
    record = json.loads(json.dumps(to_json(schema)))
    assert from_json(record).equals(schema, check_metadata=True)
    types = {column["name"]: column["type"] for column in record["columns"]}
    assert types["decimal"] == "decimal(38, 10)"
    assert types["struct"] == {
        "struct": [{"name": "a", "type": "int8"}, {"name": "b", "type": "string"}]
    }


RECORD = to_json(normalise(EVERYTHING))


def _renamed(record: dict) -> None:
    record["columns"][0]["name"] = "other"


def _retyped(record: dict) -> None:
    record["columns"][1]["type"] = "int16"


def _exchanged(record: dict) -> None:
    record.update(arrow_ipc=to_json(one(pa.int8()))["arrow_ipc"])


def _not_normalised(record: dict) -> None:
    record.update(to_json(normalise(one(pa.int8()))))
    message = one(pa.large_string()).serialize().to_pybytes()
    record["arrow_ipc"] = base64.b64encode(message).decode()
    record["sha256"] = hashlib.sha256(message).hexdigest()


@pytest.mark.parametrize(
    "damage",
    [
        _renamed,
        _retyped,
        _exchanged,
        _not_normalised,
        lambda record: record.pop("columns"),
        lambda record: record.pop("sha256"),
        lambda record: record.update(arrow_ipc=None),
        lambda record: record.update(arrow_ipc=record["arrow_ipc"][:-8]),
        lambda record: record.update(arrow_ipc="*"),
    ],
)
def test_damaged_records_are_refused(damage: Any) -> None:
    record = copy.deepcopy(RECORD)
    damage(record)
    with pytest.raises(ValueError, match=r"arrow_ipc|members|columns"):
        from_json(record)


@given(st.integers(0, len(RECORD["arrow_ipc"]) - 1), st.sampled_from("Ab0/"))
def test_no_changed_byte_goes_unnoticed(position: int, replacement: str) -> None:
    text = RECORD["arrow_ipc"]
    changed = text[:position] + replacement + text[position + 1 :]
    if changed != text:
        with pytest.raises(ValueError, match=r"arrow_ipc|members"):
            from_json({**RECORD, "arrow_ipc": changed})


def test_same_columns_in_another_order_fit() -> None:
    check_same(EVERYTHING, pa.schema(list(reversed(list(EVERYTHING)))))


@pytest.mark.parametrize(
    ("table", "job"),
    [
        (pa.int64(), pa.int32()),
        (pa.int16(), pa.uint8()),
        (pa.float64(), pa.float32()),
        (pa.decimal128(12, 4), pa.decimal128(10, 2)),
        (pa.binary(), pa.binary(3)),
        (pa.string(), pa.null()),
        (element(pa.int64()), element(pa.int8())),
        (
            pa.struct([("a", pa.int64()), ("b", pa.string())]),
            pa.struct([("b", pa.null()), ("a", pa.int8())]),
        ),
        (pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int8())),
    ],
    ids=str,
)
def test_narrower_columns_fit_and_are_cast(table: pa.DataType, job: pa.DataType) -> None:
    check_same(one(table), one(job))
    batch = pa.RecordBatch.from_arrays([pa.nulls(2, job)], schema=one(job))
    assert cast(batch, one(table)).schema.field("c").type == table


@pytest.mark.parametrize(
    ("table", "job"),
    [
        (pa.int32(), pa.int64()),
        (pa.int8(), pa.uint8()),
        (pa.uint64(), pa.int8()),
        (pa.float32(), pa.float64()),
        (pa.float64(), pa.int32()),
        (pa.decimal128(10, 2), pa.decimal128(11, 3)),
        (pa.string(), pa.int8()),
        (pa.timestamp("us"), UTC),
        (pa.date32(), pa.timestamp("us")),
        (pa.null(), pa.int8()),
        (pa.binary(3), pa.binary(2)),
        (pa.struct([("a", pa.int8())]), pa.struct([("a", pa.int8()), ("b", pa.int8())])),
        (pa.struct([("a", pa.int8()), ("b", pa.int8())]), pa.struct([("a", pa.int8())])),
        (element(pa.int8()), pa.int8()),
    ],
    ids=str,
)
def test_columns_that_could_lose_are_refused(table: pa.DataType, job: pa.DataType) -> None:
    with pytest.raises(TableMismatchError, match=r"\bc\b"):
        check_same(one(table), one(job))
    batch = pa.RecordBatch.from_arrays([pa.nulls(1, job)], schema=one(job))
    with pytest.raises(InvalidInputError, match=r"\bc\b"):
        cast(batch, one(table))


def test_every_difference_is_named() -> None:
    table = pa.schema([("day", pa.date32()), ("n", pa.int8()), ("gone", pa.int8())])
    job = pa.schema([("Day", pa.date32()), ("n", pa.string()), ("new", pa.int8())])
    with pytest.raises(TableMismatchError) as caught:
        check_same(table, job, table="s3://b/t")
    text = str(caught.value)
    for part in ("day is missing", "gone is missing", "n is string", "new is not", "'day' meant"):
        assert part in text
    assert caught.value.table == "s3://b/t"


def test_cast_orders_by_name_and_keeps_values() -> None:
    target = normalise(EVERYTHING)
    source = table_of(COLUMNS).to_batches()[0]
    shuffled = source.select(list(reversed(source.schema.names)))
    assert cast(shuffled, target).to_pylist() == source.to_pylist()


@pytest.mark.parametrize(
    ("kind", "value", "target"),
    [
        (pa.timestamp("ns"), 1, pa.timestamp("us")),
        (pa.time64("ns"), 1, pa.time64("us")),
        (pa.timestamp("s"), 2**60, pa.timestamp("us")),
        (pa.duration("ns"), 1, pa.duration("us")),
    ],
)
def test_values_that_would_change_are_refused(
    kind: pa.DataType, value: int, target: pa.DataType
) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([value], kind)], ["c"])
    with pytest.raises(InvalidInputError, match="'c'"):
        cast(batch, one(target))


@pytest.mark.parametrize(
    ("partition_by", "match"),
    [(["x"], "'x'"), (["A"], "'a' meant"), (["a", "a"], "twice"), (["bin"], "'bin'")],
)
def test_unfit_partition_columns_are_refused(partition_by: list[str], match: str) -> None:
    schema = pa.schema([("a", pa.int8()), ("b", pa.int8()), ("bin", pa.binary())])
    with pytest.raises(InvalidInputError, match=match):
        check_types(schema, partition_by)


def test_a_table_needs_a_data_column() -> None:
    schema = pa.schema([("a", pa.int8()), ("b", pa.int8())])
    check_types(schema, ["b"])
    with pytest.raises(InvalidInputError, match="Every column"):
        check_types(schema, ["b", "a"])
