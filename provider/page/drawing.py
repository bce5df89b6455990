"""Drawing of a year: squares by week and day, and bars below them, as numbers for an SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from .day_calendar import DayCell, YearOfCells

#: Sizes in the units of the drawing.
SQUARE, STEP, LEFT, TOP = 13, 16, 34, 18
BARS = 84
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@dataclass(frozen=True)
class DrawnCell:
    """A square at ``x``, ``y``, and its bar at ``bar_x``, of ``bar`` units in height."""

    cell: DayCell
    x: float
    y: float
    bar_x: float
    bar_y: float
    bar: float


@dataclass(frozen=True)
class DrawnYear:
    """A year as it is drawn.

    :param months: name and place of each month's first square.
    :param floor: where bars stand.
    :param most: what the highest bar shows.
    """

    width: float
    height: float
    square: float
    bar_width: float
    bars_top: float
    floor: float
    months: tuple[tuple[str, float], ...]
    cells: tuple[DrawnCell, ...]
    most: int


def drawn(year: YearOfCells, by_month: bool) -> DrawnYear:
    """Lay out a year: weeks as columns, Monday on top; or its months in a row."""
    columns, rows = (12, 1) if by_month else (54, 7)
    step = STEP * 4.5 if by_month else STEP
    square = SQUARE * 4.5 if by_month else SQUARE
    width = LEFT + columns * step
    bars_top = TOP + rows * (square if by_month else STEP) + 16
    floor = bars_top + BARS
    most = max((cell.height for cell in year.cells), default=0)
    per_day = (width - LEFT) / (12 if by_month else 372)
    placed = []
    for cell in year.cells:
        x, y = _place(cell.day, by_month, step)
        slot = cell.day.month - 1 if by_month else cell.day.timetuple().tm_yday - 1
        bar = round(BARS * cell.height / most, 2) if most else 0.0
        # A day with a few rows among millions is not a day without any.
        bar = max(bar, 1.5) if cell.height else 0.0
        placed.append(
            DrawnCell(cell, x, y, round(LEFT + slot * per_day, 2), round(floor - bar, 2), bar)
        )
    months = tuple(
        (name, _place(date(year.year, number, 1), by_month, step)[0])
        for number, name in enumerate(_MONTHS, 1)
    )
    return DrawnYear(
        width,
        floor + 4,
        square,
        round(per_day * 0.72, 2),
        bars_top,
        floor,
        months,
        tuple(placed),
        most,
    )


def _place(day: date, by_month: bool, step: float) -> tuple[float, float]:
    if by_month:
        return LEFT + (day.month - 1) * step, TOP
    first = date(day.year, 1, 1).weekday()
    week, weekday = divmod(day.timetuple().tm_yday - 1 + first, 7)
    return LEFT + week * step, TOP + weekday * STEP


def weekday_marks() -> Sequence[tuple[str, float]]:
    """Name and place of the weekdays that are named beside the squares."""
    return [
        (name, TOP + day * STEP + SQUARE - 2) for name, day in (("Mon", 0), ("Wed", 2), ("Fri", 4))
    ]
