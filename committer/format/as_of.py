"""Moment of a Delta table's past that is to be read: a time, or a version."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from ..errors import InvalidInputError

#: What a moment is said as: a version by a number, a time by a date with its zone.
Past = int | datetime | str


@dataclass(frozen=True)
class AsOf:
    """One of both.

    :param time: seconds since the epoch, by the store's clock: what counted then.
    :param version: of the table's log.
    """

    time: float | None = None
    version: int | None = None

    @staticmethod
    def parse(given: Past) -> AsOf:
        """A moment as users say it.

        :param given: a version, or a time: a datetime, or its text as ISO 8601 has it, with a zone.
        :raises InvalidInputError: it is neither.
        """
        if isinstance(given, str):
            text = given.strip()
            if text.isdecimal():
                return AsOf(version=int(text))
            try:
                given = datetime.fromisoformat(text)
            except ValueError as error:
                raise _refused(f"{given!r} is neither a version nor a time") from error
        if isinstance(given, datetime):
            if given.tzinfo is None:
                raise _refused(f"{given.isoformat()} has no time zone")
            return AsOf(time=given.timestamp())
        if isinstance(given, bool) or not isinstance(given, int) or given < 0:
            raise _refused(f"{given!r} is neither a version nor a time")
        return AsOf(version=given)

    def __str__(self) -> str:
        return f"version {self.version}" if self.time is None else told(self.time)


def told(time: float) -> str:
    """A time as errors and pages say it, and as it can be given again."""
    return datetime.fromtimestamp(time, UTC).isoformat()


def _refused(what: str) -> InvalidInputError:
    return InvalidInputError(
        f"as_of: {what}. Nothing was read.",
        remedy="Give a version, such as 7, or a time with its zone, such as 2026-01-31T12:00:00Z.",
    )
