"""Numbers that callers give: seconds, ages, and the numbers of ranks."""

from __future__ import annotations

import math
from contextlib import suppress
from numbers import Real
from typing import TypeGuard

from ..errors import InvalidInputError


def is_number(given: object) -> TypeGuard[float]:
    """Return whether a value is a real number; a truth value is none."""
    return isinstance(given, Real) and not isinstance(given, bool)


def finite_number(given: object) -> float | None:
    """Return a number as a float; ``None``: it is not a finite number."""
    if is_number(given):
        with suppress(OverflowError):
            number = float(given)
            return number if math.isfinite(number) else None
    return None


def finite_seconds(name: str, given: object) -> float:
    """Return a number of seconds in an argument.

    :param name: the argument's name, for the error.
    :raises InvalidInputError: it is not a finite number, which every record can hold.
    """
    if (number := finite_number(given)) is not None:
        return number
    raise InvalidInputError(
        f"Invalid {name}={given!r}: it must be a finite number of seconds. Nothing was sent.",
        remedy=f"Give seconds, such as {name}=3600.",
    )


def check_span(name: str, given: object) -> None:
    """Refuse a duration that is not a finite number of seconds, 0 or more. ``None`` is accepted.

    :param name: the argument's name, for the error.
    :raises InvalidInputError: it is negative, infinite, NaN or no number.
    """
    check_age(name, given)
    if given is not None:
        finite_seconds(name, given)


def check_age(name: str, given: object) -> None:
    """Refuse an age that is not a number of seconds, 0 or more. ``None`` is accepted.

    NaN is less than no number and greater than none: with it a job of any age would count as dead.

    :param name: the argument's name, for the error.
    :raises InvalidInputError: the age is negative, NaN or no number.
    """
    if given is None or (is_number(given) and given >= 0):
        return
    raise InvalidInputError(
        f"Invalid {name}={given!r}: it must be a number of seconds, 0 or more. Nothing was "
        "changed.",
        remedy=f"Give seconds, such as {name}=3600.",
    )
