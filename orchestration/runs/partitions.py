"""Partitions of a run: paths, formats that make them of dates, and their table's spelling."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ...committer.errors import InvalidInputError, about
from .arguments import is_whole_day, read_names, read_time
from .schedules import clock_falls

if TYPE_CHECKING:
    import pyarrow as pa

    from ...committer.format.records.narrowing import Narrowing
    from .loaded_table import LoadedTable

#: ``strftime`` codes that distinguish times of one day, and those that write the UTC offset.
_TIME_OF_DAY, _OFFSET = frozenset("HIklMSfpPcXrRT"), frozenset("zZs")
#: Those that distinguish times of one hour.
_MINUTES = frozenset("MSfcXrRTs")
_CODE = re.compile(r"%[-_0^#:]*\d*[EO]?(.)")
#: Period in which a zone's clock changes are searched.
_YEARS = datetime(2000, 1, 1, tzinfo=UTC), datetime(2038, 1, 1, tzinfo=UTC)
#: All codes of the C library's ``strftime``, and Python's ``%f``. Others would stay in the text.
_CODES = frozenset("aAbBcCdDeFgGhHIjklmMnNpPrRsStTuUVwWxXyYzZf%")
_PERCENT = re.compile(r"%[-_0^#:]*\d*[EO]?(.?)", re.DOTALL)
#: Sample time to try a format with while a DAG file is parsed.
_SAMPLE = datetime(2013, 2, 1, 4, 5, 6, tzinfo=UTC)
#: Partitions that one task may wait for.
MOST_PARTITIONS = 10_000
_COMPONENT = re.compile(r"[^=/]+=[^/]+")


def check_partition(partition: str) -> str:
    """Return a Hive partition path, such as ``year=2013/month=2``, without outer slashes.

    :raises InvalidInputError: it is not a partition path, such as a template that rendered to
        ``None``.
    """
    path = partition.strip().strip("/")
    for part in path.split("/"):
        if _COMPONENT.fullmatch(part) is None or part.endswith(("=None", "=")):
            raise InvalidInputError(
                f"{partition!r} is not a partition path.",
                remedy="A partition path is name=value, several joined by '/', in the table's "
                "order of columns; a value's own '/' is written %2F.",
            )
    return path


def listed_partitions(name: str, given: object, separator: str | None = None) -> tuple[str, ...]:
    """Return the paths in an argument, as :func:`.read_names` finds them."""
    return read_names(name, given, separator, "partitions", "paths such as day=1")


def check_partition_format(partition_format: str, timezone: str) -> ZoneInfo:
    """Check that a format makes partition paths, and different ones for different runs.

    :return: the time zone.
    :raises InvalidInputError: there is no such zone; the format has a code that does not exist, or
        makes no partition path; or the zone's clock goes back, so that a time of the day comes
        twice, and the format does not distinguish the two.
    """
    zone = time_zone(timezone)
    for found in _PERCENT.finditer(partition_format):
        if found[1] not in _CODES or not found[1]:
            raise InvalidInputError(
                f"In partition_format={partition_format!r} {found[0]!r} is no code of strftime.",
                remedy="A percent sign itself is written %%.",
            )
    if "{{" not in partition_format:
        made = _SAMPLE.astimezone(zone).strftime(partition_format)
        try:
            check_partition(made)
        except InvalidInputError as error:
            raise InvalidInputError(
                f"partition_format={partition_format!r} makes {made!r}, which is no partition "
                "path.",
                remedy="Give it as year=%Y/month=%-m/day=%-d, in the table's order of columns.",
            ) from error
    codes = set(_CODE.findall(partition_format))
    if codes & _TIME_OF_DAY and not codes & _OFFSET and _goes_back(timezone):
        raise InvalidInputError(
            f"In {timezone} clocks go back once a year or did so, and an hour comes twice: by "
            f"partition_format={partition_format!r} the run of the second one would write into the "
            "partition of the first.",
            remedy="Take the hour in UTC (leave partition_timezone out), or add the offset to it: "
            "'%H%z'.",
        )
    return zone


def stored_partitions(table: LoadedTable, partitions: Sequence[str]) -> tuple[str, ...]:
    """Return partitions as their table spells them: ``day=1`` for ``day=01``.

    If there is no table of this package yet, they are returned as they are given.

    :raises InvalidInputError: the table cannot have one of them. The writer would only find this
        out after Spark has started.
    """
    spelling = table_spelling(table) if partitions else None
    if spelling is None:
        return tuple(partitions)
    with about(table.root.url):
        return tuple(dict.fromkeys(map(spelling.partition, partitions)))


def sure_partitions(table: LoadedTable, named: Sequence[str] | None) -> tuple[str, ...]:
    """Return the partitions that a load is known to write before it runs.

    These are the partitions that it names, or :data:`~.layout.UNPARTITIONED` for a table without
    partitions.

    :param named: as the table spells them; ``None``: the load names none.
    """
    if named:
        return tuple(named)
    # Imported on use: processes that only parse DAG files need not load it.
    from ...committer.format.layout import UNPARTITIONED

    return (UNPARTITIONED,) if table.exists() and not table.partition_by else ()


def made_partitions(names: Sequence[str], planned: Narrowing | None) -> tuple[str, ...]:
    """Return the partitions that a run makes, without those that a plan leaves out."""
    if planned is None or planned.whole:
        return tuple(names)
    return tuple(it for it in names if it in planned.partitions)


def compared_partitions(
    written: Callable[[], Sequence[str]], planned: Narrowing | None
) -> tuple[str, ...]:
    """Return the partitions in which a run may give way to others.

    Partitions that a plan leaves out are not among them, nor those where the plan lets the run
    settle a conflict.

    :param written: returns the partitions that the run is known to write.
    """
    settles = () if planned is None else planned.settles
    return tuple(it for it in made_partitions(written(), planned) if it not in settles)


@dataclass(frozen=True)
class TableSpelling:
    """A table's spelling of the names of its partitions: ``day=1`` for ``day=01``.

    :param columns: the partition columns.
    """

    schema: pa.Schema
    columns: Sequence[str]

    def partition(self, name: str) -> str:
        """Return a partition as the table spells it.

        :raises InvalidInputError: the table cannot have such a partition.
        """
        return self._written(name, self.columns)

    def directory(self, path: str) -> str:
        """Return a partition, or a directory above partitions, as the table spells it.

        :raises InvalidInputError: the table cannot have such a partition or directory.
        """
        return self._written(path, self.columns[: path.count("/") + 1])

    def is_partition(self, directory: str) -> bool:
        """Return whether a directory is a partition rather than a directory above partitions."""
        return directory.count("/") + 1 >= len(self.columns)

    def _written(self, path: str, columns: Sequence[str]) -> str:
        # Imported on use: processes that only parse DAG files need not load it.
        from ...committer.format.schema.hive_paths import normalise_partition

        return normalise_partition(path, self.schema, columns)


def table_spelling(table: LoadedTable) -> TableSpelling | None:
    """Read a table's spelling of its partitions' names; ``None``: there is no table yet."""
    return TableSpelling(table.schema, table.partition_by) if table.exists() else None


def table_directory(table: LoadedTable, path: str) -> str:
    """Return a partition, or a directory above partitions, as its table spells it.

    If there is no table yet, it is returned as it is given.

    :raises InvalidInputError: the table cannot have such a partition or directory.
    """
    spelling = table_spelling(table)
    return path if spelling is None else spelling.directory(path)


def dated_partition(date: datetime, partition_format: str, timezone: str) -> str:
    """Return the partition of a date.

    :param partition_format: ``strftime`` codes, such as ``year=%Y/month=%-m/day=%-d``.
    :param timezone: the zone in which the date is written.
    :raises InvalidInputError: as :func:`check_partition_format`, or the format makes no partition
        path of this date.
    """
    zone = check_partition_format(partition_format, timezone)
    # A plain datetime: pendulum's own formatting gives '%-d' another meaning.
    plain = datetime.fromtimestamp(date.timestamp(), zone)
    return check_partition(plain.strftime(partition_format))


def partitions_between(
    first: str | float | date, last: str | float | date, partition_format: str, timezone: str
) -> tuple[str, ...]:
    """Return the partitions from one date to another, both included.

    If the format has an hour, there is a partition for each hour; if it also has minutes, they are
    those of the first date. Otherwise there is one for each day, or for each month or year of these
    days.

    :param first: as :func:`.read_time` takes it; a time without a zone is in ``timezone``.
    :param last: likewise; without a time of the day it means the end of that day.
    :raises InvalidInputError: as :func:`check_partition_format`; no such date; or the first is
        after the last.
    """
    zone = check_partition_format(partition_format, timezone)
    begin, end = read_time("from_date", first, zone), read_time("to_date", last, zone)
    if is_whole_day(last):
        end += timedelta(days=1, microseconds=-1)
    if begin > end:
        raise InvalidInputError(
            f"from_date={str(first)!r} is after to_date={str(last)!r}.", remedy="Exchange them."
        )
    codes = set(_CODE.findall(partition_format))
    try:
        begin, end = (it.astimezone(UTC if codes & _TIME_OF_DAY else zone) for it in (begin, end))
    except OverflowError as error:
        raise InvalidInputError(
            f"from_date={str(first)!r} or to_date={str(last)!r} is outside the years 1 to 9999 in "
            f"{timezone}.",
            remedy="Give dates within them.",
        ) from error
    if codes & _TIME_OF_DAY:
        at, step = begin, timedelta(hours=1)
        if not codes & _MINUTES:
            # A range may begin late in one hour and end early in another. In every time zone hours
            # begin at a quarter of an hour of UTC.
            step = timedelta(minutes=15)
            at = at.replace(minute=at.minute // 15 * 15, second=0, microsecond=0)
    else:
        # Days by local time: some have 23 hours.
        at, end = begin.replace(tzinfo=None), end.replace(tzinfo=None)
        at, step = at.replace(hour=0, minute=0, second=0, microsecond=0), timedelta(days=1)
    made: dict[str, None] = {}
    while at <= end and len(made) <= MOST_PARTITIONS:
        local = at.replace(tzinfo=zone) if at.tzinfo is None else at.astimezone(zone)
        made[check_partition(local.strftime(partition_format))] = None
        if end - at < step:
            break  # The next one may be after the last moment that Python has.
        at += step
    return tuple(made)


def said_partitions(
    partition: str | None,
    partitions: Sequence[str] | str | None,
    dates: tuple[str | float | date | None, str | float | date | None],
    partition_format: str | None,
    timezone: str,
) -> tuple[str, ...] | None:
    """Return the partitions that arguments name; ``None`` if they name none.

    There are three ways: ``partition``, ``partitions``, or ``dates`` with a format.

    :param dates: the first and the last date, as for :func:`partitions_between`.
    :raises InvalidInputError: the arguments use several ways, or give half a range.
    """
    first, last = dates
    dated = first if first is not None else last
    if sum(way is not None for way in (partition, partitions, dated)) > 1:
        raise InvalidInputError(
            "partition, partitions and from_date with to_date each say which partitions are meant.",
            remedy="Give one of them.",
        )
    if partition is not None:
        return (partition,)
    if partitions is not None:
        return listed_partitions("partitions", partitions, separator=";")
    if dated is None:
        return None
    if first is None or last is None or partition_format is None:
        raise InvalidInputError(
            "A range of partitions is said by from_date, to_date and partition_format together.",
            remedy="Give all three, as partition_format='year=%Y/month=%-m/day=%-d'.",
        )
    return partitions_between(first, last, partition_format, timezone)


def _goes_back(timezone: str) -> bool:
    """Return whether a zone's clock ever goes back."""
    return bool(clock_falls(ZoneInfo(timezone), *_YEARS))


def time_zone(timezone: str) -> ZoneInfo:
    """Return a time zone by its name.

    :raises InvalidInputError: there is none of that name.
    """
    try:
        return ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError, TypeError) as error:
        raise InvalidInputError(
            f"There is no time zone {timezone!r}.",
            remedy="Give partition_timezone such as 'UTC' or 'Europe/Berlin'.",
        ) from error
