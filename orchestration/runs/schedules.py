"""Starts of a schedule, and the search for two starts that become the same partition."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import islice

#: Years after which weekdays fall on the same dates again.
_CYCLE = 28
#: The number of consecutive starts that are compared. The first number covers the days of a cycle.
#: The second is for a format that distinguishes days: then only starts of one day, or around a
#: change of the clock, can become the same partition.
_IN_A_ROW, _NEIGHBOURS = 12_000, 400
#: Around a change of the clock, starts are compared that lie at most so long before or after it;
#: and so many starts from a day before it on, since a time that the clock leaves out may become a
#: time of the next day.
_AROUND, _FROM_A_DAY_BEFORE = timedelta(hours=3), 60
#: Codes of ``strftime`` with a fixed number of digits, and sets of them that determine a date.
_FIXED = re.compile(r"%([YmdFjGVuHMS])|[^%]")
_DATES = ({"Y", "m", "d"}, {"F"}, {"Y", "j"}, {"G", "V", "u"})
#: Step of the search for changes of a zone's offset. Every offset lasts longer, also Morocco's
#: during Ramadan.
_STEP = timedelta(days=7)


@dataclass(frozen=True)
class Schedule:
    """The starts of a schedule's runs, or of the time windows of partition keys.

    :param starts: yields the starts from a moment on, in order.
    :param first: no run starts before it.
    :param last: no run starts after it; ``None``: the schedule has no end.
    :param zones: the time zones of the schedule and of the partitions.
    """

    starts: Callable[[datetime], Iterator[datetime]]
    first: datetime
    last: datetime | None
    zones: frozenset[tzinfo]

    @property
    def end(self) -> datetime:
        """End of the period to compare: the schedule's, or a cycle of the calendar from now."""
        if self.last is not None:
            return self.last
        return max(self.first, datetime.now(UTC)) + timedelta(days=_CYCLE * 366)


def starts_of_one_partition(
    schedule: Schedule, partition_of: Callable[[datetime], str | None], *, days_differ: bool
) -> tuple[datetime, datetime] | None:
    """Find two starts of a schedule that become the same partition.

    All starts of a cycle of the calendar are compared with each other. If the schedule has several
    starts a day, one start of each day is compared, and all starts of some weeks and around changes
    of the clock.

    :param partition_of: the partition of a start; ``None`` if it cannot have one.
    :param days_differ: two days of the cycle never become the same partition.
    """
    seen: dict[str, datetime] = {}
    for start in _compared(schedule, days_differ):
        partition = partition_of(start)
        if partition is None:
            continue
        other = seen.setdefault(partition, start)
        # Compare Unix seconds: Python compares times of one zone by their local time.
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
    """Return whether a ``strftime`` format writes all days between two dates differently."""
    codes = set(_FIXED.findall(partition_format))
    if _FIXED.sub("", partition_format) == "" and any(needed <= codes for needed in _DATES):
        return True  # Each code's digits always have the same place in the text.
    days = (last - first).days + 1
    midnight = datetime(first.year, first.month, first.day)
    made = {(midnight + timedelta(days=n)).strftime(partition_format) for n in range(days)}
    return len(made) == days


@lru_cache
def clock_changes(zone: tzinfo, first: datetime, last: datetime) -> tuple[datetime, ...]:
    """Return the first whole hours, in UTC, after a zone's clock went back or forward."""
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
    """Return the changes at which a zone's clock goes back, so that it shows some times twice."""
    hour = timedelta(hours=1)
    changes = clock_changes(zone, first, last)
    return tuple(at for at in changes if _offset(zone, at) < _offset(zone, at - hour))


def leaves_out_midnight(zone: tzinfo, first: datetime, last: datetime) -> bool:
    """Return whether a zone's clock ever goes forward over a midnight.

    Then a time that the clock leaves out becomes a time of the next day.
    """
    hour = timedelta(hours=1)
    changes = clock_changes(zone, first, last)
    return any(
        _offset(zone, at) > _offset(zone, at - hour)
        # By the offset before the change it would still be the day before.
        and (at + _offset(zone, at - hour)).date() < (at + _offset(zone, at)).date()
        for at in changes
    )


def _offset(zone: tzinfo, moment: datetime) -> timedelta:
    return moment.astimezone(zone).utcoffset() or timedelta()
