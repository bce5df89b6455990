"""Two runs of a DAG's schedule that a partition_format makes one partition of."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pendulum
import pytest
from airflow.sdk import (
    DAG,
    Asset,
    AssetOrTimeSchedule,
    CronDataIntervalTimetable,
    CronPartitionTimetable,
    CronTriggerTimetable,
    DeltaDataIntervalTimetable,
    MultipleCronTriggerTimetable,
)
from airflow.serialization.encoders import coerce_to_core_timetable

from zero_rename.provider.dag_schedule import _ticks, shared_partition

DAY = "day=%Y-%m-%d"
WEEK = "year=%Y/week=%V"
BERLIN, NUUK = "Europe/Berlin", "America/Nuuk"
FLIGHTS = Asset("flights", uri="s3://lake/flights")


def dag(schedule: Any, zone: str = "UTC", **given: Any) -> DAG:
    return DAG(
        "flights",
        schedule=schedule,
        start_date=datetime(2013, 1, 1, tzinfo=ZoneInfo(zone)),
        **given,
    )


@pytest.mark.parametrize(
    ("schedule", "zone", "made", "timezone", "message"),
    [
        ("@hourly", "UTC", DAY, "UTC", r"2013-01-01 00:00\+0000 and 2013-01-01 01:00"),
        ("0 6,18 * * *", "UTC", DAY, "UTC", "2013-01-01 06:00.* and 2013-01-01 18:00"),
        ("@daily", "UTC", "month=%m/day=%d", "UTC", "2013-01-01 .* and 2014-01-01 .*month=01"),
        ("0 0 * * 1", "UTC", WEEK, "UTC", "2018-01-01 .* and 2018-12-31 .*: year=2018/week=01"),
        ("@weekly", "UTC", WEEK, "UTC", "2017-01-01 .* and 2017-12-31"),
        ("0 0 * * * */30", "UTC", DAY, "UTC", "2013-01-01 00:00.* and 2013-01-01 00:00"),
        # One o'clock in Berlin is of the day before in UTC, in summer only.
        ("30 1 * * *", BERLIN, DAY, "UTC", "2013-03-31 00:30.* and 2013-03-31 23:30"),
        # Since 2024 Nuuk's clock goes from Saturday's 23:00 to Sunday.
        ("30 23 * * *", NUUK, DAY, NUUK, r"(\d+-03-\d+) 00:30.* and \1 23:30"),
        (timedelta(hours=12), "UTC", DAY, "UTC", "2013-01-01 00:00.* and 2013-01-01 12:00"),
        (CronDataIntervalTimetable("@hourly", "UTC"), "UTC", DAY, "UTC", "01 00:00.* and .*01:00"),
        (
            CronPartitionTimetable("0 * * * *", timezone="UTC", run_offset=-1),
            "UTC",
            DAY,
            "UTC",
            "2013-01-01 00:00.* and 2013-01-01 01:00",
        ),
        (
            MultipleCronTriggerTimetable("0 3 * * *", "0 15 * * 6", timezone="UTC"),
            "UTC",
            DAY,
            "UTC",
            "2013-01-05 03:00.* and 2013-01-05 15:00",
        ),
        (
            AssetOrTimeSchedule(assets=[FLIGHTS], timetable=CronTriggerTimetable("@hourly", "UTC")),
            "UTC",
            DAY,
            "UTC",
            "2013-01-01 00:00",
        ),
    ],
)
def test_a_format_that_writes_two_runs_alike_names_both(
    schedule: Any, zone: str, made: str, timezone: str, message: str
) -> None:
    said = shared_partition(dag(schedule, zone), made, timezone)
    assert said is not None
    assert re.search(message, said)


@pytest.mark.parametrize(
    ("schedule", "zone", "made", "timezone"),
    [
        ("@daily", "UTC", DAY, "UTC"),
        ("@daily", BERLIN, DAY, "UTC"),
        ("@daily", BERLIN, DAY, BERLIN),
        ("@hourly", BERLIN, "at=%Y-%m-%dT%H%z", BERLIN),
        ("0 0 * * 1", "UTC", "year=%G/week=%V", "UTC"),
        ("@monthly", "UTC", "year=%Y/month=%-m", "UTC"),
        (DeltaDataIntervalTimetable(timedelta(days=1)), "UTC", DAY, "UTC"),
        (
            CronTriggerTimetable("0 3 * * *", timezone="UTC", interval=timedelta(days=1)),
            "UTC",
            DAY,
            "UTC",
        ),
        ("0 0 1 * *", "UTC", DAY, "UTC"),
        (timedelta(hours=1), BERLIN, "at=%Y-%m-%dT%H%z", BERLIN),
        (timedelta(0), "UTC", DAY, "UTC"),
        ("@once", "UTC", "month=%m", "UTC"),
        (None, "UTC", "month=%m", "UTC"),
        ([FLIGHTS], "UTC", "month=%m", "UTC"),
    ],
)
def test_a_format_that_keeps_all_runs_apart_is_taken(
    schedule: Any, zone: str, made: str, timezone: str
) -> None:
    assert shared_partition(dag(schedule, zone), made, timezone) is None


def test_format_without_a_code_of_strftime_says_so() -> None:
    said = shared_partition(dag("@daily"), "day=yyyy-MM-dd", "UTC")
    assert said is not None
    assert "has no code of strftime, such as %Y, %m or %d" in said


def test_a_schedule_that_ends_before_two_runs_are_alike_is_taken() -> None:
    ends = datetime(2013, 12, 31, tzinfo=UTC)
    found = shared_partition(dag("@daily", end_date=ends), "month=%m/day=%d", "UTC")
    assert found is None


@pytest.mark.parametrize("cron", ["0 0 * * *", "*/30 * * * *", "30 2 * * *", "15 */2 * * *"])
def test_the_starts_that_are_compared_are_the_scheduler_s(cron: str) -> None:
    """Around both changes of the clock, by Airflow's own timetable."""
    core: Any = coerce_to_core_timetable(CronDataIntervalTimetable(cron, BERLIN))
    for change in (datetime(2013, 3, 30, 20, tzinfo=UTC), datetime(2013, 10, 26, 20, tzinfo=UTC)):
        expected, at = set(), pendulum.instance(change)
        while (at := core._get_next(at)) < change + timedelta(days=2):
            expected.add(at.timestamp())
        ticks = _ticks(cron, ZoneInfo(BERLIN), timedelta(), change + timedelta(microseconds=1))
        found = set()
        for tick in ticks:
            if tick >= change + timedelta(days=2):
                break
            found.add(tick.timestamp())
        assert found == expected
