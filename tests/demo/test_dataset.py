"""The flights as files and as content."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path

import pytest

from demo.dataset import ROWS, Content, Flights, canonical, content, partition_of, partition_on
from demo.errors import DemoError

DAY = date(2013, 2, 2)


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> Flights:
    return Flights.unpack(tmp_path_factory.mktemp("data"))


def test_all_rows_are_unpacked(flights: Flights) -> None:
    assert sum(1 for _ in flights.lines()) == ROWS


def test_another_data_set_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("demo.dataset.ROWS", 7)
    with pytest.raises(DemoError, match="another data set"):
        Flights.unpack(tmp_path)


def test_contents_have_a_partition_a_day_and_no_row_of_other_months(flights: Flights) -> None:
    contents = flights.contents([1, 2])
    assert len(contents) == 31 + 28
    january = [c.rows for name, c in contents.items() if "/month=1/" in name]
    assert sum(january) == 27_004
    assert [contents[partition_on(date(2013, 2, d))].rows for d in (1, 2, 3)] == [926, 682, 814]


def test_contents_of_a_month_are_those_of_all_its_rows(flights: Flights) -> None:
    # By another way than the one that leaves lines out by their first characters.
    rows = [row for row in flights.lines() if row["month"] == "2"]
    assert sum(flights.contents([2]).values(), Content()).rows == len(rows)


def test_content_disregards_order_but_not_doubles() -> None:
    rows = [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    assert content(rows) == content(rows[::-1])
    assert content([*rows, rows[0]]) != content([*rows, rows[1]])
    assert content(rows[:1]) + content(rows[1:]) == content(rows)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": None}, {"a": ""}),
        ({"a": None}, {"a": "None"}),
        ({"a": "1", "b": ""}, {"a": "", "b": "1"}),
        ({"a": 1}, {"b": 1}),
    ],
)
def test_content_tells_rows_apart(one: dict, other: dict) -> None:
    assert content([one]) != content([other])


def test_a_time_is_the_same_in_every_zone() -> None:
    utc = datetime(2013, 1, 1, 10, tzinfo=UTC)
    assert canonical(utc) == canonical(utc.astimezone(timezone(timedelta(hours=-5))))


def test_corrections_are_the_same_every_time(flights: Flights, tmp_path: Path) -> None:
    first = flights.corrected(DAY, tmp_path / "1.csv")
    again = flights.corrected(DAY, tmp_path / "2.csv")
    assert first.path.read_bytes() == again.path.read_bytes()


def test_corrections_leave_out_cancelled_flights_and_move_uniteds(
    flights: Flights, tmp_path: Path
) -> None:
    before = [row for row in flights.lines() if partition_of(row) == partition_on(DAY)]
    after = list(flights.corrected(DAY, tmp_path / "c.csv").lines())
    cancelled = sum(row["dep_time"] == "NA" for row in before)
    assert len(after) == len(before) - cancelled < len(before)

    def delays(rows: list[dict[str, str]]) -> int:
        flown = [row for row in rows if row["dep_time"] != "NA"]
        return sum(int(row["dep_delay"]) for row in flown)

    united = sum(row["carrier"] == "UA" for row in after)
    assert united > 0
    assert delays(after) == delays(before) - united
