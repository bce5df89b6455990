"""Spark's description of columns in the metadata of files: it is exactly of their columns."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from support.memory_streams import MemoryStreams
from zero_rename.committer.format.job_spec import FileOptions
from zero_rename.committer.format.layout import TableRoot, new_job_id
from zero_rename.committer.format.parquet.task_writer import TaskWriter
from zero_rename.committer.format.schema.compatibility import data_schema
from zero_rename.committer.format.schema.evolution import evolved
from zero_rename.committer.format.schema.row_metadata import ROW_METADATA, described, renamed


def member(name: str, kind: Any, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def text_of(*members: Any) -> bytes:
    return json.dumps({"type": "struct", "fields": members}).encode()


def fields_of(schema: pa.Schema) -> list[Any]:
    assert schema.metadata is not None
    return json.loads(schema.metadata[ROW_METADATA])["fields"]


VARIANT = pa.struct([("value", pa.binary()), ("metadata", pa.binary())])
UDT = {"type": "udt", "class": "org.X", "sqlType": "double"}
STRUCT = {"type": "struct", "fields": [member("x", "integer"), member("y", UDT)]}
#: Types in Spark's JSON, each with the type in which they are stored.
STORED = [
    ("void", pa.null()),
    ("short", pa.uint8()),
    ("integer", pa.int32()),
    ("decimal(20,0)", pa.uint64()),
    ("decimal(9,2)", pa.decimal128(9, 2)),
    ("string", pa.string()),
    ("string collate UTF8_LCASE", pa.string()),
    ("varchar(5)", pa.string()),
    ("binary", pa.binary(16)),
    ("timestamp", pa.timestamp("us", "UTC")),
    ("timestamp_ntz", pa.timestamp("us")),
    ("interval hour to second", pa.duration("us")),
    ("time(3)", pa.time64("us")),
    ("variant", VARIANT),
    (UDT, pa.float64()),
    (STRUCT, pa.struct([("x", pa.int32()), ("y", pa.float64())])),
    ({"type": "array", "elementType": "long", "containsNull": True}, pa.list_(pa.int64())),
    (
        {"type": "map", "keyType": "string", "valueType": UDT, "valueContainsNull": True},
        pa.map_(pa.string(), pa.float64()),
    ),
]


@pytest.mark.parametrize(("said", "kind"), STORED, ids=str)
def test_description_of_a_columns_own_type_stays_as_it_is(said: Any, kind: pa.DataType) -> None:
    text = text_of(member("a", said, comment="kept"))
    schema = pa.schema([("a", kind), ("day", pa.string())], {ROW_METADATA: text})
    assert data_schema(schema, ["day"]).metadata == {ROW_METADATA: text}


@pytest.mark.parametrize(("said", "kind"), STORED, ids=str)
def test_description_of_another_type_does_not_count(said: Any, kind: pa.DataType) -> None:
    other = pa.bool_()
    schema = pa.schema([("a", other)], {ROW_METADATA: text_of(member("a", said))})
    assert described(schema) == {}
    assert fields_of(data_schema(schema, [])) == [member("a", "boolean")]


def test_words_of_a_newer_spark_are_kept() -> None:
    schema = pa.schema([("a", pa.binary())], {ROW_METADATA: text_of(member("a", "geometry(4326)"))})
    assert list(described(schema)) == ["a"]


def test_file_of_rows_with_columns_added_dropped_and_cast_describes_its_own_columns() -> None:
    """Arrow passes the metadata of a table on to what is made of it."""
    rows = pa.table({"kept": ["x"], "cast": pa.array([1], pa.int32()), "gone": [1], "day": ["d"]})
    text = text_of(member("kept", "varchar(5)"), member("cast", "integer"), member("gone", "long"))
    rows = rows.replace_schema_metadata({ROW_METADATA: text})
    rows = rows.drop_columns(["gone"]).append_column("new", pa.array([1.5]))
    rows = rows.set_column(1, "cast", rows["cast"].cast(pa.string()))
    store = MemoryStreams()
    root = TableRoot.parse("s3://bucket/flights")
    task = TaskWriter(root, new_job_id(), 0, 0, rows.schema, ("day",), FileOptions(), store.open)
    task.write(rows)
    (file,) = task.close().files
    assert fields_of(store.table(file).schema) == [
        member("kept", "varchar(5)"),
        member("cast", "string"),
        member("new", "double"),
    ]


GARBAGE = [b"{}", b"[]", b"", b"{", b"\xff", b'{"fields": 1}', b'{"fields": [1, {"name": "a"}]}']


@pytest.mark.parametrize("text", GARBAGE)
def test_text_that_describes_nothing_ends_no_job(text: bytes) -> None:
    schema = pa.schema([("a", pa.int32())], {ROW_METADATA: text})
    assert fields_of(data_schema(schema, [])) == [member("a", "integer")]
    wider = pa.schema([("a", pa.int32()), ("b", pa.string())], {ROW_METADATA: text})
    after = evolved(schema, wider, [])
    assert fields_of(after) == [member("a", "integer"), member("b", "string")]
    assert renamed(schema, ["A"]).names == ["A"]
