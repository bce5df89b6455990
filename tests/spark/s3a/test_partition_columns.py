"""Partition columns that are refused before a write."""

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

from zero_rename.committer import SettingsRefusedError
from zero_rename.spark.s3a.written_rows import check_timestamps


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
