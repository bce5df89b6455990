"""Ages and spans of time as every command takes them: ``90``, ``90s``, ``45m``, ``12h``, ``7d``."""

from __future__ import annotations

import re
from typing import Any

import typer

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
DAY = 86400.0


def age_option(help: str, *, default: str | None = None, least: str = "0") -> Any:
    """An option that takes an age, and hands it over in seconds.

    :param default: as ``--help`` shows it.
    :param least: younger ones are refused.
    """

    def age(text: Any) -> float:
        found = seconds_of(str(text))
        if found < seconds_of(least):
            raise typer.BadParameter(f"{text} is less than {least}.")
        return found

    shown = False if default is None else default
    return typer.Option(metavar="AGE", parser=age, help=help, show_default=shown)


def seconds_of(age: str) -> float:
    """:raises typer.BadParameter: it is no age."""
    found = re.fullmatch(r"(\d{1,12}(?:\.\d{1,9})?)([smhd]?)", age.strip())
    if found is None:
        raise typer.BadParameter(f"{age!r} is no age: give seconds, or 45m, 12h, 7d.")
    return float(found[1]) * _UNITS[found[2]]
