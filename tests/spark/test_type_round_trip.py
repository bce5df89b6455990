"""Every type of Spark's that Parquet holds: written once, read back by everyone."""

from __future__ import annotations

import datetime as dt

import duckdb
import pyarrow.parquet as pq
import pytest

from support.spark_tables import (
    data_keys,
    download,
    of_all_types,
    partitioned_by_all_types,
    read,
    rows,
    write,
)
from zero_rename.committer import Table

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def frame(spark):
    return of_all_types(spark)


def kinds(frame):
    return {field.name: field.dataType.simpleString() for field in frame.schema.fields}


def test_all_types(spark, s3_bucket, tmp_path, frame):
    url = f"s3://{s3_bucket.name}/types"
    write(frame, url)
    expected = rows(frame)

    # our reader
    ours = read(spark, url)
    assert kinds(ours) == kinds(frame)
    assert repr(rows(ours)) == repr(expected)

    # Spark itself, on the files
    folder = download(s3_bucket, "types", tmp_path)
    plain = spark.read.parquet(str(folder))
    assert kinds(plain) == kinds(frame)
    assert repr(rows(plain)) == repr(expected)
    assert plain.where("a_price = 1.5 and an_int = 3 and a_struct.a = 1").count() == 1

    # pyarrow and plain Python, on the files and by the table
    for found in (pq.read_table(folder), Table(url).to_arrow()):
        row = next(row for row in found.to_pylist() if row["n"] == 1)
        assert row["a_decimal"] == expected[0]["a_decimal"]
        assert row["a_timestamp"] == dt.datetime(2013, 1, 1, 10, 0, 0, 123456, dt.UTC)
        assert row["a_local_timestamp"] == dt.datetime(1500, 1, 1, 5, 0, 0, 123456)
        assert row["a_time"] == dt.time(12, 34, 56, 123456)
        assert row["a_day_interval"] == dt.timedelta(days=1, hours=2, minutes=3, seconds=4.5)
        assert row["a_struct"] == {"a": 1, "b": [{"c": "x", "d": 1.5}]}
        assert row["a_map"] == [("a", 1), ("b", None)]
        nulls = next(row for row in found.to_pylist() if row["n"] == 2)
        assert {name for name, value in nulls.items() if value is not None} == {"n"}

    # DuckDB
    with duckdb.connect() as duck:
        duck.execute("set timezone = 'UTC'")
        found = duck.execute(
            "select a_decimal, a_price, a_time, a_local_timestamp, a_struct, an_old_date, a_string,"
            f" a_binary from read_parquet('{folder}/*.parquet') where n = 1"
        ).fetchone()
        one = expected[0]
        assert found == (
            one["a_decimal"],
            one["a_price"],
            dt.time(12, 34, 56, 123456),
            one["a_local_timestamp"],
            one["a_struct"],
            one["an_old_date"],
            one["a_string"],
            bytes(one["a_binary"]),
        )
        zone = duck.execute(f"select a_timestamp::varchar from '{folder}/*.parquet' where n = 1")
        assert zone.fetchone() == ("2013-01-01 10:00:00.123456+00",)


def test_partition_columns_of_every_type(spark, s3_bucket, tmp_path):
    frame = partitioned_by_all_types(spark)
    by = frame.columns[1:]
    url = f"s3://{s3_bucket.name}/parts"
    write(frame, url, partitionBy=",".join(by))
    back = read(spark, url)
    assert kinds(back) == kinds(frame)
    assert repr(rows(back.select("n", *by))) == repr(rows(frame))
    assert len(data_keys(s3_bucket, "parts/")) == 2

    # The files themselves do not hold the partition columns, nor speak of them.
    folder = download(s3_bucket, "parts", tmp_path)
    file = next(folder.rglob("*.parquet"))
    assert spark.read.parquet(str(file)).columns == ["n"]


def test_a_session_zone_and_large_types_change_nothing(spark, s3_bucket):
    url = f"s3://{s3_bucket.name}/zones"
    write(spark.sql("select timestamp'2013-01-01 05:00:00' t, 'x' s"), url)
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
    try:
        write(spark.sql("select timestamp'2013-01-01 19:00:00' t, 'x' s"), url)
        assert read(spark, url).distinct().count() == 1
        found = rows(read(spark, url).selectExpr("cast(t as string) t", "s"))
        assert found == [{"t": "2013-01-01 19:00:00", "s": "x"}] * 2
    finally:
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")


def test_a_table_written_by_python_is_read_by_spark(spark, s3_bucket):
    import pyarrow as pa

    url = f"s3://{s3_bucket.name}/python"
    columns = {
        "u8": pa.array([200, None], pa.uint8()),
        "u64": pa.array([2**64 - 1, None], pa.uint64()),
        "fixed": pa.array([b"abcd", None], pa.binary(4)),
        "u16s": pa.array([[65535], None], pa.list_(pa.uint16())),
        "day": pa.array([dt.date(2013, 1, 1)] * 2),
    }
    table = pa.table(columns)
    with Table(url).job(partition_by=("day",), schema=table.schema) as job:
        job.write(table)
    found = read(spark, url)
    assert kinds(found) == {
        "u8": "smallint",
        "u64": "decimal(20,0)",
        "fixed": "binary",
        "u16s": "array<int>",
        "day": "date",
    }
    assert found.where("u8 = 200 and u64 = 18446744073709551615").count() == 1
    assert found.where("fixed = 'abcd' and u16s[0] = 65535 and day = '2013-01-01'").count() == 1
