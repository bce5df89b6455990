"""Spark's types and Arrow's, without a JVM."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as st

from zero_rename.spark.types import ROW_METADATA, spark_schema, table_schema

SCHEMA = st.StructType(
    [
        st.StructField("n", st.IntegerType()),
        st.StructField("at", st.TimestampType()),
        st.StructField("p", st.StringType()),
    ]
)


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
