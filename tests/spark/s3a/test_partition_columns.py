"""Partition columns of a write: those that are refused before it, and its rows by the others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import (
    DateType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from zero_rename.committer import Mode, SettingsRefusedError, TableRoot
from zero_rename.committer.format.schema.hive_paths import escape
from zero_rename.s3a.write_plan import PlannedWrite
from zero_rename.spark.s3a.written_rows import check_timestamps, rows_of
from zero_rename.spark.write_target import WriteTarget

ROOT = TableRoot.parse("s3://bucket/t")


def frame(zone: str | None, **columns: Any) -> Any:
    fields = [StructField(name, of) for name, of in columns.items()]
    conf = SimpleNamespace(get=lambda key, default=None: zone)
    return SimpleNamespace(schema=StructType(fields), sparkSession=SimpleNamespace(conf=conf))


@pytest.mark.parametrize("zone", ["Europe/Berlin", "+02:00", "America/Sao_Paulo", "GMT+1", None])
@pytest.mark.parametrize("name", ["at", "AT"])
def test_local_times_are_refused(zone: str | None, name: str) -> None:
    with pytest.raises(SettingsRefusedError, match="column at is a timestamp"):
        check_timestamps(frame(zone, at=TimestampType()), [name], "s3://bucket/t")


@pytest.mark.parametrize("zone", ["UTC", "Etc/UTC", "GMT", "Z", "+00:00", "UTC+0", "Etc/GMT0"])
def test_utc_is_not(zone: str) -> None:
    check_timestamps(frame(zone, at=TimestampType()), ["at"], "s3://bucket/t")


def test_nor_are_times_without_a_zone() -> None:
    columns = {"a": TimestampNTZType(), "b": DateType(), "c": StringType(), "at": TimestampType()}
    check_timestamps(frame("Europe/Berlin", **columns), ["a", "b", "c"], "s3://bucket/t")


@pytest.mark.spark
def test_rows_of_a_partition_are_found_by_a_column_with_a_backtick(spark: Any) -> None:
    frame = spark.createDataFrame([(1, 1), (2, 1)], "v int, `a``b` int")
    name = f"{escape('a`b')}=1"
    target = WriteTarget(ROOT, "directory", Mode.REPLACE, ("a`b",), (name,))
    write = PlannedWrite("s3a://bucket/t", Mode.APPEND, partition=name)
    assert [row.asDict() for row in rows_of(frame, target, write).collect()] == [
        *({"v": 1}, {"v": 2})
    ]
