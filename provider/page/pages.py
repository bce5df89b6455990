"""Pages as HTML, with the values for each template. The templates escape all values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ...committer import (
    JobManifest,
    Owner,
    PartitionHistory,
    SeenPartition,
    SeenState,
    TableOverview,
    Verdict,
)
from ...committer.format.records.run_conflict import is_dagsters
from . import wording
from .access import Visitor
from .addresses import relative, task_address
from .day_calendar import DayCell, YearOfCells, calendar_of, day_of, rows_in
from .failed_tasks import FailedTask

#: Sizes, in units of the drawing.
SQUARE, STEP, LEFT, TOP = 13, 16, 34, 18
BARS = 84
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@dataclass(frozen=True)
class DrawnCell:
    """A cell as it is drawn: a square at ``x``, ``y``, and a bar of height ``bar`` at ``bar_x``."""

    cell: DayCell
    x: float
    y: float
    bar_x: float
    bar_y: float
    bar: float


@dataclass(frozen=True)
class DrawnYear:
    """A year as it is drawn.

    :param floor: y of the lower end of the bars.
    :param months: name of each month, and x of its first square.
    :param most: the value of the highest bar.
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
    """Lay out a year: weeks as columns with Monday on top, or its months in a row."""
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
        # A day with few rows beside days with millions must not look like a day without rows.
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
    """Return the names of weekdays beside the squares, each with its y."""
    return [
        (name, TOP + day * STEP + SQUARE - 2) for name, day in (("Mon", 0), ("Wed", 2), ("Fri", 4))
    ]


#: The most lines of a list; after them it only has the number of the others.
_LINES = 25
#: The most partitions without a day, or of one day, that are drawn.
_SQUARES = 3_000
_FILES_SHOWN, _CHANGES_SHOWN = 500, 500


@cache
def _templates() -> Environment:
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "files"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "count": wording.count_text,
        "size": wording.size_text,
        "span": wording.span_text,
        "moment": wording.moment_text,
        "cost": wording.cost_text,
        "owner": wording.owner_text,
        "partition": wording.partition_text,
    }
    named: dict[str, Any] = made.globals
    named |= {"to": relative, "price": wording.price_text(), "states": list(SeenState)}
    return made


def page(template: str, **content: Any) -> str:
    """Render a template."""
    return _templates().get_template(template).render(**content)


def glance(conn: str, name: str, overview: TableOverview, tasks: Sequence[FailedTask]) -> str:
    """Render a table's cells in the list of tables.

    :param tasks: as for :func:`table`.
    """
    newest = [it for it in overview.partitions if day_of(it.name)]
    newest.sort(key=lambda it: day_of(it.name) or date.min)
    return page(
        "glance.html",
        conn=conn,
        name=name,
        overview=overview,
        verdict=wording.verdict_on(overview, tasks),
        newest=newest[-28:],
        **_sums(overview),
    )


def table(
    visitor: Visitor,
    conn: str,
    name: str,
    overview: TableOverview,
    tasks: Sequence[FailedTask],
    year: int | None,
    day: date | None,
) -> str:
    """Render the page of a table.

    :param tasks: failed tasks that left no record at the table.
    :param year: the year to show; ``None``: the newest.
    :param day: the day to show in detail, or ``None``.
    """
    calendar = calendar_of(overview.partitions)
    shown = calendar.year(day.year if day else year)
    of_day = shown.day(day) if day and shown else None
    return page(
        "table.html",
        conn=conn,
        name=name,
        overview=overview,
        verdict=wording.verdict_on(overview, tasks),
        owners=_Owners(visitor, overview),
        calendar=calendar,
        year=shown,
        drawn=None if shown is None else drawn(shown, calendar.by_month),
        weekdays=weekday_marks(),
        day=of_day,
        day_squares=() if of_day is None else _labelled(of_day.partitions[:_SQUARES]),
        pressing=_pressing(overview.partitions)[:_LINES],
        pressing_count=len(_pressing(overview.partitions)),
        others=calendar.others[:_SQUARES],
        lines=_LINES,
        failed={it.job: it for it in overview.failures},
        tasks=tasks,
        **_sums(overview),
    )


