"""Ages in seconds that callers give: a patience, or the least age of what is removed."""

from __future__ import annotations

from numbers import Real
from typing import cast

from ..errors import InvalidInputError


def check_age(name: str, given: object) -> None:
    """Refuse an age that is not a number of seconds, 0 or more. ``None`` is accepted.

    NaN is less than no number and greater than none: with it a job of any age would count as dead.

    :param name: the argument's name, for the error.
    :raises InvalidInputError: the age is negative, NaN or no number.
    """
    is_number = isinstance(given, Real) and not isinstance(given, bool)
    if given is None or (is_number and cast(float, given) >= 0):
        return
    raise InvalidInputError(
        f"Invalid {name}={given!r}: it must be a number of seconds, 0 or more. Nothing was "
        "changed.",
        remedy=f"Give seconds, such as {name}=3600.",
    )
