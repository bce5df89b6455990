from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from zero_rename.committer import InvalidInputError
from zero_rename.orchestration.runs.partitions import (
    check_partition,
    check_partition_format,
    dated_partition,
    partitions_between,
)

DAY = "year=%Y/month=%-m/day=%-d"
HOURS = "day=%Y-%m-%d/hour=%-H"
AUTUMN = [datetime(2013, 10, 27, hour, tzinfo=UTC) for hour in range(4)]


@pytest.mark.parametrize("partition_format", [HOURS, "hour=%I%p", "minute=%M", "at=%X", "at=%H:%f"])
def test_hours_that_a_clock_change_repeats_are_refused(partition_format: str) -> None:
    """00:00 and 01:00 UTC are both 02:00 in Berlin: the second hour would replace the first."""
    with pytest.raises(InvalidInputError, match=r"Europe/Berlin.*twice") as caught:
        check_partition_format(partition_format, "Europe/Berlin")
    assert "%z" in str(caught.value)
    for begun in AUTUMN:
        with pytest.raises(InvalidInputError, match="twice"):
            dated_partition(begun, partition_format, "Europe/Berlin")


@pytest.mark.parametrize(
    ("partition_format", "timezone"),
    [
        (DAY, "Europe/Berlin"),
        (HOURS, "UTC"),
        (HOURS, "Etc/GMT-2"),
        (HOURS, "Asia/Kolkata"),
        ("day=%Y-%m-%d/hour=%H%z", "Europe/Berlin"),
        ("hour=%H %Z", "Europe/Berlin"),
        ("at=%s", "Europe/Berlin"),
        ("day=%d%%H", "Europe/Berlin"),
    ],
)
def test_no_two_hours_share_a_partition(partition_format: str, timezone: str) -> None:
    check_partition_format(partition_format, timezone)
    if "%H" in partition_format and "%%" not in partition_format:
        found = [dated_partition(at, partition_format, timezone) for at in AUTUMN]
        assert len(set(found)) == len(AUTUMN)


@pytest.mark.parametrize("zone", ["", "Mars", "../etc", "Europe", None])
def test_time_zone_that_there_is_not_is_refused(zone: Any) -> None:
    """ "Europe" is the folder of zones such as Europe/Berlin."""
    with pytest.raises(InvalidInputError, match="There is no time zone"):
        check_partition_format(DAY, zone)


@pytest.mark.parametrize("path", ["", "2013", "a=", "a=1//b=2", "=1", "a=None", "None", "a=1/b"])
def test_paths_that_are_none(path: str) -> None:
    with pytest.raises(InvalidInputError, match="partition path"):
        check_partition(path)


def test_paths_with_odd_values() -> None:
    assert check_partition("a=b=c/d=M%2FS ü") == "a=b=c/d=M%2FS ü"


class TestBetweenDates:
    DAYS = "year=%Y/month=%-m/day=%-d"

    def test_days(self) -> None:
        found = partitions_between("2013-02-27", "2013-03-01", self.DAYS, "UTC")
        assert [name.rpartition("/")[2] for name in found] == ["day=27", "day=28", "day=1"]
        assert found[0] == "year=2013/month=2/day=27"

    def test_the_last_one_is_included(self) -> None:
        assert len(partitions_between("2013-02-01", "2013-02-01", "h=%Y-%m-%dT%H", "UTC")) == 24
        hours = partitions_between("2013-02-01T22:00", "2013-02-02T01:00", "h=%dT%H", "UTC")
        assert hours == ("h=01T22", "h=01T23", "h=02T00", "h=02T01")

    @pytest.mark.parametrize(
        ("first", "last", "timezone", "hours"),
        [
            ("2013-02-01T00:30", "2013-02-01T02:00", "UTC", "00 01 02"),
            ("2013-02-01T00:59", "2013-02-01T01:00", "UTC", "00 01"),
            ("2013-02-01T00:30", "2013-02-01T02:10", "Asia/Kolkata", "00 01 02"),
            # The clock goes forward from 02:00 to 02:30: the hour 02 has 30 minutes.
            ("2013-10-06T01:45", "2013-10-06T03:20", "Australia/Lord_Howe", "01 02 03"),
        ],
    )
    def test_hours_of_range_that_begins_within_one_include_last(
        self, first: str, last: str, timezone: str, hours: str
    ) -> None:
        found = partitions_between(first, last, "hour=%H%z", timezone)
        assert [name[5:7] for name in found] == hours.split()

    def test_minutes_of_hours_are_those_of_first(self) -> None:
        found = partitions_between("2013-02-01T00:30", "2013-02-01T02:00", "at=%H%M", "UTC")
        assert found == ("at=0030", "at=0130")

    def test_days_of_range_have_offset_like_those_of_runs(self) -> None:
        days, zone = "day=%Y-%m-%d%z", "Asia/Kolkata"
        found = partitions_between("2013-02-01", "2013-02-01", days, zone)
        assert found == (dated_partition(datetime(2013, 2, 1, tzinfo=UTC), days, zone),)

    def test_months(self) -> None:
        found = partitions_between("2013-01-31", "2013-03-01", "m=%Y-%m", "UTC")
        assert found == ("m=2013-01", "m=2013-02", "m=2013-03")

    def test_in_a_zone(self) -> None:
        """A day of 23 hours, and a time that is of another day there."""
        days = partitions_between("2013-03-30", "2013-04-01", "d=%d", "Europe/Berlin")
        assert days == ("d=30", "d=31", "d=01")
        late = datetime(2013, 2, 1, 23, 30, tzinfo=UTC)
        assert partitions_between(late, late, "d=%d", "Europe/Berlin") == ("d=02",)

    @pytest.mark.parametrize(
        ("first", "last", "message"),
        [
            ("2013-02-02", "2013-02-01", "is after"),
            ("yesterday", "2013-02-01", "Invalid from_date='yesterday'"),
            ("2013-02-01", "None", "Invalid to_date='None'"),
            ("0001-01-01T00:00+14:00", "2013-02-01", "outside the years 1 to 9999 in Asia/Tokyo"),
        ],
    )
    def test_no_range(self, first: str, last: str, message: str) -> None:
        with pytest.raises(InvalidInputError, match=message):
            partitions_between(first, last, self.DAYS, "Asia/Tokyo")

    def test_hours_before_the_year_1_are_refused(self) -> None:
        with pytest.raises(InvalidInputError, match="outside the years 1 to 9999"):
            partitions_between("0001-01-01", "0001-01-02", "hour=%H", "Asia/Tokyo")

    def test_range_to_the_last_day_that_there_is(self) -> None:
        found = partitions_between("9999-12-30", "9999-12-31", self.DAYS, "UTC")
        assert found == ("year=9999/month=12/day=30", "year=9999/month=12/day=31")
