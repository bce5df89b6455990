"""The flights as files and as content."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from demo.dataset import ROWS, Flights, content, partition_of, partition_on

DAY = date(2013, 2, 2)


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> Flights:
    return Flights.unpack(tmp_path_factory.mktemp("data"))


def test_all_rows_are_unpacked(flights: Flights) -> None:
    assert sum(1 for _ in flights.lines()) == ROWS


def test_contents_have_a_partition_a_day_and_no_row_of_other_months(flights: Flights) -> None:
    contents = flights.contents([1, 2])
    assert len(contents) == 31 + 28
    january = [c.rows for name, c in contents.items() if "/month=1/" in name]
    assert sum(january) == 27_004
    assert [contents[partition_on(date(2013, 2, d))].rows for d in (1, 2, 3)] == [926, 682, 814]


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
