"""Marks in a record's type hints, as ``Annotated[int, at_least(0)]``: what no hint can say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from ..layout import is_job_id


@dataclass(frozen=True)
class Named:
    """The JSON member's name, where it is not the field's."""

    member: str


@dataclass(frozen=True)
class Checked:
    """The value passes a test.

    :param complaint: what is said of one that does not, ``is not …``.
    """

    holds: Callable[[Any], bool]
    complaint: str


def at_least(least: int) -> Checked:
    """The number is not smaller."""
    complaint = f"is less than {least}" if least else "is negative"
    return Checked(lambda number: number >= least, complaint)


@dataclass(frozen=True)
class Converted:
    """The value's JSON is made and read by functions of its own.

    :param read: raises :class:`.typed_json.Unfit`, or :class:`ValueError` with a reason.
    """

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


@dataclass(frozen=True)
class _Mark:
    name: str


#: The member may be missing or null, which means the field's default.
DEFAULTED = _Mark("defaulted")
#: The same, and a field that has its default is not written.
LEFT_OUT = _Mark("left out")
#: Not written: the value is that of the enclosing record's field of the same name, which comes
#: before the field that this record lies in.
ENCLOSING = _Mark("enclosing")

#: Seconds since the epoch, as far as calendars go: to the end of the year 9999.
Moment = Annotated[float, Checked(lambda at: 0 <= at < 253_402_300_800, "is no time")]
#: A number of things, a position, a size.
Count = Annotated[int, at_least(0)]
JobId = Annotated[str, Checked(is_job_id, "is not a job id")]
