"""Spark's types and Arrow's, without a JVM."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as st

from zero_rename.committer.errors import UnsupportedTypeError
from zero_rename.committer.format.schema.row_metadata import ROW_METADATA
from zero_rename.spark.types import spark_schema, table_schema

SCHEMA = st.StructType(
    [
        st.StructField("n", st.IntegerType()),
        st.StructField("at", st.TimestampType()),
        st.StructField("p", st.StringType()),
    ]
)
NOTES: dict[str, Any] = {
    "EXISTS_DEFAULT": "42",
    "parquet.field.id": 7,
    "spark.watermarkDelayMs": 1000,
}
OWN: dict[str, Any] = {"comment": "of the user's"}


class TestOlderPySpark:
    @pytest.fixture(autouse=True)
    def _without_a_zone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """PySpark 4.1's function has no parameter for the zone."""
        from pyspark.sql.pandas import types

        newest = types.to_arrow_schema

        def oldest(
            schema: Any,
            error_on_duplicated_field_names_in_struct: bool = False,
            timestamp_utc: bool = True,
            prefers_large_types: bool = False,
        ) -> pa.Schema:
            return newest(schema, timezone="UTC")

        monkeypatch.setattr(types, "to_arrow_schema", oldest)

    def test_a_table_is_stored_and_read(self) -> None:
        from zero_rename.spark.types import arrow_schema

        stored = table_schema(SCHEMA, ["p"])
        assert stored.field("at").type == pa.timestamp("us", tz="UTC")
        assert ROW_METADATA in stored.metadata
        assert arrow_schema(spark_schema(stored)).names == ["n", "at", "p"]


