"""Marks in a record's type hints, such as ``Annotated[int, at_least(0)]``, for what hints lack."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from ..layout import is_job_id


@dataclass(frozen=True)
class Named:
    """The name of the JSON member, if it differs from the field's."""

    member: str


@dataclass(frozen=True)
class Checked:
    """A test that the value has to pass.

    :param complaint: the predicate of the error for a value that fails it: ``is not …``.
    """

    holds: Callable[[Any], bool]
    complaint: str


def at_least(least: int) -> Checked:
    """Return the test that a number is not smaller than ``least``."""
    complaint = f"is less than {least}" if least else "is negative"
    return Checked(lambda number: number >= least, complaint)


@dataclass(frozen=True)
class Converted:
    """Functions of the value's own that write and read its JSON.

    :param read: raises :class:`.typed_json.Unfit`, or :class:`ValueError` with a reason.
    """

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


@dataclass(frozen=True)
class _Mark:
    name: str


#: The member may be missing or null, which means the field's default.
DEFAULTED = _Mark("defaulted")
#: As DEFAULTED; also, a field that has its default is not written.
LEFT_OUT = _Mark("left out")
#: Not written: the value is that of the enclosing record's field of the same name. That field must
#: come before the field that holds this record.
ENCLOSING = _Mark("enclosing")

#: Unix seconds, up to the last that calendars have: the end of the year 9999.
Moment = Annotated[float, Checked(lambda at: 0 <= at < 253_402_300_800, "is no time")]
#: A number of things, a position, a size.
Count = Annotated[int, at_least(0)]
JobId = Annotated[str, Checked(is_job_id, "is not a job id")]
