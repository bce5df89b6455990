"""From partitions' paths to dates and back, and through Airflow's serialisation."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from airflow.sdk import Asset, MonthWindow, PartitionedAssetTimetable, RollupMapper
from airflow.serialization.decoders import decode_partition_mapper
from airflow.serialization.encoders import coerce_to_core_timetable, encode_partition_mapper

from support.airflow import Tables
from zero_rename.committer import InvalidInputError
from zero_rename.provider.assets.outlets import partition_key
from zero_rename.provider.assets.partition_mapper import PartitionPathMapper

pytestmark = pytest.mark.memory_s3
DAYS = "year=%Y/month=%-m/day=%-d"


def test_a_day() -> None:
    mapper = PartitionPathMapper(DAYS)
    assert mapper.to_downstream("year=2013/month=2/day=1") == "2013-02-01"
    assert mapper.to_partition_date("2013-02-01") == datetime(2013, 2, 1, tzinfo=UTC)
    with pytest.raises(ValueError, match="does not match"):
        mapper.to_downstream("region=eu/day=1")


def test_a_local_day() -> None:
    mapper = PartitionPathMapper("day=%Y-%m-%d", timezone="Europe/Berlin")
    begins = mapper.to_partition_date(mapper.to_downstream("day=2013-02-01"))
    assert begins.astimezone(UTC) == datetime(2013, 1, 31, 23, tzinfo=UTC)


@pytest.mark.parametrize("written", ["hour=%Y-%m-%d %H:%M", "hour=%Y-%m-%d %H%%3A%M"])
def test_path_with_characters_that_a_table_escapes(tables: Tables, written: str) -> None:
    mapper = PartitionPathMapper(written, output_format="%Y-%m-%dT%H:%M")
    rows = pa.table({"hour": ["2013-02-01 05:00"], "n": [1]})
    with tables.table().job(rows.schema, partition_by=["hour"]) as job:
        job.write(rows)
    assert job.committed is not None
    key = partition_key(job.committed.partitions[0].partition)
    assert key == "hour=2013-02-01 05%3A00"
    downstream = mapper.to_downstream(key)
    assert downstream == "2013-02-01T05:00"
    assert mapper.encode_upstream(mapper.decode_downstream(downstream)) == key


def test_a_month_of_days_through_airflow() -> None:
    """As it reaches the scheduler; Airflow's own mappers ask for ``month=02``."""
    days: Any = PartitionPathMapper(DAYS, output_format="%Y-%m")
    month: Any = RollupMapper(upstream_mapper=days, window=MonthWindow())
    timetable = PartitionedAssetTimetable(
        assets=Asset("flights", uri="s3://lake/wh/flights"), default_partition_mapper=month
    )
    mapper: Any = coerce_to_core_timetable(timetable).default_partition_mapper  # pyrefly: ignore[missing-attribute]
    assert mapper.to_downstream("year=2013/month=2/day=28") == "2013-02"
    expected = {f"year=2013/month=2/day={day}" for day in range(1, 29)}
    assert mapper.to_upstream("2013-02") == expected
    assert mapper.to_partition_date("2013-02") == datetime(2013, 2, 1, tzinfo=UTC)


def test_what_it_is_made_of_survives() -> None:
    mapper = PartitionPathMapper(
        DAYS, output_format="%Y", timezone="Europe/Berlin", max_downstream_keys=3
    )
    again = decode_partition_mapper(encode_partition_mapper(mapper))
    assert isinstance(again, PartitionPathMapper)
    assert again.serialize() == mapper.serialize()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"partition_format": "%Y-%m-%d"}, "no partition path"),
        ({"partition_format": "day=%Y-%q"}, "no code of strftime"),
        ({"partition_format": DAYS, "timezone": "Mars"}, "no time zone"),
        ({"partition_format": "month=%m/day=%d"}, "the year is not in both"),
        ({"partition_format": DAYS, "output_format": "%Y-%e"}, "bad directive"),
    ],
)
def test_formats_that_cannot_be_right(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        PartitionPathMapper(**arguments)
