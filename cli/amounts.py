"""Ages and sizes as options of commands: ``90``, ``45m``, ``12h``, ``7d``; ``512MB``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ..committer.format import text_values as texts

DAY = 86400.0


def age_option(help: str, *, default: str | None = None, least: str = "0") -> Any:
    """Return an option that takes an age and passes it on in seconds.

    :param default: as ``--help`` shows it.
    :param least: a lower age is refused.
    """

    def age(text: Any) -> float:
        try:
            found = texts.seconds(str(text))
        except ValueError as error:
            raise typer.BadParameter(
                f"Invalid age {text!r}: give seconds, or 45m, 12h, 7d."
            ) from error
        if found < texts.seconds(least):
            raise typer.BadParameter(f"{text} is less than {least}.")
        return found

    shown = False if default is None else default
    return typer.Option(metavar="AGE", parser=age, help=help, show_default=shown)


def size_option(help: str, default: str) -> Any:
    """Return an option that takes a size and passes it on in bytes.

    :param default: as ``--help`` shows it.
    """

    def size(text: Any) -> int:
        try:
            return texts.size(str(text))
        except ValueError as error:
            raise typer.BadParameter(
                f"Invalid size {text!r}: give bytes, or 64K, 512MB, 1GiB."
            ) from error

    return typer.Option(metavar="SIZE", parser=size, help=help, show_default=default)


MaxDuration = Annotated[
    float | None,
    age_option("How long the longest job may run. Default: 24h, or what an open job says."),
]
