"""Moment of a Delta table's past to read: a time or a version."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from ..errors import InvalidInputError

#: Types of a moment in a call: a version as a number, or a time as a datetime or text with a zone.
Past = int | datetime | str


@dataclass(frozen=True)
class AsOf:
    """A moment of a table's past: either a time or a version.

    :param time: Unix seconds, by the store's clock; the state at that time is read.
    :param version: a version of the table's log.
    """

    time: float | None = None
    version: int | None = None

    @staticmethod
    def parse(given: Past) -> AsOf:
        """Parse a moment that a user gives.

        :param given: a version, or a time with a zone: a datetime, or an ISO 8601 text.
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
    """Return a time as ISO 8601 text, which :meth:`AsOf.parse` reads again."""
    return datetime.fromtimestamp(time, UTC).isoformat()


def _refused(what: str) -> InvalidInputError:
    return InvalidInputError(
        f"as_of: {what}. Nothing was read.",
        remedy="Give a version, such as 7, or a time with its zone, such as 2026-01-31T12:00:00Z.",
    )
