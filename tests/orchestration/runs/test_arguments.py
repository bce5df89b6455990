"""Arguments as texts, and as what a native rendering makes of these."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from jinja2.nativetypes import native_concat

from zero_rename.committer import InvalidInputError
from zero_rename.orchestration.runs.arguments import (
    is_whole_day,
    read_flag,
    read_index,
    read_list,
    read_mapping,
    read_names,
    read_request_of_texts,
    read_seconds,
    read_settings,
    read_text,
    read_time,
    read_version,
    read_versions,
    read_whole,
    read_word,
    read_words,
)
from zero_rename.orchestration.runs.partitions import partitions_between


def names(name: str, given: object) -> tuple[str, ...]:
    return read_names(name, given, ";", "partitions", "paths such as day=1")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2025-12-31", datetime(2025, 12, 31)),
        ("2025-12-31T05:00:00+02:00", datetime(2025, 12, 31, 3, tzinfo=UTC)),
        ("2025-12-31 05:00:00+00:00", datetime(2025, 12, 31, 5)),
        ("20251231T050000", datetime(2025, 12, 31, 5)),
        ("20251231", datetime(2025, 12, 31)),
        ("17120101", datetime(1712, 1, 1)),
        ("2025123105", datetime(2025, 12, 31, 5)),
        ("2025123100", datetime(2025, 12, 31)),
        ("202512310530", datetime(2025, 12, 31, 5, 30)),
        ("20251231053015", datetime(2025, 12, 31, 5, 30, 15)),
        ("1700000000", datetime(2023, 11, 14, 22, 13, 20)),
        ("1700000000.5", datetime(2023, 11, 14, 22, 13, 20, 500_000)),
        # An hour of the year 1712, and a second of 2024.
        ("1712010100", datetime(2024, 4, 1, 22, 21, 40)),
    ],
)
def test_a_time_is_the_same_in_both_renderings(text: str, expected: datetime) -> None:
    wanted = expected if expected.tzinfo else expected.replace(tzinfo=UTC)
    assert read_time("newer_than", text) == wanted
    assert read_time("newer_than", native_concat([text])) == wanted


def test_a_time_without_a_zone_is_in_the_zone_that_is_given() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    assert read_time("from_date", "20250701", berlin) == datetime(2025, 6, 30, 22, tzinfo=UTC)
    assert read_time("from_date", date(2025, 7, 1), berlin) == datetime(2025, 6, 30, 22, tzinfo=UTC)
    assert read_time("from_date", 1_700_000_000, berlin).timestamp() == 1_700_000_000


@pytest.mark.parametrize(
    "given",
    [
        *(True, "soon", 2025, 202512, 86_400, 0, 20251399, 1.5, float("nan"), 1_700_000_000_000),
        *(None, [], {}, "2025", ""),
    ],
)
def test_what_is_not_a_time_is_refused(given: object) -> None:
    with pytest.raises(InvalidInputError, match=r"Invalid newer_than=.*not a time"):
        read_time("newer_than", given)


@pytest.mark.parametrize("last", ["2025-12-31", "20251231", 20251231, date(2025, 12, 31)])
def test_a_day_as_the_last_date_is_its_end(last: Any) -> None:
    found = partitions_between(last, last, "h=%Y-%m-%dT%H", "UTC")
    assert (len(found), found[-1]) == (24, "h=2025-12-31T23")
    assert is_whole_day(last)


@pytest.mark.parametrize("last", ["2025123105", 2025123105, datetime(2025, 12, 31, 5)])
def test_an_hour_as_the_last_date_is_that_hour(last: Any) -> None:
    found = partitions_between("20251231", last, "h=%Y-%m-%dT%H", "UTC")
    assert found[-1] == "h=2025-12-31T05"


@pytest.mark.parametrize(
    ("read", "given", "expected"),
    [
        (read_text, 4, "4"),
        (read_text, "4.10", "4.10"),
        (read_text, date(2025, 12, 31), "2025-12-31"),
        (read_text, datetime(2025, 12, 31, tzinfo=UTC), "2025-12-31 00:00:00+00:00"),
        (read_word, timedelta(hours=1), "1:00:00"),
        (read_word, 0.5, "0.5"),
        (read_word, True, "True"),
        (read_words, ["--day", 7], ["--day", "7"]),
        (read_words, "['--day', 7]", ["--day", "7"]),
        (read_words, ("a",), ["a"]),
        (read_settings, {"N": 1, "B": False}, {"N": "1", "B": "False"}),
        (read_settings, '{"N": 1}', {"N": "1"}),
        (read_versions, {"weekly": 4}, {"weekly": "4"}),
        (read_mapping, "{'threads': 8}", {"threads": 8}),
        (read_list, "[{'Name': 'a'}]", [{"Name": "a"}]),
        (read_request_of_texts, {"a": {"b": [7, "x"]}}, {"a": {"b": ["7", "x"]}}),
        (names, "day=1; day=2", ("day=1", "day=2")),
        (names, "['day=1', 'day=1']", ("day=1",)),
        (names, ["day=1", 5], ("day=1", "5")),
        (read_flag, " Yes ", True),
        (read_flag, "off", False),
        (read_flag, "False", False),
        (read_flag, 0, False),
        (read_flag, 1, True),
        (read_whole, " 1 ", 1),
        (read_whole, 5.0, 5),
        (read_index, "-1", -1),
        (read_index, "2", 2),
        (read_version, "-1", -1),
        (read_version, -1, -1),
        (read_version, "12", 12),
        (read_seconds, "3600", 3600.0),
        (read_seconds, "1:00:00", 3600.0),
        (read_seconds, "2 days, 0:00:01", 172_801.0),
        (read_seconds, "PT1H", 3600.0),
        (read_seconds, timedelta(hours=1), 3600.0),
        (read_seconds, 0, 0.0),
    ],
)
def test_each_kind_is_read(
    read: Callable[[str, object], object], given: object, expected: object
) -> None:
    found = read("x", given)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("read", "given"),
    [
        *((read_text, it) for it in (4.1, True, None, ["a"], {"a": 1}, b"a")),
        *((read_words, it) for it in ("--day 7", 7, [None], [["a"]], {"a": 1})),
        *((read_settings, it) for it in ("N=1", ["N"], {"N": None}, {"N": [1]}, {1.5: "a"})),
        *((read_versions, it) for it in ({"weekly": 4.1}, {"weekly": True}, "weekly")),
        *((read_list, it) for it in ("job.py", 7, None, {"a": 1})),
        *((read_request_of_texts, it) for it in ({"a": [None]}, "a")),
        *((names, it) for it in (True, 1.5, [1.5], {"day": 1}, None)),
        *((read_flag, it) for it in ("maybe", 2, None, 1.0, "", [])),
        *((read_whole, it) for it in ("1.5", 1.5, True, -1, "-1", "soon", float("inf"), None)),
        (read_whole, -(10**400)),
        (read_whole, "9" * 5_000),
        *((read_index, it) for it in ("1.5", True, -2, "a", None)),
        *((read_version, it) for it in ("1.5", True, -2, "a", None)),
        *((read_seconds, it) for it in ("soon", -1, True, timedelta(-1), float("nan"), "inf", [])),
    ],
)
def test_anything_else_is_refused_by_name_and_value(
    read: Callable[[str, object], object], given: object
) -> None:
    with pytest.raises(InvalidInputError, match=r"Invalid (a name in )?x(\[[^=]*\])?="):
        read("x", given)


def test_what_may_hold_a_secret_is_not_shown() -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_settings("env_vars", "AWS_SECRET_ACCESS_KEY=abc")
    assert "abc" not in str(caught.value)
    assert "Invalid env_vars=<str>" in str(caught.value)


def test_a_time_of_pendulum_becomes_a_plain_one() -> None:
    import pendulum

    found = read_time("newer_than", pendulum.datetime(2025, 12, 31, tz="Europe/Berlin"))
    assert type(found) is datetime
    assert found == datetime(2025, 12, 31, tzinfo=timezone(timedelta(hours=1)))
