from __future__ import annotations

from datetime import UTC, datetime

import pytest

from zero_rename.committer import InvalidInputError
from zero_rename.orchestration.runs.partitions import (
    check_partition,
    check_partition_format,
    dated_partition,
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


@pytest.mark.parametrize("path", ["", "2013", "a=", "a=1//b=2", "=1", "a=None", "None", "a=1/b"])
def test_paths_that_are_none(path: str) -> None:
    with pytest.raises(InvalidInputError, match="partition path"):
        check_partition(path)


def test_paths_with_odd_values() -> None:
    assert check_partition("a=b=c/d=M%2FS ü") == "a=b=c/d=M%2FS ü"