def partition(
    visitor: Visitor, conn: str, name: str, overview: TableOverview, history: PartitionHistory
) -> str:
    """Render the page of a partition: its state, its files, and the jobs that changed it."""
    seen = next((it for it in overview.partitions if it.name == history.partition), None)
    failures = [it for it in overview.failures if history.partition in it.partitions]
    conflicts = [it for it in overview.conflicts if it.partition == history.partition]
    under_way = [it for it in overview.under_way if history.partition in it.partitions]
    return page(
        "partition.html",
        conn=conn,
        name=name,
        overview=overview,
        history=history,
        seen=seen,
        failures=failures,
        conflicts=conflicts,
        under_way=under_way,
        gaps=history.version - len({it.version for it in history.entries if it.version}),
        owners=_Owners(visitor, overview),
        files=history.files[:_FILES_SHOWN],
        neighbours=_neighbours(overview.partitions, history.partition),
    )


def job(visitor: Visitor, conn: str, name: str, job: str, found: JobManifest | None) -> str:
    """Render the page of a job: its manifest."""
    return page(
        "job.html",
        conn=conn,
        name=name,
        job=job,
        found=found,
        files=() if found is None else found.files[:_FILES_SHOWN],
        changes=() if found is None else found.job.changes[:_CHANGES_SHOWN],
        owners=_Owners(visitor),
    )


class _Owners:
    """Owners of jobs, hidden if the visitor may not see their DAGs.

    :param overview: of the table, whose texts name owners.
    """

    def __init__(self, visitor: Visitor, overview: TableOverview | None = None) -> None:
        self._visitor = visitor
        self._overview = overview

    def hidden(self, owner: Owner) -> bool:
        """Return whether a job's owner is of a DAG that the visitor may not see."""
        if owner.dag_id is None or is_dagsters(owner, None):
            return False
        return not self._visitor.may_see_dag(owner.dag_id)

    def address(self, owner: Owner) -> str | None:
        """Return the address of the owner's task instance; ``None`` if it is hidden or no task."""
        return None if self.hidden(owner) else task_address(owner)

    def said(self, text: str) -> str:
        """Return a text about the table, such as an error, without the names of hidden DAGs."""
        return text if self._names is None else self._names.sub("a DAG you may not see", text)

    @cached_property
    def _names(self) -> re.Pattern[str] | None:
        """Pattern of the names of hidden DAGs, with their tasks, and of their runs' keys."""
        found = owners_in(self._overview) if self._overview else ()
        hidden = {str(it.dag_id) for it in found if self.hidden(it)}
        # A run's key has the name as a part of an address has it.
        names = {*hidden, *(quote(it, safe=":+ ~") for it in hidden)}
        if not names:
            return None
        # The longest first: a DAG's name may be the beginning of another one's.
        either = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
        return re.compile(rf"(?<![\w.-])(?:{either})(?:[./][\w%][^\s,;()'\"]*)?(?![\w-])")


def owners_in(overview: TableOverview) -> Iterator[Owner]:
    """Yield the owners of a table's recent jobs, failures and conflicts."""
    for it in (*overview.jobs, *overview.under_way, *overview.failures):
        yield it.owner
    for conflict in overview.conflicts:
        yield from (run.owner for run in conflict.runs)
        if conflict.settlement is not None:
            yield conflict.settlement.by


def _sums(overview: TableOverview) -> dict[str, Any]:
    return {
        "rows": rows_in(overview.partitions),
        "bytes": sum(it.bytes for it in overview.partitions),
        "files": sum(it.files for it in overview.partitions),
        "last": next((job for job in overview.jobs if job.verdict is Verdict.COMMIT), None),
    }


def _labelled(partitions: Sequence[SeenPartition]) -> list[tuple[SeenPartition, str]]:
    """Label the partitions of a day by their last column, or by all if that is not enough."""
    labels = [it.name.rsplit("/", 1)[-1] for it in partitions]
    if len(set(labels)) < len(labels):
        labels = [it.name for it in partitions]
    return list(zip(partitions, labels, strict=True))


def _pressing(partitions: Sequence[SeenPartition]) -> list[SeenPartition]:
    """Return partitions that are loading or need action, the most pressing and newest first."""
    least = SeenState.RUNNING.pressing
    found = [it for it in partitions if it.state.pressing >= least]
    found.sort(key=lambda it: (day_of(it.name) or date.min, it.name), reverse=True)
    return sorted(found, key=lambda it: -it.state.pressing)


def _neighbours(
    partitions: Sequence[SeenPartition], name: str
) -> tuple[SeenPartition | None, SeenPartition | None]:
    """Return the partitions before and after one, by day and name."""
    ordered = sorted(partitions, key=lambda it: (day_of(it.name) or date.min, it.name))
    around = [None, *ordered, None]
    for before, it, after in zip(around, ordered, around[2:], strict=False):
        if it.name == name:
            return before, after
    return None, None
