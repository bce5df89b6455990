"""Starts of a schedule, and two of them that become one partition."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import islice

#: Years after which weekdays fall on the same dates again.
_CYCLE = 28
#: Starts in a row that are compared: those of a cycle's days; and of a format that tells days
#: apart, by which only starts of one day, or around a change of the clock, can be alike.
_IN_A_ROW, _NEIGHBOURS = 12_000, 400
#: Time before and after a change of the clock in which its starts are compared; and starts that
#: are compared from a day before on, since a time that the clock leaves out may become one of the
#: next day.
_AROUND, _FROM_A_DAY_BEFORE = timedelta(hours=3), 60
#: Codes of ``strftime`` that always write as many digits, and those of them that make a date.
_FIXED = re.compile(r"%([YmdFjGVuHMS])|[^%]")
_DATES = ({"Y", "m", "d"}, {"F"}, {"Y", "j"}, {"G", "V", "u"})
#: Days between two looks at a zone's offset: offsets last longer, Morocco's of Ramadan included.
_STEP = timedelta(days=7)


@dataclass(frozen=True)
class Schedule:
    """The starts of a schedule's runs, or of the time windows of partition keys.

    :param starts: those at a moment and after it, in order.
    :param first: nothing starts before it.
    :param last: nothing starts after it; ``None``: the schedule has no end.
    :param zones: the time zones of the schedule and of the partitions.
    """

    starts: Callable[[datetime], Iterator[datetime]]
    first: datetime
    last: datetime | None
    zones: frozenset[tzinfo]

    @property
    def end(self) -> datetime:
        """The last moment that is looked at: a cycle of the calendar from now."""
        if self.last is not None:
            return self.last
        return max(self.first, datetime.now(UTC)) + timedelta(days=_CYCLE * 366)


def starts_of_one_partition(
    schedule: Schedule, partition_of: Callable[[datetime], str | None], *, days_differ: bool
) -> tuple[datetime, datetime] | None:
    """Find two starts of a schedule that become the same partition.

    All starts of a cycle of the calendar are compared with each other, of a schedule with several
    starts a day one of each day, and all of them for some weeks and around changes of the clock.

    :param partition_of: ``None``: the start is refused as a partition.
    :param days_differ: two days of the cycle never become the same partition.
    """
    seen: dict[str, datetime] = {}
    for start in _compared(schedule, days_differ):
        partition = partition_of(start)
        if partition is None:
            continue
        other = seen.setdefault(partition, start)
        # By the moment: of one zone's times Python compares what the clock on the wall shows.
        if other.timestamp() != start.timestamp():
            first, second = sorted((other, start), key=datetime.timestamp)
            return first, second
    return None


def _compared(schedule: Schedule, days_differ: bool) -> Iterator[datetime]:
    end, start = schedule.end, schedule.first
    in_a_row = islice(schedule.starts(start), _NEIGHBOURS if days_differ else _IN_A_ROW)
    for start in in_a_row:
        if start > end:
            return
        yield start
    for zone in schedule.zones:
        changes = clock_changes(zone, schedule.first, end)
        next_ones = [at for at in changes if at > datetime.now(UTC)][:4]
        for change in sorted({*changes[:4], *next_ones, *changes[-4:]}):
            day_before = max(change - timedelta(days=1) - _AROUND, schedule.first)
            yield from islice(schedule.starts(day_before), _FROM_A_DAY_BEFORE)
            for near in schedule.starts(max(change - _AROUND, schedule.first)):
                if near > min(change + _AROUND, end):
                    break
                yield near
    while not days_differ:
        start = next(schedule.starts(start + timedelta(days=1)), None)
        if start is None or start > end:
            return
        yield start


@lru_cache
def tells_days_apart(partition_format: str, first: date, last: date) -> bool:
    """Whether a format of ``strftime`` writes no two days between two dates alike."""
    codes = set(_FIXED.findall(partition_format))
    if _FIXED.sub("", partition_format) == "" and any(needed <= codes for needed in _DATES):
        return True  # Each code's digits stand at places of their own.
    days = (last - first).days + 1
    midnight = datetime(first.year, first.month, first.day)
    made = {(midnight + timedelta(days=n)).strftime(partition_format) for n in range(days)}
    return len(made) == days


@lru_cache
def clock_changes(zone: tzinfo, first: datetime, last: datetime) -> tuple[datetime, ...]:
    """The first whole hours, in UTC, after a zone's clock went back or forward."""
    found, hour = [], timedelta(hours=1)
    at = first.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    before = _offset(zone, at)
    while at < last:
        at += _STEP
        now = _offset(zone, at)
        if now != before:
            change = at - _STEP
            while _offset(zone, change) == before:
                change += hour
            found.append(change)
        before = now
    return tuple(found)


def clock_falls(zone: tzinfo, first: datetime, last: datetime) -> tuple[datetime, ...]:
    """Those of the changes at which the clock goes back: it shows some times twice."""
    hour = timedelta(hours=1)
    changes = clock_changes(zone, first, last)
    return tuple(at for at in changes if _offset(zone, at) < _offset(zone, at - hour))


def leaves_out_midnight(zone: tzinfo, first: datetime, last: datetime) -> bool:
    """Whether a zone's clock goes forward over a midnight, so that a time which it leaves out is
    one of the next day."""
    hour = timedelta(hours=1)
    changes = clock_changes(zone, first, last)
    return any(
        _offset(zone, at) > _offset(zone, at - hour)
        # By the former clock it would still be the day before.
        and (at + _offset(zone, at - hour)).date() < (at + _offset(zone, at)).date()
        for at in changes
    )


def _offset(zone: tzinfo, moment: datetime) -> timedelta:
    return moment.astimezone(zone).utcoffset() or timedelta()