def test_local_times_are_no_instants_where_pyspark_prefers_these(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As before 4.3."""
    from pyspark.sql.pandas import types

    newest: Any = types.from_arrow_type

    def oldest(at: pa.DataType, prefer_timestamp_ntz: bool = False) -> Any:
        return newest(at, prefer_timestamp_ntz=prefer_timestamp_ntz)

    monkeypatch.setattr(types, "from_arrow_type", oldest)
    local = pa.timestamp("us")
    schema = pa.schema([("a", local), ("b", pa.list_(local)), ("c", pa.timestamp("us", "UTC"))])
    kinds = "struct<a:timestamp_ntz,b:array<timestamp_ntz>,c:timestamp>"
    assert spark_schema(schema).simpleString() == kinds


class TestVoid:
    """Empty literals: Spark says of `array()` that its elements are of no type and never null."""

    @pytest.mark.parametrize(
        "kind",
        [
            st.ArrayType(st.NullType(), containsNull=False),
            st.MapType(st.StringType(), st.NullType(), valueContainsNull=False),
            st.StructType([st.StructField("v", st.NullType(), nullable=False)]),
            st.NullType(),
        ],
        ids=lambda kind: kind.simpleString(),
    )
    def test_never_null(self, kind: st.DataType) -> None:
        frame = st.StructType([st.StructField("v", kind, nullable=False)])
        (read,) = spark_schema(table_schema(frame, [])).fields
        assert read.dataType.simpleString() == kind.simpleString()

    def test_keys_of_no_type(self) -> None:
        """Neither Arrow nor Parquet can hold them."""
        kind = st.ArrayType(st.MapType(st.NullType(), st.NullType()))
        with pytest.raises(UnsupportedTypeError, match=r"'v\[\]' has the type map<void,void>"):
            table_schema(st.StructType([st.StructField("v", kind)]), [])


class TestNotesOfTheSource:
    """What Spark notes of a column for the catalog's table, the file or the stream that it comes
    from: it would fill files that lack the column, or look for them by another name."""

    @staticmethod
    def noted() -> st.StructType:
        nested = st.StructType([st.StructField("a", st.LongType(), True, NOTES | OWN)])
        fields = [
            st.StructField("n", st.LongType(), True, NOTES | OWN),
            st.StructField("s", st.ArrayType(nested), True, NOTES),
        ]
        return st.StructType(fields)

    def found(self, schema: st.StructType) -> list[dict[str, Any]]:
        number, structs = schema.fields
        assert isinstance(structs.dataType, st.ArrayType)
        element = structs.dataType.elementType
        assert isinstance(element, st.StructType)
        return [number.metadata, structs.metadata, element.fields[0].metadata]

    def test_notes_of_a_column_s_source_are_not_stored(self) -> None:
        stored = json.loads((table_schema(self.noted(), []).metadata or {})[ROW_METADATA])
        assert self.found(st.StructType.fromJson(stored)) == [OWN, {}, OWN]

    def test_notes_that_were_stored_are_not_read(self) -> None:
        stored = table_schema(self.noted(), [])
        text = self.noted().json().encode()
        stored = stored.with_metadata({**(stored.metadata or {}), ROW_METADATA: text})
        assert self.found(spark_schema(stored)) == [OWN, {}, OWN]


class TestUserDefinedTypes:
    @staticmethod
    def stored(name: str) -> pa.Schema:
        """A table that another application has written, whose types are not installed here."""
        written = {
            "type": "udt",
            "class": "org.example.PointUDT",
            "pyClass": "example.geometry.PointUDT",
            "sqlType": st.StructType([st.StructField("x", st.DoubleType())]).jsonValue(),
        }
        points = {"type": "array", "elementType": written, "containsNull": True}
        fields = [
            {"name": "n", "type": "integer", "nullable": True, "metadata": {}},
            {"name": name, "type": points, "nullable": True, "metadata": {}},
        ]
        metadata = {ROW_METADATA: json.dumps({"type": "struct", "fields": fields}).encode()}
        point = pa.struct([("x", pa.float64())])
        return pa.schema([("n", pa.int32()), (name, pa.list_(point))], metadata)

    def test_one_that_is_not_here_is_read_as_what_it_is_stored_as(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        found = spark_schema(self.stored("points"))
        assert found.simpleString() == "struct<n:int,points:array<struct<x:double>>>"
        assert "'points'" in caplog.text
        assert "example.geometry.PointUDT" in caplog.text

    def test_it_is_not_looked_for_where_other_columns_are_read(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        assert spark_schema(self.stored("points"), ["n"]).simpleString() == "struct<n:int>"
        assert caplog.text == ""


def test_description_of_other_columns_does_not_count() -> None:
    """Rows that were read from Spark's files by Arrow, and then cast and joined."""
    fields = [
        {"name": "n", "type": "integer", "nullable": True, "metadata": {}},
        {"name": "gone", "type": "long", "nullable": True, "metadata": {}},
    ]
    metadata = {ROW_METADATA: json.dumps({"type": "struct", "fields": fields}).encode()}
    schema = pa.schema([("n", pa.string()), ("new", pa.float64())], metadata)
    assert spark_schema(schema).simpleString() == "struct<n:string,new:double>"
    assert spark_schema(schema.with_metadata({ROW_METADATA: b"{}"})).names == ["n", "new"]


@pytest.mark.parametrize("kind", ["moment(6)", {"type": "array", "elementType": "moment"}])
def test_type_of_a_newer_spark_is_refused_by_column_where_it_is_asked_for(kind: Any) -> None:
    stored = pa.binary()
    if isinstance(kind, dict):
        kind["containsNull"] = True
        stored = pa.list_(stored)
    fields = [
        {"name": "n", "type": "integer", "nullable": True, "metadata": {}},
        {"name": "t", "type": kind, "nullable": True, "metadata": {}},
    ]
    metadata = {ROW_METADATA: json.dumps({"type": "struct", "fields": fields}).encode()}
    schema = pa.schema([("n", pa.int32()), ("t", stored)], metadata)
    with pytest.raises(UnsupportedTypeError, match=r"no type for the column 't', .*moment"):
        spark_schema(schema)
    assert spark_schema(schema, ["n"]).names == ["n"]
