"""Mapper from partitions' paths, the keys of a load's asset events, to keys with dates."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, ClassVar

from airflow.partition_mappers.base import PartitionMapper

from ...committer.errors import InvalidInputError
from ...orchestration.runs.partitions import check_partition_format

#: A code of ``strftime`` without padding; ``strptime`` reads such numbers with the plain code.
_UNPADDED = re.compile(r"%-(?=[A-Za-z])")


class PartitionPathMapper(PartitionMapper):
    """Mapper from ``year=2013/month=2/day=1`` to ``2013-02-01``, or to its month or year.

    It is for ``PartitionedAssetTimetable(assets=…, default_partition_mapper=…)``. Airflow's own
    ``StartOfDayMapper`` can read such a path, too. But it cannot write a path without padding, as
    a rollup must::

        RollupMapper(
            upstream_mapper=PartitionPathMapper(
                "year=%Y/month=%-m/day=%-d", output_format="%Y-%m"
            ),
            window=MonthWindow(),
        )

    starts a run for a month when all its days are there.

    :param partition_format: ``strftime`` codes, as the load's ``partition_format``. For rollups,
        leave out the padding if the column is a number: the table's path is ``day=1``, not
        ``day=01``.
    :param output_format: ``strftime`` codes of the downstream key. A part of the date that it
        leaves out counts as its first value: ``%Y-%m`` is the first day of the month.
    :param timezone: the zone of the paths' dates: the load's ``partition_timezone``.
    :param max_downstream_keys: as for Airflow's own mappers: the most runs that one event may
        start; ``None`` for the configuration's number.
    :raises InvalidInputError: a format that makes no path, or paths from which no date can be read.
    """

    expected_decoded_type: ClassVar[type] = datetime

    def __init__(
        self,
        partition_format: str,
        *,
        output_format: str = "%Y-%m-%d",
        timezone: str = "UTC",
        max_downstream_keys: int | None = None,
    ) -> None:
        super().__init__(max_downstream_keys=max_downstream_keys)
        self.partition_format = partition_format
        self.output_format = output_format
        self.timezone = timezone
        self._zone = check_partition_format(partition_format, timezone)
        self._check_formats()

    def to_downstream(self, key: str) -> str:
        """Return the downstream key of a partition.

        :raises ValueError: a path of another form.
        """
        return self._date_in(key).strftime(self.output_format)

    def decode_downstream(self, downstream_key: str) -> datetime:
        """Return the start of a downstream key's period, without a time zone."""
        return _read(downstream_key, self.output_format)

    def encode_upstream(self, decoded: datetime) -> str:
        """Return the partition path of a date, escaped as a table's paths are."""
        # Imported on use: the module imports pyarrow, and DAG files need not wait for that.
        from ...committer.format.schema.hive_paths import escape, unescape

        made = decoded.strftime(self.partition_format)
        parts = (part.partition("=") for part in made.split("/"))
        return "/".join(
            f"{escape(unescape(name))}={escape(unescape(value))}" for name, _, value in parts
        )

    def to_partition_date(self, downstream_key: str) -> datetime:
        """Return the start of a downstream key's period, in the mapper's time zone."""
        return self.decode_downstream(downstream_key).replace(tzinfo=self._zone)

    def _date_in(self, path: str) -> datetime:
        """Read the date in a path, plain or escaped as a table escapes it (``05%3A00``).

        :raises ValueError: a path of another form.
        """
        try:
            return _read(path, self.partition_format)
        except ValueError:
            from ...committer.format.schema.hive_paths import unescape

            if (plain := unescape(path)) == path:
                raise
        return _read(plain, self.partition_format)

    def _check_formats(self) -> None:
        sample = datetime(2013, 2, 1)
        cause = "the year is not in both"
        try:
            path = sample.strftime(self.partition_format)
            read = self.decode_downstream(self.to_downstream(path))
        except ValueError as error:
            cause = str(error)
        else:
            if read.year == sample.year:
                return
        raise InvalidInputError(
            f"No date can be read from paths of {self.partition_format!r} and keys of "
            f"{self.output_format!r}: {cause}.",
            remedy="Give both with a year, as 'year=%Y/month=%-m/day=%-d' and '%Y-%m'.",
        )

    def serialize(self) -> dict[str, Any]:
        names = ("partition_format", "output_format", "timezone", "max_downstream_keys")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> PartitionPathMapper:
        return cls(**data)


def _read(text: str, written_by: str) -> datetime:
    return datetime.strptime(text, _UNPADDED.sub("%", written_by))
