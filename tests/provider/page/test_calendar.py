"""Partitions by the day that their names tell, and how a year is drawn."""

from __future__ import annotations

from datetime import date

import pytest

from zero_rename.committer import SeenPartition, SeenState
from zero_rename.provider.page.day_calendar import calendar_of, day_of
from zero_rename.provider.page.pages import BARS, drawn

COMMITTED, FAILED = SeenState.COMMITTED, SeenState.FAILED


def partition(name: str, state: SeenState = COMMITTED, rows: int | None = 10) -> SeenPartition:
    return SeenPartition(name, state, 1, 1, rows, 1000, "zr1-x", 0.0)


@pytest.mark.parametrize(
    ("name", "day"),
    [
        ("year=2013/month=2/day=1", date(2013, 2, 1)),
        ("Year=2013/Month=02/Day=01/hour=5", date(2013, 2, 1)),
        ("day=2013-02-01", date(2013, 2, 1)),
        ("region=eu/dt=20130201", date(2013, 2, 1)),
        ("ts=2013-02-01 05%3A00%3A00", date(2013, 2, 1)),
        ("month=2013-02", date(2013, 2, 1)),
        ("year=2013/month=2", date(2013, 2, 1)),
        ("year=2013/month=13/day=1", None),
        ("day=2013-02-01/name=Z%FCrich", None),
        ("day=1", None),
        ("year=2013", None),
        ("flight=12345678", None),
        ("year=99999999999999999999/month=1", None),
        ("year=__HIVE_DEFAULT_PARTITION__/month=1/day=1", None),
        ("_unpartitioned", None),
        ("city=<b>", None),
    ],
)
def test_the_day_of_a_partition(name: str, day: date | None) -> None:
    assert day_of(name) == day


def test_days_between_others_are_gaps_and_those_around_are_none() -> None:
    calendar = calendar_of([partition("day=2013-01-30"), partition("day=2013-02-02")])
    (year,) = calendar.years
    assert [(cell.day.isoformat(), cell.state) for cell in year.cells] == [
        ("2013-01-30", COMMITTED),
        ("2013-01-31", None),
        ("2013-02-01", None),
        ("2013-02-02", COMMITTED),
    ]


def test_a_day_of_many_partitions_is_as_its_most_pressing_one() -> None:
    hours = [partition(f"day=2013-01-02/hour={hour}", rows=hour) for hour in range(24)]
    hours[5] = partition("day=2013-01-02/hour=5", FAILED, None)
    calendar = calendar_of([*hours, partition("day=2013-01-03/hour=0", rows=7)])
    first, second = calendar.years[0].cells
    assert (first.state, first.rows, first.bytes, len(first.partitions)) == (
        *(FAILED, None, 24_000),
        24,
    )
    assert second.rows == 7
    assert calendar.years[0].pressing is FAILED


def test_years_newest_first_and_no_empty_ones_between() -> None:
    """A date that somebody mistyped makes no thousand years."""
    names = ["day=0001-01-02", "day=2012-12-31", "day=2013-01-02", "day=9999-12-31", "x=1"]
    calendar = calendar_of([partition(name) for name in names])
    assert [year.year for year in calendar.years] == [9999, 2013, 2012, 1]
    assert calendar.year(2012) is calendar.years[2]
    assert calendar.year(1999) is calendar.year(None) is calendar.years[0]
    # Between two years that follow each other the gap is told.
    assert [cell.day.isoformat() for cell in calendar.years[1].cells] == [
        "2013-01-01",
        "2013-01-02",
    ]
    assert [it.name for it in calendar.others] == ["x=1"]


def test_a_table_by_months() -> None:
    calendar = calendar_of([partition(f"year=2013/month={m}", rows=m) for m in (1, 2, 4)])
    assert calendar.by_month
    cells = calendar.years[0].cells
    assert [(cell.day.month, cell.state) for cell in cells] == [
        (1, COMMITTED),
        (2, COMMITTED),
        (3, None),
        (4, COMMITTED),
    ]
    picture = drawn(calendar.years[0], by_month=True)
    assert [it.bar for it in picture.cells] == [BARS / 4, BARS / 2, 0.0, BARS]
    assert len({it.y for it in picture.cells}) == 1


def test_a_leap_years_squares_and_bars_stay_within_the_picture() -> None:
    days = [date.fromordinal(date(2012, 1, 1).toordinal() + n) for n in range(366)]
    rows = [1 if day.day == 2 else 1_000_000 for day in days]
    calendar = calendar_of(
        [partition(f"day={day}", rows=n) for day, n in zip(days, rows, strict=True)]
    )
    picture = drawn(calendar.years[0], by_month=False)
    assert len({(it.x, it.y) for it in picture.cells}) == 366
    assert max(it.x for it in picture.cells) + picture.square <= picture.width
    assert max(it.bar_x for it in picture.cells) + picture.bar_width <= picture.width
    assert {it.y for it in picture.cells if it.cell.day.weekday() == 0} == {18}
    # A few rows are seen beside a million.
    assert min(it.bar for it in picture.cells) == 1.5
    assert all(it.bar_y + it.bar == pytest.approx(picture.floor) for it in picture.cells)


def test_bars_are_bytes_where_nobody_counted_rows() -> None:
    calendar = calendar_of([partition("day=2013-01-02", rows=None)])
    assert calendar.years[0].cells[0].height == 1000


def test_bars_of_a_calendar_have_one_unit() -> None:
    """Rows of counted days stood beside bytes of others, and the legend said bytes."""
    uncounted, counted = partition("day=2013-01-02", rows=None), partition("day=2013-01-03")
    cells = calendar_of([uncounted, counted]).years[0].cells
    assert [(cell.rows, cell.height) for cell in cells] == [(None, 1000), (10, 1000)]
    assert [cell.height for cell in calendar_of([counted]).years[0].cells] == [10]
    # A file without a count makes them bytes in every year, also one of a partition without a day.
    cells = calendar_of([partition("x=1", rows=None), counted]).years[0].cells
    assert [cell.height for cell in cells] == [1000]
