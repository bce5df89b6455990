"""Partition columns of a write: those that are refused before it, and its rows by the others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import (
    BooleanType,
    DateType,
    DoubleType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from zero_rename.committer import InvalidInputError, Mode, SettingsRefusedError, TableRoot
from zero_rename.committer.format.schema.hive_paths import escape
from zero_rename.s3a.write_plan import PlannedWrite
from zero_rename.spark.s3a.written_rows import check_names, check_timestamps, rows_of
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


@pytest.mark.parametrize(
    ("kind", "value", "written"),
    [
        (IntegerType(), "01", "1"),
        (DateType(), "2013-1-1", "2013-01-01"),
        (BooleanType(), "True", "true"),
    ],
    ids=str,
)
def test_name_below_which_spark_does_not_write_the_partitions_rows_is_refused(
    kind: Any, value: str, written: str
) -> None:
    """A load without rows would leave the rows that it is to replace."""
    rows = frame("UTC", p=kind, S=StringType())
    with pytest.raises(InvalidInputError, match=f"below 'p={written}/s=01'") as refused:
        check_names(rows, [f"p={written}/s=01", f"p={value}/s=01"], ROOT.url)
    assert f"Name it 'p={written}/s=01'" in (refused.value.remedy or "")


def test_names_that_spark_writes_are_taken() -> None:
    kinds = {"s": StringType(), "x": DoubleType(), "n": IntegerType(), "at": TimestampType()}
    names = [
        "s=01/x=1.0E10/n=-7/at=2013-01-01 00%3A00%3A00",
        "s=__HIVE_DEFAULT_PARTITION__/x=1/n=__HIVE_DEFAULT_PARTITION__/at=x",
    ]
    check_names(frame("UTC", **kinds), names, ROOT.url)


@pytest.mark.spark
def test_rows_of_a_partition_are_found_by_a_column_with_a_backtick(spark: Any) -> None:
    frame = spark.createDataFrame([(1, 1), (2, 1)], "v int, `a``b` int")
    name = f"{escape('a`b')}=1"
    target = WriteTarget(ROOT, "directory", Mode.REPLACE, ("a`b",), (name,))
    write = PlannedWrite("s3a://bucket/t", Mode.APPEND, partition=name)
    assert [row.asDict() for row in rows_of(frame, target, write).collect()] == [
        *({"v": 1}, {"v": 2})
    ]
