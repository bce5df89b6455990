"""The command that makes records small."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from ..committer import Table
from ..committer.errors import counted, escaped
from .amounts import DAY, age_option
from .output import DRY, Apply, AsJson, Exit, Url, print_rows, refusals, say


def gc(
    table: Url,
    older_than: Annotated[
        float,
        age_option(
            "How long decisions, runs' failures and what was replaced stay whole.", default="7d"
        ),
    ] = 7 * DAY,
    apply: Apply = False,
    as_json: AsJson = False,
) -> None:
    """Fold, condense and remove old records, so that they stay small. Changes no answer."""
    with refusals():
        report = Table(table).gc(older_than, apply)
    counts = (
        ("lists of decisions in heads", "folded", report.folded),
        ("decisions", "condensed", report.condensed),
        ("records", "removed", report.removed),
    )
    rows = [(what, done if apply else f"would be {done}", n) for what, done, n in counts if n]
    columns = ("what", "action", "how many")
    nothing = "No record is old enough and needed by nobody: nothing is to be done."
    print_rows(as_json, columns, rows, dataclasses.asdict(report), nothing)
    if rows:
        say(f"{report.saved:,} bytes less." if apply else DRY)
    if report.left:
        stay = counted(report.left, "old decision stays", "old decisions stay")
        say(f"{stay} whole: a job is open, or a replace may be undone.")
    for partition, damage in report.damaged.items():
        say(f"{partition} cannot be read, so its decisions stay: {damage}")
    for key, cause in report.failed.items():
        say(f"{escaped(key)} could not be removed ({cause}); run it again.")
    if report.failed or report.damaged:
        raise typer.Exit(Exit.LOOK)
