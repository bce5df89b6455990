"""Partition values as strings, as a Delta log has them; null stands for null and for ``""``."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

from ...committer.errors import UnsupportedTypeError

PartitionValue = None | bool | int | float | str | date | datetime | Decimal


def written_text(value: PartitionValue) -> str | None:
    """Return a partition value as an entry has it. A timestamp includes its zone, since Spark would
    otherwise read it in the zone of its session.

    :raises UnsupportedTypeError: Delta has no string form for the value.
    """
    if isinstance(value, datetime) and value.tzinfo is not None:
        utc = value.astimezone(UTC).replace(tzinfo=None)
        return f"{utc.isoformat('T', 'microseconds')}Z"
    return partition_text(value)


def partition_text(value: PartitionValue) -> str | None:
    """Return the form of a partition value that is used for comparison.

    :raises UnsupportedTypeError: Delta has no string form for the value.
    """
    match value:
        case None | "":
            return None
        case bool():
            return str(value).lower()
        case str():
            return value
        case datetime():
            utc = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
            return utc.isoformat(" ", "microseconds")
        case date():
            return value.isoformat()
        case Decimal():
            return format(value, "f")
        case float() | int():
            return str(value)
    raise UnsupportedTypeError(
        f"Invalid partition value {value!r}: Delta has no text for a {type(value).__name__}. "
        "Nothing was written."
    )
