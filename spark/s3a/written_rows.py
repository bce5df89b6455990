"""Rows of one write by Hadoop's S3A committers: their selection, their check and their count."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

import pyarrow as pa

from ...committer.errors import InvalidInputError, SettingsRefusedError, first_few
from ...committer.format.schema.hive_paths import (
    NULL,
    escape,
    is_utc,
    normalise_partition,
    parse_partition,
    unescape,
)
from ...s3a.write_plan import PlannedWrite
from ..column_names import quoted
from ..write_target import WriteTarget

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

logger = logging.getLogger("zero_rename.spark.s3a.written_rows")
#: Seconds to wait for the number from Spark's listeners, after the write has returned.
_PATIENCE = 60.0
_ZONE = "spark.sql.session.timeZone"


def rows_of(frame: DataFrame, target: WriteTarget, write: PlannedWrite) -> DataFrame:
    """Select the rows of one write.

    Rows of partitions that the load does not name fail the job before any of its rows are visible,
    as they do with the native committer.
    """
    from pyspark.sql import functions as F

    if not target.among:
        return frame
    among = reduce(or_, map(_is_in, target.among))
    mine = F.lit(True) if write.partition is None else _is_in(write.partition)
    refused = F.raise_error(
        F.lit(f"A row belongs to none of the partitions {first_few(target.among)}")
    )
    kept = frame.where(F.when(among, mine).otherwise(refused.cast("boolean")))
    return kept if write.partition is None else kept.drop(*target.partition_by)


def _is_in(partition: str) -> Column:
    """Make the condition that a row lies in a partition.

    Values are compared by the text that Spark writes as the folder's name.
    """
    from pyspark.sql import functions as F

    found = F.lit(True)
    for column, raw in parse_partition(partition):
        text = F.col(quoted(column)).cast("string")
        if raw == NULL:
            found = found & (text.isNull() | (text == ""))
        else:
            found = found & text.eqNullSafe(unescape(raw))
    return found


def check_timestamps(frame: DataFrame, partition_by: Sequence[str], table: str) -> None:
    """Refuse timestamps as partition columns if the session's zone is not UTC.

    Spark names a folder by the local time. When a clock change repeats an hour, two instants have
    the same name. The files of one task for both have the same key, so those of the second hour
    replace those of the first. Other readers take the text for UTC, which it is with the native
    committer.

    :raises SettingsRefusedError: there is such a column; nothing was written.
    """
    from pyspark.sql.types import TimestampType

    names = {name.lower() for name in partition_by}
    found = [
        field.name
        for field in frame.schema.fields
        if field.name.lower() in names and isinstance(field.dataType, TimestampType)
    ]
    zone = frame.sparkSession.conf.get(_ZONE, None) or "the machine's"
    if not found or is_utc(zone):
        return
    raise SettingsRefusedError(
        f"The partition column {found[0]} is a timestamp, and the session's time zone is {zone}: "
        "its folders would have local times, of which a clock change gives two hours one name, "
        "and the rows of one of them would be replaced. Nothing was written.",
        table=table,
        remedy=f"Set {_ZONE}=UTC, or partition by a date or a string.",
    )


def check_names(frame: DataFrame, partitions: Sequence[str], table: str) -> None:
    """Refuse names of partitions other than those of the folders that Spark writes.

    If ``month`` is a whole number, Spark writes the rows of ``month=01`` below ``month=1``. A load
    without rows would leave the rows there, and report that it has replaced them.

    :raises InvalidInputError: there is such a name, or a value is not of its column's type; nothing
        was written.
    """
    from pyspark.sql.types import BooleanType, DateType, IntegralType

    # Of these types Spark writes a value in one form only, in all versions.
    sure = ((BooleanType, pa.bool_()), (DateType, pa.date32()), (IntegralType, pa.int64()))
    schema = pa.schema(
        (field.name.lower(), kind)
        for field in frame.schema.fields
        for theirs, kind in sure
        if isinstance(field.dataType, theirs)
    )

    def as_written(column: str, raw: str) -> str:
        name = column.lower()
        if name not in schema.names:
            return f"{escape(column)}={raw}"
        found = normalise_partition(f"{escape(name)}={raw}", schema, [name])
        return f"{escape(column)}={found.partition('=')[2]}"

    for partition in partitions:
        written = "/".join(as_written(*part) for part in parse_partition(partition))
        if parse_partition(partition) and written != partition:
            raise InvalidInputError(
                f"Spark writes the rows of {partition!r} below {written!r}, where an overwrite of "
                "the other folder would leave them; nothing was written.",
                table=table,
                remedy=f"Name it {written!r}.",
            )


class RowCount:
    """Counter of the rows of one write: of each task, only the attempt that counts for Spark.

    :param name: a name for the write that is used only once.
    """

    def __init__(self, name: str) -> None:
        from pyspark.sql import Observation

        self._observation = Observation(name)
        self._rows: int | None = None

    def of(self, frame: DataFrame) -> DataFrame:
        """Return the frame such that its next action is counted."""
        from pyspark.sql import functions as F

        return frame.observe(self._observation, F.count(F.lit(1)).alias("rows"))

    def rows(self) -> int | None:
        """Return the number, once the write has returned; ``None`` if Spark does not give it."""
        # In another thread, since Spark's own call waits without a timeout.
        asks = threading.Thread(target=self._ask, name="zero-rename-rows", daemon=True)
        asks.start()
        asks.join(_PATIENCE)
        if self._rows is None:
            logger.warning("Spark did not say how many rows it wrote; they are not compared")
        return self._rows

    def _ask(self) -> None:
        try:
            self._rows = self._observation.get.get("rows")
        except Exception:  # By the JVM. Only the number is lost: the rows stay written.
            logger.warning("Spark could not count the rows that it wrote", exc_info=True)
