"""Columns that come and widen by Spark's writes, read by every reader."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from support.spark_tables import download, read, rows, write
from zero_rename import Table

pytestmark = pytest.mark.spark
PAGE = Path(__file__).resolve().parents[2] / "docs/schema-evolution.md"


def test_columns_come_and_widen(spark, s3_bucket, tmp_path):
    url = f"s3://{s3_bucket.name}/evolves"
    first = spark.sql(
        "select cast(1 as byte) n, cast(0.5 as float) x, cast(1.25 as decimal(5,2)) price, "
        "'ab' c, parse_json('[1]') v, named_struct('a', 1S) s, 'x' p"
    )
    second = spark.sql(
        "select 'new' note, cast(2 as bigint) n, 0.1D x, cast(12345678.25 as decimal(18,4)) price, "
        "named_struct('a', 5000000000L) s, 'y' p, parse_json('{}') w"
    )
    write(first, url, partitionBy="p")
    stale = read(spark, url)  # loaded, and not planned
    write(second.selectExpr("n", "x", "price", "s", "p", "note", "w"), url, mergeSchema="true")
    found = read(spark, url)
    assert {f.name: f.dataType.simpleString() for f in found.schema.fields} == {
        "n": "bigint",
        "x": "double",
        "price": "decimal(18,4)",
        "c": "string",
        "v": "variant",
        "s": "struct<a:bigint>",
        "p": "string",
        "note": "string",
        "w": "variant",
    }
    shown = found.selectExpr(
        "n", "x", "price", "c", "to_json(v) v", "s", "p", "note", "to_json(w) w"
    )
    old, new = rows(shown)
    assert old == {
        "n": 1, "x": 0.5, "price": Decimal("1.25"), "c": "ab", "v": "[1]", "s": {"a": 1},
        "p": "x", "note": None, "w": None,
    }  # fmt: skip
    assert new == {
        "n": 2, "x": 0.1, "price": Decimal("12345678.25"), "c": None, "v": None,
        "s": {"a": 5000000000}, "p": "y", "note": "new", "w": "{}",
    }  # fmt: skip
    with pytest.raises(Exception, match="The table's schema changed"):
        stale.collect()

    # Spark's own reader, on the files, with the table's schema.
    folder = download(s3_bucket, "evolves", tmp_path)
    own = spark.read.schema(found.schema).option("basePath", str(folder)).parquet(str(folder))
    assert rows(own.select("n", "x", "price", "s", "note")) == rows(
        found.select("n", "x", "price", "s", "note")
    )
    files = spark.read.option("basePath", str(folder)).parquet(str(folder / "p=y"))
    assert set(files.columns) == set(found.columns)


def test_a_frame_that_was_loaded_before_a_column_came_reads_its_own(spark, s3_bucket):
    url = f"s3://{s3_bucket.name}/stale"
    write(spark.sql("select 1 n"), url)
    stale = read(spark, url)
    extra = pa.table({"n": pa.array([2], pa.int32()), "more": [[{"u": 1}]]})
    with Table(url).job(extra.schema, schema_mode="merge") as job:
        job.write(extra)
    assert [row["n"] for row in rows(stale)] == [1, 2]
    assert stale.columns == ["n"]
    found = read(spark, url)
    assert found.schema["more"].dataType.simpleString() == "array<struct<u:bigint>>"
    write(spark.sql("select 3 n"), url)  # a job of the old columns
    assert [row["n"] for row in rows(read(spark, url))] == [1, 2, 3]


def test_the_documented_calls(spark, s3_bucket):
    url = f"s3://{s3_bucket.name}/flights"
    write(spark.sql("select 1 n"), url)
    examples = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)
    calls = [example.replace("s3://bucket/flights", url) for example in examples]
    names = {"frame": spark.sql("select 2 n, 'N14228' tail")}
    exec(calls[1], names)
    assert rows(read(spark, url)) == [{"n": 1, "tail": None}, {"n": 2, "tail": "N14228"}]
    stale = read(spark, url)
    names["frame"] = spark.sql("select 'three' n, true more")
    exec(calls[3], names)
    assert rows(read(spark, url)) == [{"n": "three", "more": True}]
    with pytest.raises(Exception, match="The table's schema changed"):
        stale.collect()
