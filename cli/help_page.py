"""Page of ``--help``: the commands under headings, each with its first paragraph."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any

import typer

#: The headings, and the commands below each, in the order of the page.
HEADINGS: Mapping[str, Sequence[str]] = {
    "Inspect tables": ("show", "history", "jobs", "verify", "doctor", "uploads", "lineage"),
    "Recover and maintain": ("recover", "repair", "purge", "maintain"),
    "Change rows, or undo a change": (*("delete", "copy", "adopt", "publish", "undo", "restore"),),
    "Resolve conflicts of runs": ("conflicts", "resolve", "keep-rows"),
    "Make files and records fewer or smaller": ("compact", "index", "gc", "checkpoint"),
    "Settings, rights, catalogs": (
        *("policy", "lifecycle", "encryption", "retention", "data-root", "catalog"),
    ),
    "Spark and Hadoop's committers": (
        *("committers", "checks", "s3a-check", "s3a-jobs", "s3a-recover", "log-store"),
    ),
}


def arrange(app: typer.Typer) -> None:
    """Sort the commands of the program under their headings.

    :raises KeyError: a command has no heading.
    """
    places = {
        name: (heading, place)
        for place, (heading, name) in enumerate(
            (heading, name) for heading, names in HEADINGS.items() for name in names
        )
    }
    for info in (*app.registered_commands, *app.registered_groups):
        info.rich_help_panel = places[_name(info)][0]
    app.registered_commands.sort(key=lambda info: places[_name(info)][1])
    for group in (app, *(info.typer_instance for info in app.registered_groups)):
        for info in group.registered_commands if group else ():
            info.help = _paragraphs(info.help or getattr(info.callback, "__doc__", None) or "")


def _name(info: Any) -> str:
    return info.name or info.callback.__name__.replace("_", "-")


def _paragraphs(text: str) -> str:
    """Join the lines of each paragraph. Typer would keep the line breaks of the source."""
    return re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.cleandoc(text))
