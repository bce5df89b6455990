"""Calendar of a table: its partitions by the day or month in their names."""

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
    """Return the day of a partition, or the first day of its month if its name has no day.

    The day is read from one column with a date (``2013-02-01``, ``20130201``, also with a time
    after it), or from columns with names such as year, month and day.

    :return: ``None`` if the name has neither day nor month.
    """
    if not is_decodable(partition):
        return None
    columns = [part.partition("=") for part in partition.split("/")]
    values = {unescape(name).lower(): unescape(raw) for name, _, raw in columns}
    for value in values.values():
        for form in (_DATE, _MONTH_ONLY):
            found = form.fullmatch(value)
            if found and (read := _date(*found.groups())):
                return read
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

    :param state: the most pressing state of its partitions; ``None``: it has no partitions.
    :param rows: ``None`` if the rows of a file were not counted.
    :param height: value of its bar: rows, or bytes if the rows of a file of the table were not
        counted. All bars have the same unit.
    """

    day: date
    partitions: tuple[SeenPartition, ...]
    state: SeenState | None
    rows: int | None
    bytes: int
    height: int


@dataclass(frozen=True)
class YearOfCells:
    """A year of the calendar: the days from the first partition to the last, gaps included.

    :param pressing: the most pressing state in it.
    """

    year: int
    cells: tuple[DayCell, ...]
    pressing: SeenState | None

    def day(self, day: date) -> DayCell | None:
        return next((cell for cell in self.cells if cell.day == day), None)


@dataclass(frozen=True)
class TableCalendar:
    """Partitions by day.

    :param years: newest first.
    :param by_month: each cell is a month.
    :param others: partitions whose names have no day.
    """

    years: tuple[YearOfCells, ...]
    by_month: bool
    others: tuple[SeenPartition, ...]

    def year(self, number: int | None) -> YearOfCells | None:
        """Return a year by its number; without a number, or if it is not there, the newest."""
        named = (year for year in self.years if number in (None, year.year))
        return next(named, self.years[0] if self.years else None)


def calendar_of(partitions: Sequence[SeenPartition]) -> TableCalendar:
    """Arrange partitions by their days."""
    by_day: dict[date, list[SeenPartition]] = {}
    others = []
    for partition in partitions:
        day = day_of(partition.name)
        if day is None:
            others.append(partition)
        else:
            by_day.setdefault(day, []).append(partition)
    by_month = bool(by_day) and all(day.day == 1 for day in by_day)
    in_bytes = rows_in(partitions) is None
    years: dict[int, list[DayCell]] = {}
    for day in _days(by_day, by_month):
        years.setdefault(day.year, []).append(_cell(day, by_day.get(day, ()), in_bytes))
    ordered = [
        YearOfCells(year, tuple(cells), most_pressing(cell.state for cell in cells))
        for year, cells in sorted(years.items(), reverse=True)
    ]
    return TableCalendar(tuple(ordered), by_month, tuple(others))


def _days(by_day: Iterable[date], by_month: bool) -> Iterable[date]:
    """List all days from the first to the last, without empty years.

    A wrong date could make thousands of empty years.
    """
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


def _cell(day: date, partitions: Sequence[SeenPartition], in_bytes: bool) -> DayCell:
    state = most_pressing(partition.state for partition in partitions)
    size, rows = sum(it.bytes for it in partitions), rows_in(partitions)
    height = size if in_bytes or rows is None else rows
    return DayCell(day, tuple(partitions), state, rows, size, height)


def rows_in(partitions: Sequence[SeenPartition]) -> int | None:
    """Sum the rows of partitions; ``None`` if the rows of a file were not counted."""
    counted = [it.rows for it in partitions if it.rows is not None]
    return sum(counted) if len(counted) == len(partitions) else None


def most_pressing(states: Iterable[SeenState | None]) -> SeenState | None:
    """Return the most pressing of several states; ``None`` if there is none."""
    known = [state for state in states if state is not None]
    return max(known, key=lambda state: state.pressing, default=None)
