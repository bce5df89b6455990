"""Files that Spark wrote in its former calendar: this package reads what Spark reads of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from zero_rename.committer import Table, TableMismatchError
from zero_rename.committer.format.parquet import calendars
from zero_rename.committer.upkeep.compaction import CompactAction

pytestmark = pytest.mark.spark

INSTANT = pa.timestamp("us", "UTC")
_WRITE = "spark.sql.parquet."
#: Across every day on which the calendars drift apart, leap days of one calendar alone, and today.
_DAYS = """
    select id n, date_add(date'0001-01-01', cast(id * 53 as int)) d from range(14000)
"""
_ROWS = """
    select n, d, t, timestampadd(MICROSECOND, n, t) t96,
      named_struct('d', d, 'ts', array(t, null, t)) s,
      map(n, named_struct('d', d)) m, cast(t as timestamp_ntz) ntz, n % 3 = 0 as third
    from (select n, if(n % 7 = 0, null, d) d,
            timestampadd(SECOND, cast(n * 61 % 86400 as int), cast(d as timestamp)) t from days)
"""


@contextmanager
def settings(spark: Any, **values: str) -> Iterator[None]:
    named = {name.replace("__", "."): value for name, value in values.items()}
    before = {name: spark.conf.get(name) for name in named}
    for name, value in named.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def legacy(spark: Any, frame: Any, folder: Path, kind: str, zone: str = "UTC") -> None:
    with settings(
        spark,
        spark__sql__session__timeZone=zone,
        spark__sql__parquet__outputTimestampType=kind,
        spark__sql__parquet__datetimeRebaseModeInWrite="LEGACY",
        spark__sql__parquet__int96RebaseModeInWrite="LEGACY",
    ):
        frame.coalesce(1).write.parquet(str(folder))


def upload(bucket: Any, folder: Path) -> Table:
    for path in folder.glob("*.parquet"):
        bucket.put(f"t/{path.name}", path.read_bytes())
    return Table(f"s3://{bucket.name}/t")


def comparable(table: pa.Table) -> list[Any]:
    """Rows by n, dates and instants as numbers: Python has no year 0."""
    numbers = pa.schema([pa.field(f.name, _number(f.type)) for f in table.schema])
    return table.cast(numbers).sort_by("n").to_pylist()


def _number(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_date(kind):
        return pa.int32()
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_number(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_number(kind.key_type), _number(kind.item_type))
    return pa.list_(_number(kind.value_type)) if pa.types.is_list(kind) else kind


@pytest.mark.parametrize("kind", ["TIMESTAMP_MICROS", "TIMESTAMP_MILLIS", "INT96"])
def test_dates_and_instants_of_the_former_calendar_are_those_that_spark_reads(
    spark: Any, s3_bucket: Any, tmp_path: Path, kind: str
) -> None:
    spark.sql(_DAYS).createOrReplaceTempView("days")
    frame = spark.sql(_ROWS)
    legacy(spark, frame, tmp_path / "old", kind)
    wanted = comparable(spark.read.parquet(str(tmp_path / "old")).toArrow())
    (path,) = (tmp_path / "old").glob("*.parquet")
    raw = pq.read_table(path, columns=["n", "d"])
    assert comparable(raw) != [{"n": row["n"], "d": row["d"]} for row in wanted]
    table = upload(s3_bucket, tmp_path / "old")
    assert comparable(table.to_arrow()) == wanted
    table.adopt(apply=True)
    table.delete(pc.field("n") == 0)
    assert comparable(table.to_arrow()) == wanted[1:]
    (key,) = (file.key for file in table.files())
    body = s3_bucket.client.get_object(Bucket=s3_bucket.name, Key=key)["Body"].read()
    (tmp_path / "new.parquet").write_bytes(body)
    metadata = pq.read_metadata(tmp_path / "new.parquet").metadata or {}
    assert not [name for name in metadata if b"legacy" in name]
    assert comparable(spark.read.parquet(str(tmp_path / "new.parquet")).toArrow()) == wanted[1:]


def test_instants_of_another_zone_are_refused_before_the_zones_agree_and_else_read(
    spark: Any, s3_bucket: Any, tmp_path: Path
) -> None:
    text = "select {n} n, timestamp'{day} 05:00:00 UTC' t, date'0001-01-01' d"
    zone = "America/Los_Angeles"
    legacy(spark, spark.sql(text.format(n=1, day="1900-01-02")), tmp_path / "a", "INT96", zone)
    table = upload(s3_bucket, tmp_path / "a")
    wanted = comparable(spark.read.parquet(str(tmp_path / "a")).toArrow())
    assert comparable(table.to_arrow()) == wanted
    legacy(spark, spark.sql(text.format(n=2, day="1582-01-02")), tmp_path / "b", "INT96", zone)
    upload(s3_bucket, tmp_path / "b")
    with pytest.raises(TableMismatchError, match=r"column t .*America/Los_Angeles") as caught:
        table.to_arrow()
    assert "spark" in str(caught.value.remedy)
    assert table.to_arrow(["d"]).num_rows == 2
    table.adopt(apply=True)
    with pytest.raises(TableMismatchError, match="America/Los_Angeles"):
        table.delete(pc.field("n") == 2)
    (left,) = table.compact(apply=True)
    assert left.action is CompactAction.LEFT
    assert "America/Los_Angeles" in left.reason
    assert len(table.files()) == 2


def test_the_zones_of_java_agree_from_the_year_on_that_is_taken_for_it(spark: Any) -> None:
    rebase = spark._jvm.org.apache.spark.sql.catalyst.util.RebaseDateTime
    assert rebase.lastSwitchJulianTs() <= calendars._ZONES_AGREE * 10**6
