"""Schedules of DAGs that can be computed: cron expressions and fixed intervals."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from croniter import CroniterBadDateError, croniter

from ..orchestration.runs.partitions import check_partition_format
from ..orchestration.runs.schedules import (
    Schedule,
    leaves_out_midnight,
    starts_of_one_partition,
    tells_days_apart,
)

if TYPE_CHECKING:
    from dateutil.relativedelta import relativedelta

#: Names of classes in the task SDK and in Airflow itself. Other timetables are not known.
_CRON = {"CronDataIntervalTimetable", "CronTriggerTimetable", "CronPartitionTimetable"}
_DELTA = {"DeltaDataIntervalTimetable", "DeltaTriggerTimetable"}
_EITHER = {"AssetOrTimeSchedule", "DatasetOrTimeSchedule"}
_Starts = Callable[[datetime], Iterator[datetime]]


def runs_of_one_partition(
    dag: Any, partition_format: str, timezone: str
) -> tuple[datetime, datetime] | None:
    """Find two runs of a DAG's schedule that have the same partition.

    :param timezone: the zone in which the format writes dates.
    :return: the dates of these runs; ``None`` if there are none, or the schedule is not known.
    :raises InvalidInputError: as :func:`.partitions.check_partition_format`.
    """
    timetable = dag.timetable
    while type(timetable).__name__ in _EITHER:
        timetable = _member(timetable, "timetable")
    first = _plain(
        dag.start_date or datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    )
    last = None if dag.end_date is None else _plain(dag.end_date)
    zone = check_partition_format(partition_format, timezone)
    kind = type(timetable).__name__ if type(timetable).__module__.startswith("airflow.") else ""
    if kind in _DELTA:
        delta, interval = _member(timetable, "delta"), _interval(timetable)
        if first + delta <= first:
            return None  # Airflow refuses such a schedule itself.
        schedule = Schedule(_deltas(first, delta, interval), first, last, frozenset((zone,)))
        return _alike(schedule, partition_format, zone)
    if kind == "MultipleCronTriggerTimetable":
        timetables = _member(timetable, "timetables")
    elif kind in _CRON:
        timetables = [timetable]
    else:
        return None
    try:
        crons = tuple(map(_cron, timetables))
    except ZoneInfoNotFoundError:
        return None  # A zone such as "local", which is different on each machine.
    return _of_crons(crons, partition_format, zone, first, last)


@lru_cache
def _of_crons(
    crons: tuple[tuple[str, tzinfo, timedelta | relativedelta], ...],
    partition_format: str,
    zone: ZoneInfo,
    first: datetime,
    last: datetime | None,
) -> tuple[datetime, datetime] | None:
    def starts(moment: datetime) -> Iterator[datetime]:
        return heapq.merge(*(_ticks(*cron, moment) for cron in crons))

    zones = frozenset((zone, *(cron[1] for cron in crons)))
    schedule = Schedule(starts, first, last, zones)
    if (
        len(crons) == 1
        and _is_once_a_day(*crons[0], zone)
        and not leaves_out_midnight(zone, schedule.first, schedule.end)
        and _tells_days(schedule, partition_format)
    ):
        return None
    return _alike(schedule, partition_format, zone)


def _is_once_a_day(
    expression: str, cron_zone: tzinfo, interval: timedelta | relativedelta, zone: ZoneInfo
) -> bool:
    """Return whether a cron expression names one time of day, in the partitions' time zone."""
    minutes, hours, *dates = croniter(expression).expanded
    one_time = len(minutes) == len(hours) == 1 and "*" not in (*minutes, *hours)
    one_clock = getattr(cron_zone, "key", None) == zone.key
    # A fourth part after the hours has the seconds.
    return one_time and len(dates) == 3 and one_clock and not interval


def _alike(
    schedule: Schedule, partition_format: str, zone: ZoneInfo
) -> tuple[datetime, datetime] | None:
    return starts_of_one_partition(
        schedule,
        lambda start: start.astimezone(zone).strftime(partition_format),
        days_differ=_tells_days(schedule, partition_format),
    )


def _tells_days(schedule: Schedule, partition_format: str) -> bool:
    return tells_days_apart(partition_format, schedule.first.date(), schedule.end.date())


def _cron(timetable: Any) -> tuple[str, tzinfo, timedelta | relativedelta]:
    zone = _member(timetable, "timezone")
    zone = ZoneInfo(zone) if isinstance(zone, str) else zone
    return _member(timetable, "expression"), zone, _interval(timetable)


def _plain(moment: datetime) -> datetime:
    """Return a moment as a plain datetime in UTC: pendulum would compute in local time."""
    return datetime.fromtimestamp(moment.timestamp(), UTC)


def _interval(timetable: Any) -> timedelta | relativedelta:
    """Return the length of the data interval that ends when a run is made; 0 if there is none."""
    return _member(timetable, "interval", timedelta())


def _member(timetable: Any, name: str, *default: Any) -> Any:
    """Return an attribute, which has a leading underscore in Airflow but not in the task SDK."""
    public = getattr(timetable, name, None)
    return getattr(timetable, f"_{name}", *default) if public is None else public


def _ticks(
    expression: str, zone: tzinfo, interval: timedelta | relativedelta, moment: datetime
) -> Iterator[datetime]:
    """Yield the starts of data intervals from a moment on, in UTC."""
    wall = (moment + interval).astimezone(zone).replace(tzinfo=None)
    ticks = croniter(expression, wall - timedelta(microseconds=1))
    # As in airflow.timetables._cron: if the clock shows an hour twice, both hours have a run if
    # every hour has one; otherwise only the second has. A time that the clock leaves out becomes
    # later by the length of the gap.
    each_hour = ticks.expanded[1] == ["*"]
    try:
        while True:
            tick = ticks.get_next(datetime)
            moments = [tick.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)]
            for at in sorted(moments) if each_hour else [max(moments)]:
                yield at - interval
    except CroniterBadDateError:
        return  # There is no further date, as for 30 February.


def _deltas(
    first: datetime, delta: timedelta | relativedelta, interval: timedelta | relativedelta
) -> _Starts:
    def starts(moment: datetime) -> Iterator[datetime]:
        at = first
        if isinstance(delta, timedelta):
            at += max((moment + interval - first) // delta, 0) * delta
        while True:
            if at - interval >= moment:
                yield at - interval
            at += delta

    return starts


def shared_partition(dag: Any, partition_format: str, timezone: str) -> str | None:
    """Describe two runs of a DAG's schedule that have the same partition.

    :param timezone: the zone in which the format writes dates.
    :return: ``None`` if no such runs are known.
    :raises InvalidInputError: as :func:`.partitions.check_partition_format`.
    """
    alike = runs_of_one_partition(dag, partition_format, timezone)
    if alike is None:
        return None
    one, other = (it.astimezone(ZoneInfo(timezone)) for it in alike)
    if "%" not in partition_format:
        return (
            f"partition_format={partition_format!r} has no code of strftime, such as %Y, %m or %d, "
            f"so all runs of the DAG {dag.dag_id!r} have one partition. With mode='overwrite' each "
            "run replaces the rows of the one before."
        )
    return (
        f"partition_format={partition_format!r} makes one partition of two runs of the DAG "
        f"{dag.dag_id!r}, {one:%Y-%m-%d %H:%M%z} and {other:%Y-%m-%d %H:%M%z}: "
        f"{one.strftime(partition_format)}. With mode='overwrite' the second run replaces the rows "
        "of the first."
    )
