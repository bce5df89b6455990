"""DDL: what each engine is told, and that DuckDB and Spark's parser take it."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import replace
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from support.arrow_data import COLUMNS
from zero_rename.catalog import DescribedTable, Engine, ReadBy, ddl
from zero_rename.catalog.engine_types import NAMES, engine_type, same_hive_type
from zero_rename.committer import InvalidInputError, TableRoot, UnsupportedTypeError
from zero_rename.committer.format.schema.hive_paths import NULL

COLUMNS_ = (
    pa.field("delay", pa.float64()),
    pa.field("carrier", pa.string()),
    pa.field("at", pa.timestamp("us", "UTC")),
)


def described(read_by: ReadBy, *partitions: str, bucket: str = "bucket") -> DescribedTable:
    root = TableRoot(bucket, "flights")
    return DescribedTable(root, read_by, COLUMNS_, (pa.field("day", pa.date32()),), partitions)


class TestTypes:
    @pytest.mark.parametrize("name", COLUMNS)
    def test_hive_has_a_name_for_all_types_but_some(self, name: str) -> None:
        kind = COLUMNS[name][0]
        if name in ("uint32", "uint64", "time", "null"):
            with pytest.raises(UnsupportedTypeError, match="'column'"):
                engine_type(kind, Engine.HIVE, "column")
            return
        text = engine_type(kind, Engine.HIVE, "column")
        assert same_hive_type(text.replace(",", " , "), text)

    @pytest.mark.parametrize("engine", NAMES)
    def test_every_engine_has_the_common_types(self, engine: Engine) -> None:
        for name in ("bool", "int8", "int64", "float64", "decimal", "string", "date", "nested"):
            assert engine_type(COLUMNS[name][0], engine, name)

    @pytest.mark.parametrize(
        ("there", "wanted", "same"),
        [
            ("INTEGER", "int", True),
            (
                "Struct< `a` : Int,b:array<decimal( 9,2)>>",
                "struct<a:int,b:array<decimal(9,2)>>",
                True,
            ),
            ("struct<a-b:int>", "struct<a-b:int>", True),
            ("struct<A:int>", "struct<a:int>", False),
            ("int", "bigint", False),
            ("decimal(9,2)", "decimal(9,3)", False),
            ("varchar(10)", "string", False),
        ],
    )
    def test_types_that_hive_spells_otherwise(self, there: str, wanted: str, same: bool) -> None:
        assert same_hive_type(there, wanted) is same

    def test_nested_names(self) -> None:
        kind = pa.struct([("a", pa.list_(pa.int32())), ("b", pa.map_(pa.string(), pa.float64()))])
        assert engine_type(kind, Engine.ATHENA, "x") == "struct<a:array<int>,b:map<string,double>>"
        trino = 'row("a" array(integer), "b" map(varchar, double))'
        assert engine_type(kind, Engine.TRINO, "x") == trino

    def test_quote_in_a_nested_name_is_doubled(self) -> None:
        kind = pa.struct([('a "b"', pa.int64())])
        assert engine_type(kind, Engine.TRINO, "x") == 'row("a ""b""" bigint)'


