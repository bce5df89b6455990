"""Ages and spans of time as the command line takes them."""

from __future__ import annotations

import re

from ..committer.errors import InvalidInputError

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds_of(age: str) -> float:
    """Seconds of ``90``, ``90s``, ``45m``, ``12h`` or ``7d``.

    :raises InvalidInputError: it is no age.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", age.strip())
    if found is None:
        raise InvalidInputError(f"{age!r} is no age.", remedy="Give seconds, or 45m, 12h, 7d.")
    return float(found[1]) * _UNITS[found[2]]
