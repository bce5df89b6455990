"""Partition columns that Spark's writer cannot tell apart."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...committer.errors import SettingsRefusedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ZONE = "spark.sql.session.timeZone"
_UTC = re.compile(
    r"(Etc/)?(UTC|UCT|GMT|Zulu|Universal|Greenwich|GMT[+-]?0)|Z|(UTC|GMT|UT)?[+-]0{1,2}(:?00)?",
    re.IGNORECASE,
)


def check_timestamps(frame: DataFrame, partition_by: Sequence[str], table: str) -> None:
    """Refuse timestamps as partition columns where the session's zone is not UTC.

    Spark names a folder by the local time. The hour that a clock change repeats has one name for
    two instants; the files of a task in both have one key, so those of the first hour are
    replaced by the second's. Readers elsewhere take the text for UTC, as natively it is.

    :raises SettingsRefusedError: nothing was written.
    """
    from pyspark.sql.types import TimestampType

    names = {name.lower() for name in partition_by}
    found = [
        field.name
        for field in frame.schema.fields
        if field.name.lower() in names and isinstance(field.dataType, TimestampType)
    ]
    zone = frame.sparkSession.conf.get(_ZONE, None) or "the machine's"
    if not found or _UTC.fullmatch(zone):
        return
    raise SettingsRefusedError(
        f"The partition column {found[0]} is a timestamp, and the session's time zone is {zone}: "
        "its folders would have local times, of which a clock change gives two hours one name, "
        "and the rows of one of them would be replaced. Nothing was written.",
        table=table,
        remedy=f"Set {_ZONE}=UTC, or partition by a date or a string.",
    )