class TestStatements:
    def test_athena_reads_folders(self) -> None:
        table, partitions = ddl(described(ReadBy.FOLDERS, "day=2013-01-01"), "athena", "db.flights")
        assert "STORED AS PARQUET\nLOCATION 's3://bucket/flights/'" in table
        assert "`day` date" in table.partition("PARTITIONED BY")[2]
        place = "'s3://bucket/flights/day=2013-01-01/'"
        assert f"PARTITION (`day`='2013-01-01') LOCATION {place}" in partitions

    def test_redshift_quotes_in_its_own_way(self) -> None:
        found = ddl(described(ReadBy.FOLDERS, "day=2013-01-01"), "redshift", "lake.flights")
        assert '"delay" double precision' in found[0]
        assert "\"day\"='2013-01-01'" in found[1]

    def test_values_with_quotes_are_escaped(self) -> None:
        table = described(ReadBy.FOLDERS, "day=it%27s%5C")
        assert "'it\\'s\\\\'" in ddl(table, "hive", "db.t")[1]
        assert "'it''s\\'" in ddl(table, "redshift", "db.t")[1]

    @pytest.mark.parametrize("engine", ["athena", "hive", "spark", "redshift", "duckdb", "trino"])
    def test_place_with_a_quote_is_escaped(self, engine: str) -> None:
        name = "lake.db.flights" if engine == "trino" else "db.flights"
        found = ddl(described(ReadBy.FOLDERS, bucket="it's"), engine, name)[0]
        escaped = "it\\'s" if engine in ("athena", "hive", "spark") else "it''s"
        assert f"'s3://{escaped}/flights/" in found

    def test_word_of_a_name_that_begins_with_a_digit_is_quoted(self) -> None:
        for read_by in ReadBy:
            assert " db.`2013`" in ddl(described(read_by), "athena", "db.2013")[0]
        assert ' db."2013" (' in ddl(described(ReadBy.FOLDERS), "redshift", "db.2013")[0]

    def test_partitions_go_a_hundred_at_a_time(self) -> None:
        days = [f"day={dt.date(2013, 1, 1) + dt.timedelta(n)}" for n in range(250)]
        found = ddl(described(ReadBy.FOLDERS, *days), "hive", "db.flights")
        assert [one.count("PARTITION (") for one in found[1:]] == [100, 100, 50]

    def test_trino(self) -> None:
        table, sync = ddl(described(ReadBy.FOLDERS, "day=1"), Engine.TRINO, "lake.db.flights")
        assert "partitioned_by = ARRAY['day']" in table
        assert '"at" timestamp(6)' in table
        assert sync == "CALL lake.system.sync_partition_metadata('db', 'flights', 'FULL')"
        with pytest.raises(InvalidInputError, match=r"catalog\.schema\.table"):
            ddl(described(ReadBy.FOLDERS), Engine.TRINO, "flights")

    def test_spark_makes_a_table_of_its_own(self) -> None:
        table = ddl(described(ReadBy.FOLDERS), "spark", "db.flights")[0]
        assert "USING parquet\nPARTITIONED BY (`day`)" in table

    @pytest.mark.parametrize("name", ["a b", "a;b", "", "a.", "a`b"])
    def test_names_that_cannot_be(self, name: str) -> None:
        with pytest.raises(InvalidInputError, match="name"):
            ddl(described(ReadBy.FOLDERS), "hive", name)

    def test_duckdb_reads_what_it_is_told(self, tmp_path: Any) -> None:
        for day, delay in (("2013-01-01", 5.0), ("2013-01-02", 70.0)):
            folder = tmp_path / f"day={day}"
            folder.mkdir()
            duckdb.sql(f"COPY (SELECT {delay} AS delay) TO '{folder}/a.parquet' (FORMAT parquet)")
        (view,) = ddl(described(ReadBy.FOLDERS), "duckdb", "flights")
        connection = duckdb.connect()
        connection.execute(view.replace("s3://bucket/flights", str(tmp_path)))
        found = connection.sql("SELECT day, delay FROM flights ORDER BY day").fetchall()
        assert found == [(dt.date(2013, 1, 1), 5.0), (dt.date(2013, 1, 2), 70.0)]

    @pytest.mark.parametrize(
        ("kind", "value", "read"),
        [
            (pa.int64(), "9007199254740993", 2**53 + 1),
            (pa.uint32(), "7", 7),
            (pa.bool_(), "true", True),
            (pa.decimal128(9, 2), "1.50", Decimal("1.50")),
            (pa.timestamp("us"), "2013-01-01 05%3A30%3A00", dt.datetime(2013, 1, 1, 5, 30)),
            (
                pa.timestamp("us", "UTC"),
                "2013-01-01 05%3A30%3A00",
                dt.datetime(2013, 1, 1, 5, 30, tzinfo=dt.UTC),
            ),
        ],
        ids=str,
    )
    @pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
    def test_duckdb_reads_partition_columns_of_each_type(
        self, tmp_path: Any, kind: pa.DataType, value: str, read: object, zone: str
    ) -> None:
        for text in (value, NULL):
            folder = tmp_path / f"part={text}"
            folder.mkdir()
            duckdb.sql(f"COPY (SELECT 5 AS delay) TO '{folder}/a.parquet' (FORMAT parquet)")
        by = (pa.field("part", kind),)
        table = replace(described(ReadBy.FOLDERS), partition_by=by)
        (view,) = ddl(table, "duckdb", "flights")
        connection = duckdb.connect()
        connection.execute(f"SET timezone = '{zone}'")
        connection.execute(view.replace("s3://bucket/flights", str(tmp_path)))
        found = connection.sql("SELECT part FROM flights ORDER BY part NULLS LAST").fetchall()
        assert found == [(read,), (None,)]


def test_spark_is_told_that_points_in_time_are_named_in_utc() -> None:
    """In a session of another zone it reads them as they are meant, as was seen on Spark 4.3."""
    for kind, is_told in ((pa.timestamp("us", "UTC"), True), (pa.timestamp("us"), False)):
        by = (pa.field("part", kind),)
        (made,) = ddl(replace(described(ReadBy.FOLDERS), partition_by=by), "spark", "flights")
        assert ("USING parquet\nOPTIONS (timeZone 'UTC')\nPARTITIONED BY" in made) is is_told


def test_no_name_of_a_type_has_a_statement_in_it() -> None:
    assert not [n for names in NAMES.values() for n in names.values() if re.search(r"[;'`]", n)]
