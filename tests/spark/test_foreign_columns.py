"""Files of other programs in tables that Spark reads and whose rows it writes again."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.no_columns import no_columns
from zero_rename.committer import Table, TableMismatchError
from zero_rename.spark import delete, load, merge, update

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("planned_once")]

SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.string()), ("day", pa.int32())])
FILES = (
    {"id": [1], "k": ["a"]},
    {"id": [2], "K": ["b"]},
    {"id": [3], "k": ["c"], "note": ["keep me"]},
)
REWRITES: dict[str, Callable[[Any, str], object]] = {
    "delete": lambda spark, url: delete(url, where="id = 1"),
    "update": lambda spark, url: update(url, set={"k": "'z'"}, where="id = 1"),
    "merge": lambda spark, url: merge(
        spark.createDataFrame([(1, "z", 1)], "id long, k string, day int"),
        url,
        on=["id"],
        schema_mode="merge",
    ),
}


@pytest.fixture
def url(s3_bucket: Any, spark: Any) -> str:
    """Three files, of which one spells a column in another case, and one has a column more."""
    for number, columns in enumerate(FILES):
        target = io.BytesIO()
        pq.write_table(pa.table(columns), target)
        key = f"lake/table/day=1/f{number}.parquet"
        s3_bucket.client.put_object(Bucket=s3_bucket.name, Key=key, Body=target.getvalue())
    return f"s3://{s3_bucket.name}/lake/table"


@pytest.mark.parametrize("verb", REWRITES)
def test_rows_written_again_keep_all_columns_of_adopted_files(
    spark: Any, url: str, verb: str
) -> None:
    Table(url).adopt(apply=True)
    REWRITES[verb](spark, url)
    rows = Table(url).to_arrow().rename_columns([n.lower() for n in Table(url).schema.names])
    found = {row["id"]: (row["k"], row["note"]) for row in rows.to_pylist()}
    assert (found[2], found[3]) == (("b", None), ("c", "keep me"))


@pytest.mark.parametrize("verb", REWRITES)
def test_rows_are_not_written_again_where_an_older_version_hides_a_column(
    spark: Any, url: str, verb: str
) -> None:
    older = Table(url)
    older._context = replace(older._context, read_columns=no_columns)
    with older.job(SCHEMA, partition_by=["day"]) as job:
        job.write(pa.table({"id": [9], "k": ["own"], "day": [1]}, schema=SCHEMA))
    before = Table(url).files()
    with pytest.raises(TableMismatchError, match=r"f2\.parquet: note is not in the table"):
        REWRITES[verb](spark, url)
    assert Table(url).files() == before


@pytest.mark.parametrize("by", ["auto", "zero_rename"])
@pytest.mark.parametrize("sensitive", ["false", "true"])
def test_load_reads_columns_in_another_case(spark: Any, url: str, sensitive: str, by: str) -> None:
    Table(url).adopt(apply=True)
    name = next(name for name in Table(url).schema.names if name.lower() == "k")
    spark.conf.set("spark.sql.caseSensitive", sensitive)
    try:
        rows = load(spark, url, columns=["id", name], by=by).collect()
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    assert sorted(map(tuple, rows)) == [(1, "a"), (2, "b"), (3, "c")]


@pytest.mark.parametrize("verb", ["merge", "move"])
def test_rows_brought_to_a_partition_without_a_head_are_refused_beside_a_file_there(
    spark: Any, s3_bucket: Any, verb: str
) -> None:
    def move(spark: Any, url: str) -> object:
        return update(url, set={"day": "1"}, where="id = 9")

    url = f"s3://{s3_bucket.name}/lake/own"
    with Table(url).job(SCHEMA, partition_by=["day"]) as job:
        job.write(pa.table({"id": [9], "k": ["own"], "day": [2]}, schema=SCHEMA))
    target = io.BytesIO()
    pq.write_table(pa.table({"id": [50], "k": ["late"]}), target)
    key = "lake/own/day=1/late.parquet"
    s3_bucket.put(key, target.getvalue())
    with pytest.raises(TableMismatchError, match=r"day=1/late\.parquet"):
        {**REWRITES, "move": move}[verb](spark, url)
    assert s3_bucket.keys("lake/own/day=1") == [key]
