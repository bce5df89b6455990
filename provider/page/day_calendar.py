"""Calendar of a table: its partitions by the day or month that their names tell."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from ...committer import SeenPartition, SeenState
from ...committer.format.schema.hive_paths import is_decodable, unescape

_YEAR, _MONTH, _DAY = {"year", "yyyy", "y", "yr"}, {"month", "mm", "m", "mon"}, {"day", "dd", "d"}
_DATE = re.compile(r"(\d{4})-?(\d{2})-?(\d{2})(?:[T _-].*)?")
_MONTH_ONLY = re.compile(r"(\d{4})-(\d{2})")


def day_of(partition: str) -> date | None:
    """The day that a partition is about, or the first of its month where it says no day;
    ``None`` where it tells neither.

    From one column with a date (``2013-02-01``, ``20130201``, also with a time behind), or from
    columns that are called year, month and day.
    """
    if not is_decodable(partition):
        return None
    columns = [part.partition("=") for part in partition.split("/")]
    values = {unescape(name).lower(): unescape(raw) for name, _, raw in columns}
    for value in values.values():
        for form in (_DATE, _MONTH_ONLY):
            found = form.fullmatch(value)
            if found and (day := _date(*found.groups())):
                return day
    year, month, day = (
        next((values[n] for n in values if n in names), None) for names in (_YEAR, _MONTH, _DAY)
    )
    if year is None or month is None:
        return None
    return _date(year, month, "1" if day is None else day)


def _date(year: str, month: str, day: str = "1") -> date | None:
    try:
        return date(int(year), int(month), int(day))
    except (ValueError, OverflowError):
        return None


@dataclass(frozen=True)
class DayCell:
    """A day, or a month, of the calendar.

    :param state: the most pressing of its partitions; ``None``: it has none, between others.
    :param rows: ``None`` where nobody counted those of some file.
    """

    day: date
    partitions: tuple[SeenPartition, ...]
    state: SeenState | None
    rows: int | None
    bytes: int

    @property
    def height(self) -> int:
        """What its bar shows: rows, or bytes where nobody counted rows."""
        return self.bytes if self.rows is None else self.rows


@dataclass(frozen=True)
class YearOfCells:
    """A year of the calendar, from its first day with a partition to its last, gaps included.

    :param pressing: the most pressing state in it.
    """

    year: int
    cells: tuple[DayCell, ...]
    pressing: SeenState | None

    def day(self, day: date) -> DayCell | None:
        return next((cell for cell in self.cells if cell.day == day), None)


@dataclass(frozen=True)
class TableCalendar:
    """Partitions by day, and those that tell none.

    :param by_month: each cell is a month.
    :param years: newest first.
    """

    years: tuple[YearOfCells, ...]
    by_month: bool
    others: tuple[SeenPartition, ...]

    def year(self, number: int | None) -> YearOfCells | None:
        """That year, or the newest."""
        named = (year for year in self.years if number in (None, year.year))
        return next(named, self.years[0] if self.years else None)


def calendar_of(partitions: Sequence[SeenPartition]) -> TableCalendar:
    """Arrange partitions by the days that they are about."""
    by_day: dict[date, list[SeenPartition]] = {}
    others = []
    for partition in partitions:
        day = day_of(partition.name)
        if day is None:
            others.append(partition)
        else:
            by_day.setdefault(day, []).append(partition)
    by_month = bool(by_day) and all(day.day == 1 for day in by_day)
    years: dict[int, list[DayCell]] = {}
    for day in _days(by_day, by_month):
        years.setdefault(day.year, []).append(_cell(day, by_day.get(day, ())))
    ordered = [
        YearOfCells(year, tuple(cells), most_pressing(cell.state for cell in cells))
        for year, cells in sorted(years.items(), reverse=True)
    ]
    return TableCalendar(tuple(ordered), by_month, tuple(others))


def _days(by_day: Iterable[date], by_month: bool) -> Iterable[date]:
    """All from the first to the last; but no empty years, of which a wrong date makes thousands."""
    days = sorted(by_day)
    years = {day.year for day in days}
    found = []
    for year in sorted(years):
        of_year = [day for day in days if day.year == year]
        first = date(year, 1, 1) if year - 1 in years else of_year[0]
        last = date(year, 12, 31) if year + 1 in years else of_year[-1]
        while first <= last:
            if not by_month or first.day == 1:
                found.append(first)
            if first == date.max:
                break
            first += timedelta(days=1)
    return found


def _cell(day: date, partitions: Sequence[SeenPartition]) -> DayCell:
    state = most_pressing(partition.state for partition in partitions)
    size = sum(it.bytes for it in partitions)
    return DayCell(day, tuple(partitions), state, rows_in(partitions), size)


def rows_in(partitions: Sequence[SeenPartition]) -> int | None:
    """Rows of all; ``None`` where nobody counted those of some file."""
    counted = [it.rows for it in partitions if it.rows is not None]
    return sum(counted) if len(counted) == len(partitions) else None


def most_pressing(states: Iterable[SeenState | None]) -> SeenState | None:
    """The most pressing of several; ``None`` for none."""
    known = [state for state in states if state is not None]
    return max(known, key=lambda state: state.pressing, default=None)
